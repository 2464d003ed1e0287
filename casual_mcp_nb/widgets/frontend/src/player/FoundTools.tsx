import { scoreText } from "../explorer/hits";
import type { SearchSlide } from "./state";

/** What a search of the model returned, with the scores that it had then. */
export function FoundTools({ rows }: { rows: SearchSlide["rows"] }) {
  const best = Math.max(0, ...rows.map(([, score]) => score ?? 0));
  return (
    <ol class="cmn-hits" data-testid="found-by-model">
      {rows.map(([tool, score, why], index) => (
        <li key={index} class="cmn-hit">
          <span class="cmn-number cmn-quiet">{score === null ? "" : index + 1}</span>
          <span class="cmn-mono cmn-clip" title={tool}>
            {tool}
          </span>
          <span class="cmn-score-bar" aria-hidden="true">
            {score !== null && best > 0 && <i style={{ width: `${(100 * score) / best}%` }} />}
          </span>
          <span class="cmn-number cmn-quiet">{score === null ? "" : scoreText(score)}</span>
          <span class="cmn-quiet cmn-terms">{why}</span>
        </li>
      ))}
    </ol>
  );
}
