import { useWidgetState } from "../lib/widget";
import { number, tokens } from "../lib/words";
import { RestartButton } from "./RestartButton";
import { ModeSegments } from "./ServerRow";
import type { ExplorerState, ServerInfo } from "./state";
import { STATES } from "./statuses";

/** All servers without their tools: state, tokens, and what the model sees. */
export function ServerTable() {
  const { order, servers, budget } = useWidgetState<ExplorerState>().selection;
  return (
    <>
      <div class="cmn-scroll">
        <table class="cmn-table" data-testid="servers">
          <thead>
            <tr>
              <th scope="col">Server</th>
              <th scope="col">State</th>
              <th scope="col" class="cmn-number cmn-spare">
                Tools
              </th>
              <th scope="col" class="cmn-number">
                Tokens
              </th>
              <th scope="col">The model sees it</th>
            </tr>
          </thead>
          <tbody>{order.map((name) => servers[name] && <Row key={name} name={name} info={servers[name]} />)}</tbody>
        </table>
      </div>
      <span class="cmn-quiet" role="status" data-testid="price-line">
        Tool definitions {tokens(budget.now.total)}
      </span>
    </>
  );
}

function Row({ name, info }: { name: string; info: ServerInfo }) {
  return (
    <tr data-testid={`server-${name}`} data-status={info.state} data-mode={info.mode}>
      <th scope="row">
        <code>{name}</code>
      </th>
      <td>
        <span class="cmn-state" data-testid="state" data-status={info.state}>
          {STATES[info.state]}
        </span>
        {info.error && (
          <span class="cmn-row" data-testid="reason" title={info.tail}>
            {info.error} <RestartButton server={name} />
          </span>
        )}
      </td>
      <td class="cmn-number cmn-spare">
        {info.inside === info.tools
          ? number.format(info.tools)
          : `${number.format(info.inside)} of ${number.format(info.tools)}`}
      </td>
      <td class="cmn-number" data-testid="price">
        {number.format(info.tokens)}
      </td>
      <td>
        <ModeSegments server={name} />
      </td>
    </tr>
  );
}
