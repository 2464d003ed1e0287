import { useEffect, useRef } from "preact/hooks";
import { byTurn, labelOf } from "./slides";
import type { Lesson } from "./state";

interface Props {
  lesson: Lesson;
  place: number;
  onGo(place: number): void;
}

/** All slides, turn by turn; the present one stays in sight. */
export function Timeline({ lesson, place, onGo }: Props) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    list.current?.querySelector(`[data-place="${place}"]`)?.scrollIntoView({ block: "nearest" });
  }, [place]);
  return (
    <nav class="cmn-timeline" aria-label="Steps" ref={list} data-testid="timeline">
      {byTurn(lesson).map(({ title, about, slides }) => (
        <section key={title} aria-label={title}>
          <h2 title={about}>{title}</h2>
          <ol>
            {slides.map(({ slide, place: at }) => {
              const [what, about] = labelOf(slide);
              return (
                <li key={at} data-kind={slide.kind}>
                  <button
                    type="button"
                    data-place={at}
                    data-testid={`go-${at + 1}`}
                    aria-current={at === place ? "step" : undefined}
                    title={about.slice(0, 200)}
                    onClick={() => onGo(at)}
                  >
                    <span>{what}</span> <span class="cmn-quiet cmn-clip">{about.slice(0, 80)}</span>
                  </button>
                </li>
              );
            })}
          </ol>
        </section>
      ))}
    </nav>
  );
}
