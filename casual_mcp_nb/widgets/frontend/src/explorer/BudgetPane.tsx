import { useWidgetState } from "../lib/widget";
import { number } from "../lib/words";
import { SpendLimits } from "../tokens/SpendLimits";
import { type BudgetRow, partRows, verdict, wholeRows } from "./budget";
import type { ExplorerState } from "./state";
import { UnusedTools } from "./UnusedTools";

/** What requests and turns cost: now, before the last change, and if every tool were loaded. */
export function BudgetPane({ shown }: { shown: boolean }) {
  const { selection, limits } = useWidgetState<ExplorerState>();
  const { budget, order } = selection;
  const changed = budget.before !== undefined;
  return (
    <div data-testid="budget">
      <div role="status" data-testid="spend">
        {limits.used.length > 0 && <span class="cmn-quiet">Spend limits</span>}
        <SpendLimits limits={limits} />
      </div>
      <table class="cmn-table cmn-budget" data-testid="budget-table">
        <caption class="cmn-visually-hidden">Estimated tokens</caption>
        <Head first="" changed={changed} />
        <tbody>
          {wholeRows(budget).map((row) => (
            <Row key={row.key} row={row} changed={changed} isMain={row.key === "all"} />
          ))}
        </tbody>
      </table>
      <p data-testid="verdict">{verdict(selection)}</p>
      <UnusedTools shown={shown} />
      <table class="cmn-table cmn-budget" data-testid="parts-table">
        <caption class="cmn-visually-hidden">The tool definitions by part, in estimated tokens</caption>
        <Head first="Tool definitions by part" changed={changed} />
        <tbody>
          {partRows(budget, order).map((row) => (
            <Row key={row.key} row={row} changed={changed} />
          ))}
        </tbody>
      </table>
      <p class="cmn-quiet">All numbers are estimated tokens.</p>
    </div>
  );
}

function Head({ first, changed }: { first: string; changed: boolean }) {
  return (
    <thead>
      <tr>
        {first ? <th scope="col">{first}</th> : <td />}
        <th scope="col" class="cmn-number">
          Now
        </th>
        {changed && (
          <th scope="col" class="cmn-number">
            Before
          </th>
        )}
        <th scope="col" class="cmn-number">
          Every tool loaded
        </th>
      </tr>
    </thead>
  );
}

function Row({ row, changed, isMain = false }: { row: BudgetRow; changed: boolean; isMain?: boolean }) {
  const cell = (kind: "now" | "before" | "undeferred") => (
    <td class={`cmn-number ${kind === "now" ? "" : "cmn-quiet"}`} data-testid={`${kind}-${row.key}`}>
      {row[kind] === undefined ? "" : number.format(row[kind])}
    </td>
  );
  return (
    <tr class={isMain ? "cmn-main" : ""}>
      <th scope="row">{row.label}</th>
      {cell("now")}
      {changed && cell("before")}
      {cell("undeferred")}
    </tr>
  );
}
