import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { BreakableName, Button } from "../lib/controls";
import { scoreText } from "./hits";
import type { Hit } from "./state";

interface Props {
  hit: Hit;
  /** Why it is found: what a button shows. */
  why: ComponentChildren;
  /** The words of the query that matched, once they are known. */
  terms: readonly string[] | undefined;
  onOpen?: ((hit: Hit) => void) | undefined;
}

export function HitRow({ hit, why, terms = [], onOpen }: Props) {
  const [open, setOpen] = useState(false);
  const title = <BreakableName text={`${hit.server}:${hit.name}`} />;
  const words = terms.map((term) => `“${term}”`).join(", ");
  return (
    <li data-testid={`hit-${hit.wire_name}`}>
      <div class="cmn-hit">
        <span class="cmn-number cmn-quiet">{hit.rank}</span>
        {onOpen ? (
          <button
            type="button"
            class="cmn-link cmn-mono"
            data-testid="hit-name"
            title={hit.summary}
            onClick={() => onOpen(hit)}
          >
            {title}
          </button>
        ) : (
          <span class="cmn-mono" data-testid="hit-name" title={hit.summary}>
            {title}
          </span>
        )}
        <span class="cmn-score-bar" aria-hidden="true">
          <i style={{ width: `${100 * hit.share}%` }} />
        </span>
        <span class="cmn-number cmn-quiet" data-testid="score">
          {scoreText(hit.score)}
        </span>
        <Button
          testid="why-hit"
          tone="quiet"
          aria-expanded={open}
          aria-label={`Why ${hit.name}`}
          onClick={() => setOpen(!open)}
        >
          Why
        </Button>
        <span class="cmn-quiet cmn-clip cmn-terms" data-testid="terms" title={words}>
          {words}
        </span>
      </div>
      {open && why}
    </li>
  );
}
