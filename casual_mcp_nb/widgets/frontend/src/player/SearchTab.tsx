import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { counted, number } from "../lib/words";
import { FoundTools } from "./FoundTools";
import { matching, placeOf, searchesOf } from "./slides";
import type { Catalog, Lesson } from "./state";

interface Props {
  lesson: Lesson;
  shown: boolean;
  onGo(place: number): void;
}

/** The searches of the conversation as they were, and the tools to look through. */
export function SearchTab({ lesson, shown, onGo }: Props) {
  return (
    <div class="cmn-search" data-testid="search">
      <Searches lesson={lesson} onGo={onGo} />
      <Tools catalog={lesson.catalog} shown={shown} />
    </div>
  );
}

function Searches({ lesson, onGo }: Omit<Props, "shown">) {
  const searches = searchesOf(lesson);
  return (
    <section>
      <h2>The model's searches</h2>
      {searches.length === 0 && <p class="cmn-quiet">The model did not search.</p>}
      {searches.map(({ slide, place }, index) => (
        <details key={place} open={index === 0} data-testid={`search-${place + 1}`}>
          <summary>
            <strong>{slide.query || slide.words}</strong> <span class="cmn-quiet">{placeOf(slide)}</span>
          </summary>
          <p class="cmn-quiet">{slide.words}</p>
          <FoundTools rows={slide.rows} />
          <Button testid="go-to-search" onClick={() => onGo(place)}>
            Show this step
          </Button>
        </details>
      ))}
    </section>
  );
}

function Tools({ catalog, shown }: { catalog: Catalog; shown: boolean }) {
  const { tools, total, deferred } = catalog;
  const [query, setQuery] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (shown) input.current?.focus();
  }, [shown]);
  const title = deferred ? "Deferred tools" : "Tools";
  if (!total)
    return (
      <section>
        <h2>{title}</h2>
        <p class="cmn-quiet" data-testid="no-tools">
          No tools were connected when this page was made.
        </p>
      </section>
    );
  const matches = matching(tools, query);
  const searched = counted(tools.length, deferred ? "deferred tool" : "tool");
  return (
    <section>
      <h2>{title}</h2>
      <label class="cmn-field">
        <span>Filter by name and description</span>
        <input
          ref={input}
          type="search"
          autocomplete="off"
          data-testid="query"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      </label>
      <p class="cmn-quiet" role="status" data-testid="found">
        {query.trim() ? `${number.format(matches.length)} of ${searched}` : searched}
        {tools.length < total && `, the first of ${number.format(total)}`}
      </p>
      <ul class="cmn-listed" data-testid="listed">
        {matches.map(([name, description]) => (
          <li key={name}>
            <span class="cmn-mono">{name}</span> <span class="cmn-quiet">{description}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
