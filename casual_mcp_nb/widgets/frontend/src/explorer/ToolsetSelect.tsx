import { Button, Labelled, Select } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { number } from "../lib/words";
import { type DraftData, ToolsetDraft } from "./draft";
import type { ExplorerState, ToolSetsState } from "./state";
import type { Workbench } from "./workbench";

/** Which toolset is in use, and buttons that make the list's ticks those of this toolset, or of a new one. */
export function ToolsetSelect({ bench }: { bench: Workbench }) {
  const bridge = useBridge<ExplorerState>();
  const { tool_sets: sets, problem } = useWidgetState<ExplorerState>().selection;
  const choose = async (value: string) => {
    if (value !== "own") await bridge.call("selection.set_tool_set", { name: value === "all" ? null : value.slice(2) });
  };
  const edit = async (opener: HTMLElement, original: string) => {
    if (bench.draft.value) return;
    const data = await bridge.call<DraftData>("selection.draft");
    if (data) bench.beginEdit(new ToolsetDraft(data, original), opener);
  };
  const editing = bench.draft.value !== null;
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
      {(sets.selected !== undefined || sets.own) && (
        <Button
          testid="edit-tool-set"
          aria-disabled={editing}
          onClick={(event) => edit(event.currentTarget, sets.selected ?? "")}
        >
          Edit
        </Button>
      )}
      <Button
        testid="new-tool-set"
        aria-disabled={editing}
        title="Make a toolset: tick its tools in the list"
        onClick={(event) => edit(event.currentTarget, "")}
      >
        New
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
