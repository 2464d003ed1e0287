import type { Ref } from "preact";
import { useCallback, useMemo, useRef } from "preact/hooks";
import { Cell, Line } from "../explorer/Line";
import { RowList, type RowListHandle, type RowProps } from "../lib/RowList";
import { counted, number } from "../lib/words";
import { amount, type CaseEntry, duration, type Mark, markOf, money, words } from "./rows";
import type { RunsState } from "./state";

const SIGNS: Record<Mark, string> = {
  right: "✓",
  part: "◐",
  wrong: "✗",
  "not judged": "?",
  "not made": "!",
  running: "▸",
  waiting: "…",
};

interface Props {
  entries: CaseEntry[];
  state: RunsState["runs"];
  /** The key of the row whose run is shown. */
  shown: string | undefined;
  onOpen(row: string): void;
  onMove(row: string): void;
  handle: Ref<RowListHandle>;
}

/** The cases in each arm, with what has become of their runs. */
export function CaseList({ entries, state, shown, onOpen, onMove, handle }: Props) {
  const total = Object.keys(state.rows).length;
  const names = Object.values(state.arms)
    .map((arm) => arm.name)
    .join("\n");
  const currency = Object.values(state.arms).find((arm) => arm.currency)?.currency;
  const arms = useMemo(() => names.split("\n"), [names]);
  // Rows are drawn again only when what they show changes.
  const opens = useRef(onOpen);
  opens.current = onOpen;
  const drawRow = useCallback(
    (entry: CaseEntry, props: RowProps) => (
      <CaseLine
        entry={entry}
        arm={arms[entry.row.arm] ?? ""}
        currency={currency}
        open={entry.key === shown}
        onOpen={(row) => opens.current(row)}
        props={props}
      />
    ),
    [arms, currency, shown],
  );
  const onKey = (event: KeyboardEvent, entry: CaseEntry): boolean => {
    if (event.key !== "Enter" && event.key !== "ArrowRight") return false;
    onOpen(entry.key);
    return true;
  };
  return (
    <div class="cmn-list">
      {entries.length === 0 && <p class="cmn-quiet cmn-none">No run is like that.</p>}
      <RowList
        rows={entries}
        label="Cases by arm"
        testid="cases"
        heightOf={() => 2.1}
        drawRow={drawRow}
        onKey={onKey}
        onMove={(entry) => onMove(entry.key)}
        handle={handle}
      />
      <div class="cmn-quiet cmn-list-foot" role="status" data-testid="count">
        {entries.length === total ? counted(total, "row") : `${number.format(entries.length)} of ${counted(total, "row")}`}
        <span class="cmn-keys">↑↓ move · Enter opens · Esc back · / filters</span>
      </div>
    </div>
  );
}

interface LineProps {
  entry: CaseEntry;
  arm: string;
  currency: string | undefined;
  open: boolean;
  onOpen(row: string): void;
  props: RowProps;
}

function CaseLine({ entry: { key, row }, arm, currency, open, onOpen, props }: LineProps) {
  const mark = markOf(row);
  const said = words(row);
  return (
    <Line
      class="cmn-entry cmn-case"
      aria-level={1}
      aria-selected={open}
      aria-label={`${row.case}, ${arm}, ${said.replace("/", " of ")}`}
      data-testid={`case-${key}`}
      data-mark={mark}
      onClick={() => onOpen(key)}
      {...props}
    >
      <Cell class="cmn-sign" aria-hidden="true">
        {SIGNS[mark]}
      </Cell>
      <Cell class="cmn-clip" title={row.message || row.case}>
        {row.case}
      </Cell>
      <Cell class="cmn-clip cmn-quiet" title={arm}>
        {arm}
      </Cell>
      <Cell class="cmn-clip cmn-outcome" title={row.detail || said}>
        {said}
      </Cell>
      <Cell class="cmn-number cmn-quiet cmn-wide-only">{row.ended ? amount(row.tokens, row.origin) : ""}</Cell>
      <Cell class="cmn-number cmn-quiet cmn-wide-only">
        {row.cost !== undefined ? money(row.cost, currency) : row.seconds !== undefined ? duration(row.seconds) : ""}
      </Cell>
    </Line>
  );
}
