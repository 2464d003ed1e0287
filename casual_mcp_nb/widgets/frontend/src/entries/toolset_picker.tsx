import { useRef, useState } from "preact/hooks";
import "../explorer/parts.css";
import type { ExplorerState } from "../explorer/state";
import { ToolsetEditor } from "../explorer/ToolsetEditor";
import { descriptionOf, ToolsetSelect } from "../explorer/ToolsetSelect";
import { useWidgetState, widget } from "../lib/widget";

function ToolsetPicker() {
  const { tool_sets: sets } = useWidgetState<ExplorerState>().selection;
  const [editing, setEditing] = useState(false);
  const opener = useRef<HTMLElement | null>(null);
  const edit = (button: HTMLElement) => {
    opener.current = button;
    setEditing(true);
  };
  const close = () => {
    setEditing(false);
    opener.current?.focus();
  };
  return (
    <>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a line of controls */}
      <div class="cmn-row" role="group" aria-label="Toolset">
        <ToolsetSelect onEdit={edit} />
        <span class="cmn-quiet" data-testid="tool-set-about">
          {descriptionOf(sets)}
        </span>
      </div>
      {editing && <ToolsetEditor onClose={close} />}
    </>
  );
}

export default widget("Toolset picker", ToolsetPicker);
