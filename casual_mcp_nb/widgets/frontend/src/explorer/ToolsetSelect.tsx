import { Button, Labelled, Select } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { number } from "../lib/words";
import type { ExplorerState, ToolSetsState } from "./state";

/** Which toolset is in use, and a button to edit it. */
export function ToolsetSelect({ onEdit }: { onEdit(opener: HTMLElement): void }) {
  const bridge = useBridge<ExplorerState>();
  const { tool_sets: sets, problem } = useWidgetState<ExplorerState>().selection;
  const choose = async (value: string) => {
    if (value !== "own") await bridge.call("selection.set_tool_set", { name: value === "all" ? null : value.slice(2) });
  };
  return (
    <>
      <Labelled text="Toolset" title={problem ?? descriptionOf(sets)}>
        <Select testid="tool-set" label="Toolset" value={chosenOf(sets)} options={optionsOf(sets)} onChoose={choose} />
      </Labelled>
      {problem && (
        <span class="cmn-problem" data-testid="tool-set-problem">
          ⚠ {problem}
        </span>
      )}
      <Button testid="edit-tool-set" onClick={(event) => onEdit(event.currentTarget)}>
        Edit…
      </Button>
    </>
  );
}

/** What the toolset that is in use is for. */
export function descriptionOf(sets: ToolSetsState): string {
  return (sets.own ?? sets.known[sets.selected ?? ""])?.description ?? "";
}

function chosenOf({ own, selected }: ToolSetsState): string {
  if (own) return "own";
  return selected === undefined ? "all" : `n:${selected}`;
}

function optionsOf({ order, known, own, selected }: ToolSetsState): [string, string][] {
  const options: [string, string][] = [["all", "All tools"]];
  options.push(...order.map((name): [string, string] => [`n:${name}`, `${name} (${number.format(known[name]?.size ?? 0)})`]));
  if (own) options.push(["own", "Custom (unsaved)"]);
  if (selected !== undefined && !known[selected]) options.push([`n:${selected}`, `${selected} (missing)`]);
  return options;
}
