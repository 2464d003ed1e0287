import { useCallback, useEffect, useMemo } from "preact/hooks";
import { RowList, type RowProps } from "../lib/RowList";
import { useWidgetState } from "../lib/widget";
import { counted, number } from "../lib/words";
import { FailureRow } from "./FailureRow";
import { countTools, keyOfServer, type ListEntry, RowMaker } from "./rows";
import { ServerRow } from "./ServerRow";
import type { ExplorerState } from "./state";
import { ToolRow } from "./ToolRow";
import { type Choice, keyOf, type Workbench } from "./workbench";

const HEIGHTS = { server: 2.75, failure: 2.5, tool: 2.1 };

const choiceOf = (entry: ListEntry): Choice =>
  entry.kind === "tool"
    ? { kind: "tool", server: entry.server, name: entry.tool[1] }
    : { kind: "server", server: entry.server };

/** All servers and tools. */
export function ToolList({ bench }: { bench: Workbench }) {
  const { order, servers, tools, fates } = useWidgetState<ExplorerState>().selection;
  const total = useMemo(() => countTools(tools), [tools]);
  const filter = bench.filter.value;
  const by = bench.order.value;
  const isOpen = (server: string) => bench.isOpen(server, total);
  const opened = order.map(isOpen).join();
  const maker = useMemo(() => new RowMaker(), []);
  const { rows, count } = useMemo(
    () => maker.make({ order, servers, tools: tools ?? {}, fates: fates ?? {} }, { filter, order: by, isOpen }),
    // `opened` says all of `isOpen`
    [order, servers, tools, fates, filter, by, opened],
  );
  // One server at a time, so that the page stays free.
  useEffect(() => {
    const prepare = () => {
      if (maker.prepare()) timer = setTimeout(prepare);
    };
    let timer = setTimeout(prepare);
    return () => clearTimeout(timer);
  }, [maker, tools]);
  const chosen = bench.choice.value && keyOf(bench.choice.value);

  const drawRow = useCallback(
    (entry: ListEntry, props: RowProps) => {
      const shared = { bench, chosen: entry.key === chosen, props };
      switch (entry.kind) {
        case "server":
          return <ServerRow entry={entry} {...shared} />;
        case "failure":
          return <FailureRow entry={entry} {...shared} />;
        case "tool":
          return <ToolRow entry={entry} {...shared} />;
      }
    },
    [bench, chosen],
  );

  const onKey = (event: KeyboardEvent, entry: ListEntry): boolean => {
    switch (event.key) {
      case "Enter":
        bench.choose(choiceOf(entry), { focus: true });
        return true;
      case " ":
        pressControl(event.currentTarget as HTMLElement);
        return true;
      case "ArrowRight":
        if (entry.kind === "server") bench.setOpen([entry.server], true);
        return true;
      case "ArrowLeft":
        if (entry.kind === "server") bench.setOpen([entry.server], false);
        else if (by === "server") {
          bench.list.current?.focus(keyOfServer(entry.server));
          bench.choose({ kind: "server", server: entry.server });
        }
        return true;
      default:
        return false;
    }
  };

  return (
    <div class="cmn-list">
      <RowList
        rows={rows}
        label="Servers and tools"
        testid="tools"
        heightOf={(entry) => HEIGHTS[entry.kind]}
        drawRow={drawRow}
        onKey={onKey}
        onMove={(entry) => bench.choose(choiceOf(entry))}
        handle={bench.list}
      />
      <div class="cmn-quiet cmn-list-foot" role="status" data-testid="count">
        {count === total ? counted(total, "tool") : `${number.format(count)} of ${counted(total, "tool")}`}
      </div>
    </div>
  );
}

/** Change the one control of the row that has the focus: a checkbox, or the next of its modes. */
function pressControl(list: HTMLElement): void {
  const row = list.querySelector<HTMLElement>('[role="row"]:focus');
  const inputs = [...(row?.querySelectorAll<HTMLInputElement>("input") ?? [])];
  const place = inputs.findIndex((input) => input.type === "radio" && input.checked);
  inputs[(place + 1) % inputs.length]?.click();
}
