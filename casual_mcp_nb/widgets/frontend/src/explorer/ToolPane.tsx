import { useEffect, useState } from "preact/hooks";
import { useBridge, useWidgetState } from "../lib/widget";
import { ServerCard } from "./ServerCard";
import type { ExplorerState, ToolDetail } from "./state";
import { ToolCard } from "./ToolCard";
import { keyOf, type Workbench } from "./workbench";

/** The card of what is chosen in the list. */
export function ToolPane({ bench }: { bench: Workbench }) {
  const bridge = useBridge<ExplorerState>();
  const choice = bench.choice.value;
  const key = choice && keyOf(choice);
  // An error is about what was chosen before.
  useEffect(() => {
    if (key) bridge.error.value = null;
  }, [bridge, key]);
  if (!choice) return <Hint />;
  if (choice.kind === "server") return <ServerCard key={choice.server} bench={bench} server={choice.server} />;
  return <ChosenTool bench={bench} server={choice.server} name={choice.name} />;
}

const KEYS = [
  ["↑ ↓", "walk through the list"],
  ["Space", "include a tool, or change a server's mode"],
  ["Enter", "go to the card, Escape goes back"],
  ["/", "filter"],
] as const;

function Hint() {
  return (
    <div class="cmn-quiet cmn-hint" data-testid="hint">
      <p>Choose a tool to see its parameters and run it, or a server to see its state and log.</p>
      <dl>
        {KEYS.map(([key, text]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function ChosenTool({ bench, server, name }: { bench: Workbench; server: string; name: string }) {
  const bridge = useBridge<ExplorerState>();
  const { tools, fates } = useWidgetState<ExplorerState>().selection;
  const [detail, setDetail] = useState<ToolDetail | null>(null);
  const [failure, setFailure] = useState("");
  const [accepted, setAccepted] = useState(0);
  const rows = tools?.[server];
  const status = fates?.[server]?.[rows?.findIndex((row) => row[1] === name) ?? -1] ?? "";
  // The card before stays until the next one is here, so that nothing flickers while the arrow keys walk.
  // The detail is read again when the tool or its change is another
  useEffect(() => {
    let wanted = true;
    bridge.request<ToolDetail>("selection.tool", { name }).then(
      (next) => {
        if (!wanted) return;
        setDetail(next);
        setFailure("");
      },
      (error: Error) => wanted && setFailure(error.message),
    );
    return () => {
      wanted = false;
    };
  }, [bridge, name, rows, status === "c", accepted]);
  if (failure) return <p class="cmn-quiet">{failure}</p>;
  if (!detail) return null;
  return (
    <ToolCard
      key={detail.wire_name}
      bench={bench}
      detail={detail}
      status={status}
      isCurrent={detail.wire_name === name}
      onAccepted={() => setAccepted((count) => count + 1)}
    />
  );
}
