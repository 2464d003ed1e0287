import "./limits.css";
import type { LimitsState } from "./state";

/** Each spend limit with what is used of it; nothing if there are none. */
export function SpendLimits({ limits: { used } }: { limits: LimitsState }) {
  if (used.length === 0) return null;
  return (
    <ul class="cmn-limits" aria-label="Spend limits" title="Spend limits. To change one: %mcp limit" data-testid="limits">
      {used.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}
