import { useEffect, useState } from "preact/hooks";
import { useBridge } from "../lib/widget";
import { clock } from "../lib/words";
import type { AuditRow } from "./state";

/** The calls of the session, the newest first: who made and who decided about each, and how it ended. */
export function CallsSoFar({ count }: { count: number }) {
  const bridge = useBridge();
  const [rows, setRows] = useState<readonly AuditRow[]>([]);
  useEffect(() => {
    bridge.request<AuditRow[]>("conversation.audit").then(setRows, () => setRows([]));
  }, [bridge, count]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached with the Tab key
    <section class="cmn-calls-so-far" aria-label="Calls so far" tabIndex={0}>
      <table class="cmn-table" data-testid="audit">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Tool</th>
            <th scope="col">Called by</th>
            <th scope="col">Decided by</th>
            <th scope="col">Outcome</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.number} data-status={row.status}>
              <td>{clock(row.at)}</td>
              <td>
                <code>{row.tool}</code>
              </td>
              <td>{row.caller}</td>
              <td>{row.decided_by}</td>
              <td>
                {row.outcome} <span class="cmn-quiet">{row.seconds}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length < count && (
        <p class="cmn-quiet">
          The last {rows.length}; <code>session.audit</code> has them all.
        </p>
      )}
    </section>
  );
}
