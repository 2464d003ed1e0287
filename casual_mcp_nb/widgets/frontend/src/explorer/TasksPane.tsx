import { useState } from "preact/hooks";
import { BreakableName, Button } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge, useWidgetState } from "../lib/widget";
import type { ExplorerState, TaskRow } from "./state";

/** The tasks, with what can be done about each: cancel it while it runs, and read its result. */
export function TasksPane() {
  const bridge = useBridge();
  const { tasks } = useWidgetState<ExplorerState>();
  const [result, setResult] = useState<{ number: string; html: string } | null>(null);
  const read = async (number: string) => {
    const html = await bridge.call<string>("tasks.result", { number: Number(number) });
    if (html !== undefined) setResult({ number, html });
  };
  return (
    <div data-testid="tasks">
      <div class="cmn-scroll">
        <table class="cmn-table">
          <thead>
            <tr>
              <th scope="col">Tool</th>
              <th scope="col">State</th>
              <th scope="col">Progress</th>
              <th scope="col" class="cmn-number">
                Age
              </th>
              <th scope="col">
                <span class="cmn-quiet">Result</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(tasks.rows).map(([number, row]) => (
              <Row key={number} number={number} row={row} onRead={() => read(number)} />
            ))}
          </tbody>
        </table>
      </div>
      {tasks.more && <p class="cmn-quiet">{tasks.more}</p>}
      <p class="cmn-quiet" role="status" data-testid="tasks-note">
        {tasks.note}
      </p>
      {tasks.how_to_answer && <p class="cmn-quiet">{tasks.how_to_answer}</p>}
      {result && (
        <section class="cmn-outcome" aria-label={`Result of task ${result.number}`} data-testid="task-result">
          <Drawn html={result.html} />
        </section>
      )}
    </div>
  );
}

function Row({ number, row, onRead }: { number: string; row: TaskRow; onRead(): void }) {
  const bridge = useBridge();
  return (
    <tr data-testid={`task-${number}`} data-status={row.status}>
      <th scope="row">
        <code>
          <BreakableName text={row.tool} />
        </code>
      </th>
      <td data-testid="task-state">{row.state}</td>
      <td data-testid="task-progress">{row.progress}</td>
      <td class="cmn-number">{row.age}</td>
      <td>
        {row.status === "completed" && (
          <Button testid="task-read" tone="quiet" aria-label={`Show the result of task ${number}`} onClick={onRead}>
            Show
          </Button>
        )}
        {!row.over && (
          <Button
            testid="task-cancel"
            tone="quiet"
            aria-label={`Cancel task ${number}`}
            onClick={() => bridge.call("tasks.cancel", { number: Number(number) })}
          >
            Cancel
          </Button>
        )}
      </td>
    </tr>
  );
}
