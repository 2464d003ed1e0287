import { Button } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted } from "../lib/words";
import type { PanelState } from "./state";

/** The deferred tools that the conversation has loaded, each with a button that unloads it. */
export function DiscoveredTools({ busy }: { busy: boolean }) {
  const bridge = useBridge();
  const { tools, discovered } = useWidgetState<PanelState>().conversations;
  const unload = async (tool: string, index: number, list: HTMLElement | null) => {
    if ((await bridge.call("conversations.unload", { tool })) === undefined) return;
    bridge.say(`Unloaded: ${tool}`);
    const buttons = list?.querySelectorAll<HTMLElement>("button");
    buttons?.[Math.min(index, buttons.length - 1)]?.focus();
  };
  return (
    <section class="cmn-discovered" aria-label="Discovered tools">
      <p class="cmn-quiet">
        The model found these in this conversation. They are sent with every request. It can find unloaded ones again.
      </p>
      <ul data-testid="discovered-tools">
        {tools.map((tool, index) => (
          <li key={tool}>
            <code class="cmn-clip">{tool}</code>
            <Button
              testid="unload"
              tone="quiet"
              aria-label={`Unload ${tool}`}
              disabled={busy}
              onClick={(event) => unload(tool, index, event.currentTarget.closest("ul"))}
            >
              Unload
            </Button>
          </li>
        ))}
      </ul>
      {discovered > tools.length && <p class="cmn-quiet">{counted(discovered - tools.length, "tool")} more</p>}
    </section>
  );
}
