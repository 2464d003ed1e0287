import { useMemo } from "preact/hooks";
import "../explorer/explorer.css";
import { ListBar } from "../explorer/ListBar";
import type { ExplorerState } from "../explorer/state";
import { ToolList } from "../explorer/ToolList";
import { ToolsetEditor } from "../explorer/ToolsetEditor";
import { descriptionOf, ToolsetSelect } from "../explorer/ToolsetSelect";
import { Workbench } from "../explorer/workbench";
import { useWidgetState, widget } from "../lib/widget";

function ToolsetPicker() {
  const { tool_sets: sets } = useWidgetState<ExplorerState>().selection;
  const bench = useMemo(() => new Workbench(), []);
  return (
    <>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a line of controls */}
      <div class="cmn-row" role="group" aria-label="Toolset">
        <ToolsetSelect bench={bench} />
        <span class="cmn-quiet" data-testid="tool-set-about">
          {descriptionOf(sets)}
        </span>
      </div>
      {bench.draft.value && (
        <div class="cmn-explorer cmn-picker">
          <ToolsetEditor bench={bench} draft={bench.draft.value} />
          <div class="cmn-row cmn-controls">
            <ListBar bench={bench} />
          </div>
          <ToolList bench={bench} />
        </div>
      )}
    </>
  );
}

export default widget("Toolset picker", ToolsetPicker);
