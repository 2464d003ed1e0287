import { Button } from "../lib/controls";
import type { RowProps } from "../lib/RowList";
import { useWidgetState } from "../lib/widget";
import { Cell, Line } from "./Line";
import { RestartButton } from "./RestartButton";
import type { FailureEntry } from "./rows";
import type { ExplorerState } from "./state";
import type { Workbench } from "./workbench";

interface Props {
  bench: Workbench;
  entry: FailureEntry;
  chosen: boolean;
  props: RowProps;
}

/** Why a server failed, in one line; the whole is in its card. */
export function FailureRow({ bench, entry: { server }, props }: Props) {
  const info = useWidgetState<ExplorerState>().selection.servers[server];
  const reason = info?.error ?? "No reason was given.";
  const showLog = () => {
    bench.choose({ kind: "server", server }, { focus: true });
    bench.serverPart.value = "log";
  };
  return (
    <Line
      class="cmn-entry cmn-failure"
      aria-level={2}
      aria-label={`${server} failed: ${reason}`}
      data-testid={`failure-${server}`}
      onClick={() => bench.choose({ kind: "server", server })}
      {...props}
    >
      <Cell class="cmn-clip" title={[info?.error, info?.tail].filter(Boolean).join("\n\n")} data-testid="reason">
        {reason}
      </Cell>
      <Cell class="cmn-row cmn-nowrap" onClick={(event) => event.stopPropagation()}>
        <RestartButton key={server} server={server} tabIndex={props.tabIndex} />
        <Button testid="show-log" tone="quiet" tabIndex={props.tabIndex} aria-label={`Log of ${server}`} onClick={showLog}>
          Log
        </Button>
      </Cell>
    </Line>
  );
}
