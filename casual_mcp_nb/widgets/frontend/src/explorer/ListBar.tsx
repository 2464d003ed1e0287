import { useMemo } from "preact/hooks";
import { Button } from "../lib/controls";
import { useWidgetState } from "../lib/widget";
import { counted } from "../lib/words";
import { countTools, type Order } from "./rows";
import type { ExplorerState } from "./state";
import type { Workbench } from "./workbench";

const ORDERS: readonly (readonly [Order, string])[] = [
  ["server", "By server"],
  ["tokens", "By tokens"],
  ["name", "By name"],
];

/** What the list shows, and in which order. */
export function ListBar({ bench }: { bench: Workbench }) {
  const { order, tools } = useWidgetState<ExplorerState>().selection;
  const total = useMemo(() => countTools(tools), [tools]);
  const anyOpen = order.some((server) => bench.isOpen(server, total));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") bench.list.current?.focus();
    else if (event.key === "Escape" && bench.filter.value) bench.filter.value = "";
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <span class="cmn-row cmn-list-bar">
      <input
        type="search"
        class="cmn-filter"
        placeholder={`Filter ${counted(total, "tool")}  /`}
        aria-label="Filter tools"
        autocomplete="off"
        data-testid="filter"
        value={bench.filter.value}
        onInput={(event) => (bench.filter.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <select
        aria-label="Order"
        data-testid="sort"
        value={bench.order.value}
        onChange={(event) => (bench.order.value = event.currentTarget.value as Order)}
      >
        {ORDERS.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <Button
        testid="fold-all"
        tone="quiet"
        disabled={bench.order.value !== "server"}
        onClick={() => bench.setOpen(order, !anyOpen)}
      >
        {anyOpen ? "Collapse all" : "Expand all"}
      </Button>
    </span>
  );
}
