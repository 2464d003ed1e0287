import { Tabs } from "../lib/controls";
import { useWidgetState } from "../lib/widget";
import { ResourcesPane } from "../resources/ResourcesPane";
import { AddServer } from "./AddServer";
import { BudgetPane } from "./BudgetPane";
import { ManifestPane } from "./ManifestPane";
import { SearchPane } from "./SearchPane";
import type { ExplorerState } from "./state";
import { TasksPane } from "./TasksPane";
import { ToolPane } from "./ToolPane";
import type { TabKey, Workbench } from "./workbench";

const TABS: readonly (readonly [TabKey, string])[] = [
  ["tool", "Tool"],
  ["search", "Search"],
  ["budget", "Budget"],
  ["manifest", "Manifest"],
  ["resources", "Resources"],
];

/** The right side: tabs, each of which keeps its state, and what covers them while a server is added. */
export function Side({ bench }: { bench: Workbench }) {
  const task = bench.task.value;
  // Few sessions have tasks. It comes last, so that no tab moves.
  const hasTasks = Object.keys(useWidgetState<ExplorerState>().tasks.rows).length > 0;
  const tabs = hasTasks ? [...TABS, ["tasks", "Tasks"] as const] : TABS;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    bench.backToList();
  };
  const panel = (key: TabKey) => {
    switch (key) {
      case "tool":
        return <ToolPane bench={bench} />;
      case "search":
        return <SearchPane request={bench.search} onOpen={(hit) => bench.reveal(hit.server, hit.wire_name)} />;
      case "budget":
        return <BudgetPane shown={bench.tab.value === "budget"} />;
      case "manifest":
        return <ManifestPane />;
      case "resources":
        return <ResourcesPane shown={bench.tab.value === "resources"} />;
      case "tasks":
        return <TasksPane />;
    }
  };
  return (
    <div class="cmn-side">
      {/* biome-ignore lint/a11y/noStaticElementInteractions: keys that bubble from the controls in it */}
      <div class="cmn-side-tabs" inert={task !== null} onKeyDown={onKeyDown}>
        <Tabs
          label="About the tools"
          tabs={tabs}
          shown={bench.tab.value}
          onShow={(key) => (bench.tab.value = key)}
          panel={panel}
        />
      </div>
      {task === "add server" && <AddServer bench={bench} />}
    </div>
  );
}
