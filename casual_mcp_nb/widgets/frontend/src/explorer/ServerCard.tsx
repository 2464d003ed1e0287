import { useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, tokens } from "../lib/words";
import { RemoveButton } from "./RemoveButton";
import { RestartButton } from "./RestartButton";
import { ServerLog } from "./ServerLog";
import type { ExplorerState, ServerInfo } from "./state";
import { modeHelp, STATES } from "./statuses";
import { useCardFocus } from "./useCardFocus";
import { WireView } from "./WireView";
import type { Workbench } from "./workbench";

/** The state of a server, its log, and what is done with it as a whole. */
export function ServerCard({ bench, server }: { bench: Workbench; server: string }) {
  const bridge = useBridge<ExplorerState>();
  const { servers } = useWidgetState<ExplorerState>().selection;
  const [wire, setWire] = useState(false);
  const heading = useRef<HTMLHeadingElement>(null);
  useCardFocus(bench, heading, true);
  const info = servers[server];
  if (!info) return <p class="cmn-quiet">{server} is no longer there.</p>;
  const log = bench.serverPart.value === "log";
  const included = info.inside > 0 && info.inside === info.tools;
  return (
    <section
      class="cmn-card"
      data-testid="server-card"
      data-server={server}
      data-status={info.state}
      aria-label={`Server ${server}`}
    >
      <h3 tabIndex={-1} ref={heading}>
        <code>{server}</code>
        <span class="cmn-about" data-status={info.state}>
          {STATES[info.state]}
        </span>
      </h3>
      {info.error && (
        <div class="cmn-alert-box" data-testid="server-error">
          {info.error}
          {info.tail && <pre>{info.tail.trim()}</pre>}
        </div>
      )}
      <Facts info={info} />
      <div class="cmn-row cmn-actions">
        <RestartButton server={server} />
        {info.tools > 0 && info.mode !== "off" && !bench.draft.value && (
          <Button testid="all" onClick={() => bridge.call("selection.set_tools", { server, on: !included })}>
            {included ? "Exclude every tool" : "Include every tool"}
          </Button>
        )}
        <Button
          testid="log-toggle"
          tone="quiet"
          aria-expanded={log}
          onClick={() => (bench.serverPart.value = log ? null : "log")}
        >
          Log
        </Button>
        <Button testid="wire-toggle" tone="quiet" aria-expanded={wire} onClick={() => setWire(!wire)}>
          Wire
        </Button>
        <RemoveButton bench={bench} server={server} />
      </div>
      {log && <ServerLog server={server} version={info.state} />}
      {wire && <WireView server={server} version={info.state} />}
      {info.instructions && (
        <details data-testid="instructions">
          <summary>Its instructions for the model</summary>
          <p class="cmn-said">{info.instructions}</p>
        </details>
      )}
    </section>
  );
}

function Facts({ info }: { info: ServerInfo }) {
  const facts: [string, string | undefined][] = [
    [
      "Tools",
      info.inside === info.tools ? counted(info.tools, "tool") : `${info.inside} of ${counted(info.tools, "tool")} included`,
    ],
    ["Tokens", tokens(info.tokens)],
    ["Mode", modeHelp(info)],
    ["Transport", info.transport],
    ["Protocol", info.protocol],
    ["Extensions", info.extensions],
    ["Deprecated since 2026-07-28", info.deprecated],
    ["Startup time", info.seconds],
  ];
  return (
    <dl class="cmn-about-list">
      {facts.map(
        ([name, text]) =>
          text && (
            <div key={name}>
              <dt class="cmn-quiet">{name}</dt>
              <dd>{text}</dd>
            </div>
          ),
      )}
    </dl>
  );
}
