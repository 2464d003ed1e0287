import { Button } from "../lib/controls";
import { counted, number } from "../lib/words";
import { counts, type Filter, NO_FILTER, STATES } from "./rows";
import type { RunsState } from "./state";

interface Props {
  state: RunsState["runs"];
  filter: Filter;
  onFilter(filter: Filter): void;
  /** Called when the keyboard goes on to the list. */
  onDown(): void;
}

/** Which cases are shown: by text, arm, and what has become of them. */
export function FilterBar({ state, filter, onFilter, onDown }: Props) {
  const total = Object.keys(state.rows).length;
  const outcomes = counts(state, filter.arm);
  const states: readonly string[] = STATES;
  const option = ([outcome, count]: [string, number]) => (
    <option key={outcome} value={outcome} disabled={count === 0 && outcome !== filter.outcome}>
      {`${outcome[0]?.toUpperCase()}${outcome.slice(1)} (${number.format(count)})`}
    </option>
  );
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") onDown();
    else if (event.key === "Escape" && filter.text) onFilter({ ...filter, text: "" });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="cmn-row cmn-controls">
      <input
        type="search"
        class="cmn-filter"
        placeholder={`Filter ${counted(total, "row")}  /`}
        aria-label="Filter by text"
        autocomplete="off"
        data-testid="filter"
        value={filter.text}
        onInput={(event) => onFilter({ ...filter, text: event.currentTarget.value })}
        onKeyDown={onKeyDown}
      />
      <select
        aria-label="Arm"
        data-testid="filter-arm"
        value={filter.arm}
        onChange={(event) => onFilter({ ...filter, arm: event.currentTarget.value })}
      >
        <option value="">All arms</option>
        {Object.entries(state.arms).map(([key, arm]) => (
          <option key={key} value={key}>
            {arm.name}
          </option>
        ))}
      </select>
      <select
        aria-label="Result"
        data-testid="filter-outcome"
        value={filter.outcome}
        onChange={(event) => onFilter({ ...filter, outcome: event.currentTarget.value })}
      >
        <option value="">All results</option>
        {outcomes.filter(([outcome]) => states.includes(outcome)).map(option)}
        <optgroup label="Failures">{outcomes.filter(([outcome]) => !states.includes(outcome)).map(option)}</optgroup>
      </select>
      {(filter.text || filter.arm || filter.outcome) && (
        <Button testid="filter-none" tone="quiet" onClick={() => onFilter(NO_FILTER)}>
          Show all
        </Button>
      )}
    </div>
  );
}
