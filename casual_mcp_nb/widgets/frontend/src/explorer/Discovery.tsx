import { useState } from "preact/hooks";
import { Checkbox, Labelled, Select } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { Popover } from "./Popover";
import type { ExplorerState } from "./state";

const DISCOVERY = [
  ["true", "on"],
  ["auto", "auto"],
  ["false", "off"],
] as const;
const STRATEGIES = [
  ["search", "search"],
  ["browse", "browsing"],
] as const;
const DELIVERIES = [
  ["auto", "its provider, if it can"],
  ["definitions", "more definitions"],
  ["native", "its provider"],
  ["bridge", "call_tool"],
  ["code", "programs"],
] as const;
/** The option that matters most for each strategy; the others are one click away. */
const MAIN = { search: "max_search_results", browse: "max_active_tools" };

/** How the model finds deferred tools, and how much of them. */
export function Discovery() {
  const bridge = useBridge<ExplorerState>();
  const { options, limits } = useWidgetState<ExplorerState>().selection;
  const set = (name: string, value: unknown) => bridge.call("selection.set_option", { name, value });
  const main = MAIN[options.strategy];
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a line of controls
    <span class="cmn-row cmn-discovery" role="group" aria-label="How the model finds tools" data-testid="choices">
      <Labelled
        text="Discovery"
        title={
          "Off: nothing is deferred, and every tool that is not off is sent with every request. " +
          `Auto: on when tools take over ${options.auto_threshold}% of the model's context window.`
        }
      >
        <Select
          testid="discovery"
          label="Discovery"
          value={String(options.discovery)}
          options={DISCOVERY}
          onChoose={(value) => bridge.call("selection.set_discovery", { on: value === "auto" ? value : value === "true" })}
        />
      </Labelled>
      <span>by</span>
      <Select
        testid="strategy"
        label="How the model finds tools"
        value={options.strategy}
        disabled={!options.discovery}
        options={STRATEGIES}
        onChoose={(value) => set("strategy", value)}
      />
      <Limit name={main} />
      <Popover label="More" testid="more-options">
        <Checkbox
          testid="defer-all"
          text="Defer every server"
          title="Loaded servers count as deferred too."
          checked={options.defer_all}
          disabled={!options.discovery}
          onChoose={(value) => set("defer_all", value)}
        />
        <Labelled
          text="Search results are delivered by"
          title="With its provider or call_tool, the tools of a request stay the same, so the prompt cache holds."
        >
          <Select
            testid="delivery"
            label="Delivery of search results"
            value={options.delivery}
            disabled={!options.discovery}
            options={DELIVERIES}
            onChoose={(value) => set("delivery", value)}
          />
        </Labelled>
        {Object.keys(limits)
          .filter((name) => name !== main)
          .map((name) => (
            <Limit key={name} name={name} />
          ))}
      </Popover>
    </span>
  );
}

/** One of the options that are numbers. */
function Limit({ name }: { name: string }) {
  const bridge = useBridge<ExplorerState>();
  const { options, limits } = useWidgetState<ExplorerState>().selection;
  /** What is being written; null where the option is shown as it is. */
  const [draft, setDraft] = useState<string | null>(null);
  const send = async (text: string) => {
    await bridge.call("selection.set_option", { name, value: Math.trunc(Number(text)) || 0 });
    setDraft(null);
  };
  const limit = limits[name];
  if (!limit) return null;
  return (
    <Labelled text={limit.label} title={limit.help}>
      <input
        type="number"
        min="1"
        step="1"
        class="cmn-short"
        data-testid={name}
        disabled={!options.discovery}
        value={draft ?? String(options[name])}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={(event) => send(event.currentTarget.value)}
      />
    </Labelled>
  );
}
