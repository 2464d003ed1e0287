import { useEffect, useMemo, useRef } from "preact/hooks";
import { LargeText } from "../lib/controls";
import { isWriting } from "../lib/keys";
import { TrustCard } from "../lib/TrustCard";
import { useWidgetState } from "../lib/widget";
import { AddServerButton } from "./AddServer";
import { Discovery } from "./Discovery";
import "./explorer.css";
import { Headline } from "./Headline";
import { ListBar } from "./ListBar";
import { Side } from "./Side";
import type { ExplorerState } from "./state";
import { ToolList } from "./ToolList";
import { ToolsetEditor } from "./ToolsetEditor";
import { ToolsetSelect } from "./ToolsetSelect";
import { Workbench } from "./workbench";

/** Servers and tools on the left; on the right what is known about them and can be done. */
export function Explorer() {
  const bench = useMemo(() => new Workbench(), []);
  const state = useWidgetState<ExplorerState>();
  const element = useRef<HTMLDivElement>(null);
  useWidgetKeys(element, bench);
  return (
    <div class="cmn-explorer" ref={element}>
      <header class="cmn-row cmn-topbar">
        <strong>Explorer</strong>
        <Headline bench={bench} />
        <span class="cmn-row">
          <ToolsetSelect bench={bench} />
          <AddServerButton bench={bench} />
          <LargeText />
        </span>
      </header>
      <div class="cmn-row cmn-controls">
        <ListBar bench={bench} />
        <Discovery />
      </div>
      <TrustCard config={state.selection.unaccepted} command="selection.accept_config" />
      <div class="cmn-body">
        {bench.draft.value && <ToolsetEditor bench={bench} draft={bench.draft.value} />}
        <div class="cmn-columns">
          <ToolList bench={bench} />
          <Side bench={bench} />
        </div>
      </div>
    </div>
  );
}

/** A slash leads to the filter and an arrow to the list, also after a click beside the controls, when the root has the focus. */
function useWidgetKeys(element: { current: HTMLElement | null }, bench: Workbench) {
  useEffect(() => {
    const root = element.current?.closest<HTMLElement>(".cmn-widget");
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/" && !isWriting(event.target)) root?.querySelector<HTMLElement>("[data-testid=filter]")?.focus();
      else if (event.target === root && (event.key === "ArrowDown" || event.key === "ArrowUp")) bench.backToList();
      else return;
      event.preventDefault();
    };
    root?.addEventListener("keydown", onKeyDown);
    return () => root?.removeEventListener("keydown", onKeyDown);
  }, [element, bench]);
}
