import { counted, number } from "../lib/words";
import type { BudgetState } from "./state";

/** The first request as a bar, by part, on the scale of the largest that it could be. */
export function CostBar({ budget: { now, undeferred } }: { budget: BudgetState }) {
  const most = Math.max(now.total, undeferred.total, 1);
  const tools = Object.values(now.servers).reduce((sum, each) => sum + each, 0);
  const parts = [
    ["tools", "definitions of loaded tools", tools],
    ["manifest", "manifest", now.manifest],
    ["finder", "search tool", now.finder],
  ] as const;
  const shown = parts.filter(([, , tokens]) => tokens > 0);
  const title = shown.map(([, label, tokens]) => `${label}: ${number.format(tokens)}`).join("\n");
  return (
    <span class="cmn-cost-bar" title={`${title}\nEvery tool loaded: ${counted(undeferred.total, "token")}`} aria-hidden="true">
      {shown.map(([key, , tokens]) => (
        <i key={key} data-part={key} style={{ width: `${(100 * tokens) / most}%` }} />
      ))}
    </span>
  );
}
