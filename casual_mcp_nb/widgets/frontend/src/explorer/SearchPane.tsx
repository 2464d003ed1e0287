import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { number } from "../lib/words";
import { Explanation } from "./Explanation";
import { HitRow } from "./HitRow";
import { splitHits, summaryOf } from "./hits";
import type { ExplorerState, Hit } from "./state";
import { useRanked } from "./useRanked";
import type { SearchRequest } from "./workbench";

interface Props {
  request: SearchRequest;
  /** Called when the person wants to see a tool. */
  onOpen?: (hit: Hit) => void;
}

/** The search as the model does it, at each key. */
export function SearchPane({ request, onOpen }: Props) {
  const { search } = useWidgetState<ExplorerState>();
  const query = request.query.value;
  const scope = search.deferred ? (request.scope.value ?? "deferred") : "all";
  const whole = scope === "all";
  const basis = `${search.deferred} ${search.all} ${search.cut}`;
  const { ranked, terms } = useRanked(query, whole, basis);
  const input = useRef<HTMLInputElement>(null);
  const focus = request.focus.value;
  useEffect(() => {
    if (focus) input.current?.focus();
  }, [focus]);
  const [returned, below] = ranked ? splitHits(ranked) : [[], []];
  const row = (hit: Hit) => (
    <HitRow
      key={hit.wire_name}
      hit={hit}
      why={<Explanation testid="why-text" query={query} name={hit.wire_name} whole={whole} basis={basis} />}
      terms={terms[hit.wire_name]}
      onOpen={onOpen}
    />
  );
  return (
    <div class="cmn-search" data-testid="search">
      <div class="cmn-row">
        <input
          ref={input}
          type="search"
          class="cmn-grow"
          placeholder="Search as the model would"
          aria-label="Search as the model would"
          autocomplete="off"
          data-testid="query"
          value={query}
          onInput={(event) => (request.query.value = event.currentTarget.value)}
          onKeyDown={(event) => clearOnEscape(event, request)}
        />
        <select
          aria-label="Search in"
          data-testid="scope"
          value={scope}
          onChange={(event) => (request.scope.value = event.currentTarget.value as "deferred" | "all")}
        >
          {search.deferred > 0 && <option value="deferred">{`deferred tools (${number.format(search.deferred)})`}</option>}
          <option value="all">{`every tool (${number.format(search.all)})`}</option>
        </select>
      </div>
      <p class="cmn-quiet" role="status" data-testid="found">
        {ranked && summaryOf(ranked)}
      </p>
      <ol class="cmn-hits" data-testid="hits">
        {returned.map(row)}
        {below.length > 0 && (
          <li class="cmn-cut" key="cut" data-testid="cut">
            The model does not see results below this line
          </li>
        )}
        {below.map(row)}
      </ol>
      <WhyNot request={request} whole={whole} basis={basis} />
    </div>
  );
}

function clearOnEscape(event: KeyboardEvent, request: SearchRequest): void {
  if (event.key !== "Escape" || !request.query.value) return;
  event.preventDefault();
  event.stopPropagation();
  request.query.value = "";
}

/** Explains the rank of any tool, found or not. */
function WhyNot({ request, whole, basis }: { request: SearchRequest; whole: boolean; basis: string }) {
  const bridge = useBridge<ExplorerState>();
  const explained = request.explained.value;
  const query = request.query.value;
  const [name, setName] = useState(explained);
  useEffect(() => setName(explained), [explained]);
  const onSubmit = (event: Event) => {
    event.preventDefault();
    bridge.error.value = null;
    request.explained.value = name.trim();
  };
  return (
    <div class="cmn-why-not">
      <form class="cmn-row cmn-low" onSubmit={onSubmit}>
        <label class="cmn-field cmn-grow">
          <span class="cmn-quiet">Why wasn't this tool found?</span>
          <input
            type="text"
            class="cmn-mono"
            placeholder="server:tool"
            autocomplete="off"
            data-testid="why-not-name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <Button testid="why-not-ask" type="submit">
          Explain
        </Button>
      </form>
      {explained && !query.trim() && (
        <p class="cmn-quiet" data-testid="why-not-hint">
          Search as the model would. The rank of <code>{explained}</code> is explained here.
        </p>
      )}
      {explained && query.trim() && <Explanation testid="why-not" query={query} name={explained} whole={whole} basis={basis} />}
    </div>
  );
}
