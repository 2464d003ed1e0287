import { useWidgetState } from "../lib/widget";
import { counted, number } from "../lib/words";
import { FoundTools } from "../player/FoundTools";
import type { ModelSearch, SearchesState } from "./state";
import "./searches.css";

/** Each search of the model, the newest first and open. */
export function ModelSearches() {
  const { rows, earlier } = useWidgetState<{ searches: SearchesState }>().searches;
  const searches = Object.entries(rows).sort(([one], [other]) => Number(other) - Number(one));
  return (
    <div class="cmn-searches">
      <div class="cmn-row">
        <strong class="cmn-grow">The model's searches</strong>
        <span class="cmn-quiet" role="status" data-testid="searches-count">
          {number.format(searches.length + earlier)}
        </span>
      </div>
      {searches.length === 0 && (
        <p class="cmn-quiet" data-testid="no-searches">
          None yet. They show here while a turn runs.
        </p>
      )}
      {searches.map(([key, search], index) => (
        <Search key={key} search={search} open={index === 0} />
      ))}
      {earlier > 0 && (
        <p class="cmn-quiet">{`${counted(earlier, "earlier search").replace("searchs", "searches")} not shown.`}</p>
      )}
    </div>
  );
}

function Search({ search, open }: { search: ModelSearch; open: boolean }) {
  const { turn, step, query, words, found, more } = search;
  return (
    <details open={open} data-testid={`search-${turn}-${step}`}>
      <summary>
        <strong>{query || words}</strong> <span class="cmn-quiet">{`turn ${turn}, step ${step}`}</span>
      </summary>
      <p class="cmn-quiet">{words}</p>
      <FoundTools rows={found} />
      {more > 0 && <p class="cmn-quiet">{`${counted(more, "more tool")}.`}</p>}
    </details>
  );
}
