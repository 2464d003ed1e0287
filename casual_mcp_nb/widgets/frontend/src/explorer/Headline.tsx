import { useWidgetState } from "../lib/widget";
import { compared, counted, number, signed } from "../lib/words";
import { headlineSaving } from "./budget";
import { CostBar } from "./CostBar";
import { keyOfServer } from "./rows";
import type { ExplorerState } from "./state";
import { isBroken } from "./statuses";
import type { Workbench } from "./workbench";

/** What the tool definitions cost, what deferring saves in a turn, and how many servers failed. */
export function Headline({ bench }: { bench: Workbench }) {
  const { selection } = useWidgetState<ExplorerState>();
  const { budget, order, servers } = selection;
  const failed = order.filter((name) => isBroken(servers[name]));
  const change = budget.before ? budget.now.total - budget.before.total : 0;
  const showFailed = () => {
    const server = failed[0] as string;
    bench.choose({ kind: "server", server });
    bench.list.current?.focus(keyOfServer(server));
  };
  return (
    <span class="cmn-row cmn-headline">
      <span role="status" data-testid="headline">
        Tool definitions <strong>≈ {number.format(budget.now.total)}</strong>
        {budget.undeferred.total !== budget.now.total && ` of ${number.format(budget.undeferred.total)}`} tokens
        {change !== 0 && (
          <span class="cmn-quiet" title={`Since the last change: ${compared(budget.now.total, budget.before?.total ?? 0)}`}>
            {` (${signed(change)})`}
          </span>
        )}
      </span>
      <CostBar budget={budget} />
      <span class="cmn-quiet cmn-clip" title={headlineSaving(selection)} data-testid="saving">
        {headlineSaving(selection)}
      </span>
      {failed.length > 0 && (
        <button type="button" class="cmn-link cmn-failed" data-testid="failed" onClick={showFailed}>
          {`✗ ${counted(failed.length, "server")} failed`}
        </button>
      )}
    </span>
  );
}
