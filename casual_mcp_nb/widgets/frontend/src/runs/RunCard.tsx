import type { RefObject } from "preact";
import { Button, Segments } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { tokens } from "../lib/words";
import { duration, money } from "./rows";
import type { RunDetail } from "./state";

interface Props {
  detail: RunDetail;
  card: RefObject<HTMLElement | null>;
  onRepeat(repeat: number): Promise<unknown>;
  onBack(): void;
}

/** One run: its result, what was expected and called, and its transcript as the package draws it. */
export function RunCard({ detail, card, onRepeat, onBack }: Props) {
  const { needed, called, parameters, repeats } = detail;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    onBack();
  };
  const facts: [string, string][] = [
    ["Expected", needed.join(", ") || "no call"],
    ["Called", called.join(", ") || "nothing"],
    ["Parameters", parameters.join(", ")],
    ["Model", detail.model],
  ];
  const figures = [
    detail.tokens !== undefined && `${tokens(detail.tokens, detail.origin)} in`,
    detail.cost !== undefined && money(detail.cost, detail.currency),
    duration(detail.seconds),
  ];
  return (
    <section
      class="cmn-card cmn-run"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
      tabIndex={0}
      ref={card}
      aria-label={`Run of ${detail.case} in ${detail.arm}`}
      data-testid="run"
      onKeyDown={onKeyDown}
    >
      <div class="cmn-row cmn-run-head">
        <Button testid="back" onClick={onBack} title="Esc">
          ← Back
        </Button>
        {repeats.length > 1 && (
          <Segments
            label="Repeat"
            testid="repeat"
            value={String(detail.repeat)}
            options={repeats.map(({ repeat, mark }) => [String(repeat), `${repeat + 1} ${mark}`] as const)}
            onChoose={(value) => onRepeat(Number(value))}
          />
        )}
      </div>
      <h3>
        {detail.case} <span class="cmn-quiet">in {detail.arm}</span>
      </h3>
      <p data-testid="outcome">
        <Outcome detail={detail} /> <span class="cmn-quiet">{figures.filter(Boolean).join(" · ")}</span>
      </p>
      {detail.detail && <p class="cmn-said">{detail.detail}</p>}
      <dl class="cmn-facts">
        {facts
          .filter(([, text]) => text)
          .map(([name, text]) => (
            <div key={name}>
              <dt class="cmn-quiet">{name}</dt>
              <dd>{text}</dd>
            </div>
          ))}
      </dl>
      {detail.turns.length === 0 && <p class="cmn-quiet">This run has no transcript.</p>}
      {detail.turns.map((turn, index) => (
        // A run does not change, and another one has other keys.
        <article key={`${detail.row}-${detail.repeat}-${index}`} aria-label={`Message ${index + 1}`}>
          <div class="cmn-bubble" data-testid="prompt">
            {turn.prompt}
          </div>
          <Drawn testid="transcript" class="cmn-turn-drawn" html={turn.html} />
        </article>
      ))}
    </section>
  );
}

/** Whether the run is right, wrong and why, or neither. */
function Outcome({ detail: { right, outcome } }: { detail: RunDetail }) {
  if (outcome === "not judged") return <span class="cmn-run-status">? {outcome}</span>;
  return (
    <span class="cmn-run-status" data-status={right ? "done" : "failing"}>
      {right ? "✓ right" : `✗ ${outcome}`}
    </span>
  );
}
