import { useEffect, useMemo, useRef } from "preact/hooks";
import { HitRow } from "../explorer/HitRow";
import { splitHits, summaryOf } from "../explorer/hits";
import type { Hit, Ranked } from "../explorer/state";
import { counted } from "../lib/words";
import { Ranking } from "../search/ranking";
import type { SearchData } from "./state";

const BEHIND_THE_CUT = 5;

interface Props {
  search: SearchData;
  query: string;
  onQuery(query: string): void;
  shown: boolean;
}

/** The search of the conversation, whose ranking moves with each key: its index is in the page. */
export function SearchTab({ search, query, onQuery, shown }: Props) {
  const ranking = useMemo(() => search.index && new Ranking(search.index), [search]);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (shown) input.current?.focus();
  }, [shown]);
  const ranked = useMemo(() => (ranking ? rankedBy(ranking, search, query) : null), [ranking, search, query]);
  if (!ranking || !ranked)
    return (
      <p class="cmn-quiet" data-testid="no-search">
        {search.note}
      </p>
    );
  const [returned, below] = splitHits(ranked);
  const row = (hit: Hit & { tool: number }) => <HitRow key={hit.wire_name} hit={hit} terms={ranking.words(query, hit.tool)} />;
  return (
    <div class="cmn-search" data-testid="search">
      <h2>Search as the model does</h2>
      <input
        ref={input}
        type="search"
        class="cmn-wide"
        aria-label="Search as the model does"
        placeholder="Describe the task"
        autocomplete="off"
        data-testid="query"
        value={query}
        onInput={(event) => onQuery(event.currentTarget.value)}
      />
      <p class="cmn-quiet" role="status" data-testid="found">
        {summaryOf(ranked) || `${counted(search.tools.length, search.deferred ? "deferred tool" : "tool")} can be found.`}
      </p>
      <ol class="cmn-hits" data-testid="hits">
        {returned.map(row)}
        {below.length > 0 && (
          <li class="cmn-cut" key="cut">
            The model does not see results below this line
          </li>
        )}
        {below.map(row)}
      </ol>
      <p class="cmn-quiet">{search.note}</p>
    </div>
  );
}

interface RankedTools extends Ranked {
  hits: (Hit & { tool: number })[];
}

function rankedBy(ranking: Ranking, { tools, cut }: SearchData, query: string): RankedTools {
  const hits = query.trim() ? ranking.search(query, cut + BEHIND_THE_CUT) : [];
  const best = hits[0]?.score ?? 1;
  return {
    query,
    cut,
    searched: tools.length,
    hits: hits.map(({ tool, score }, place) => {
      const [name, server, wire_name, summary] = tools[tool] as [string, string, string, string];
      return { tool, name, server, wire_name, summary, rank: place + 1, score, share: score / best };
    }),
  };
}
