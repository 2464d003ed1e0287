import { Tabs } from "../lib/controls";
import { ResourcesPane } from "../resources/ResourcesPane";
import { AddServer } from "./AddServer";
import { BudgetPane } from "./BudgetPane";
import { ManifestPane } from "./ManifestPane";
import { SearchPane } from "./SearchPane";
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
        return <BudgetPane />;
      case "manifest":
        return <ManifestPane />;
      case "resources":
        return <ResourcesPane shown={bench.tab.value === "resources"} />;
    }
  };
  return (
    <div class="cmn-side">
      {/* biome-ignore lint/a11y/noStaticElementInteractions: keys that bubble from the controls in it */}
      <div class="cmn-side-tabs" inert={task !== null} onKeyDown={onKeyDown}>
        <Tabs
          label="About the tools"
          tabs={TABS}
          shown={bench.tab.value}
          onShow={(key) => (bench.tab.value = key)}
          panel={panel}
        />
      </div>
      {task === "add server" && <AddServer bench={bench} />}
    </div>
  );
}
