import { Button } from "../lib/controls";
import { number } from "../lib/words";
import { amount, duration, money, percent } from "./rows";
import type { Arm } from "./state";

interface Props {
  arms: Record<string, Arm>;
  /** The number of the arm whose cases are shown, or empty for all. */
  chosen: string;
  onChoose(arm: string): void;
}

/** A line for each arm: the share of right runs with its interval, tokens, cost and time. A click shows only its cases. */
export function ArmTable({ arms, chosen, onChoose }: Props) {
  const all = Object.entries(arms);
  const priced = all.some(([, arm]) => arm.cost !== undefined);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
    <section class="cmn-arms" aria-label="Arms" tabIndex={0} data-testid="arms">
      <table class="cmn-table">
        <thead>
          <tr>
            <th scope="col">Arm</th>
            <th scope="col" class="cmn-number">
              Runs
            </th>
            <th scope="col" class="cmn-number">
              Right
            </th>
            <th scope="col" class="cmn-interval-cell">
              95% interval
            </th>
            <th scope="col" class="cmn-number">
              Input tokens
            </th>
            {priced && (
              <th scope="col" class="cmn-number">
                Cost
              </th>
            )}
            <th scope="col" class="cmn-number cmn-time">
              Time
            </th>
          </tr>
        </thead>
        <tbody>
          {all.map(([key, arm]) => (
            <tr key={key} data-testid={`arm-${key}`}>
              <th scope="row">
                <Button
                  testid={`choose-arm-${key}`}
                  tone="quiet"
                  aria-pressed={chosen === key}
                  title={`${arm.name}: show only its cases`}
                  onClick={() => onChoose(chosen === key ? "" : key)}
                >
                  {arm.name}
                </Button>
              </th>
              <td class="cmn-number">
                {number.format(arm.made)}
                {arm.not_graded > 0 && <span class="cmn-bad">, {number.format(arm.not_graded)} not graded</span>}
                {arm.not_made > 0 && <span class="cmn-bad"> + {number.format(arm.not_made)} not made</span>}
              </td>
              <td class="cmn-number">{arm.right === undefined ? "–" : percent(arm.right)}</td>
              <td class="cmn-interval-cell">
                <IntervalBar arm={arm} />
              </td>
              <td class="cmn-number">{amount(arm.tokens, arm.origin)}</td>
              {priced && <td class="cmn-number">{arm.cost === undefined ? "–" : money(arm.cost, arm.currency)}</td>}
              <td class="cmn-number cmn-time">{arm.seconds === undefined ? "–" : duration(arm.seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function IntervalBar({ arm: { right, low, high } }: { arm: Arm }) {
  if (right === undefined || low === undefined || high === undefined) return <span class="cmn-quiet">–</span>;
  return (
    <span class="cmn-interval">
      <span class="cmn-track" aria-hidden="true">
        <i style={{ left: `${100 * low}%`, width: `${100 * (high - low)}%` }} />
        <b style={{ left: `${100 * right}%` }} />
      </span>
      <span class="cmn-quiet">
        {percent(low)} to {percent(high)}
      </span>
    </span>
  );
}
