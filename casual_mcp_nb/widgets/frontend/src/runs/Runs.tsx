import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Bridge } from "../lib/bridge";
import { Button, LargeText } from "../lib/controls";
import { isWriting } from "../lib/keys";
import type { RowListHandle } from "../lib/RowList";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, number, tokens } from "../lib/words";
import { ArmTable } from "./ArmTable";
import { CaseList } from "./CaseList";
import { FilterBar } from "./FilterBar";
import { RunCard } from "./RunCard";
import "./runs.css";
import { duration, EntryMaker, money, NO_FILTER } from "./rows";
import type { RunDetail, RunsState } from "./state";

/** The arms with their figures, below them the cases in each arm, and beside these the transcript of a run. */
export function Runs() {
  const bridge = useBridge<RunsState>();
  const state = useWidgetState<RunsState>().runs;
  const [filter, setFilter] = useState(NO_FILTER);
  const [shown, setShown] = useState<RunDetail | null>(null);
  const element = useRef<HTMLDivElement>(null);
  const list = useRef<RowListHandle>(null);
  const card = useRef<HTMLElement>(null);
  const maker = useMemo(() => new EntryMaker(), []);
  const entries = useMemo(() => maker.make(state, filter), [state.rows, state.arms, filter]);
  const asked = useRef("");
  const wantsFocus = useRef(false);
  useSayings(state);

  const open = async (row: string, { repeat, focus = false }: { repeat?: number; focus?: boolean } = {}) => {
    if (!state.rows[row]?.ended) return bridge.say("This run has not ended yet.");
    asked.current = row;
    const detail = await patiently(
      bridge,
      bridge.call<RunDetail>("runs.open", { row, ...(repeat !== undefined && { repeat }) }),
    );
    // Another row may have been opened meanwhile.
    if (!detail || asked.current !== row) return;
    wantsFocus.current = focus;
    setShown(detail);
  };
  useLayoutEffect(() => {
    if (wantsFocus.current) card.current?.focus({ preventScroll: true });
    wantsFocus.current = false;
  }, [shown]);
  const back = () => {
    const row = shown?.row;
    setShown(null);
    asked.current = "";
    list.current?.focus(row);
  };

  useEffect(() => {
    const root = element.current?.closest<HTMLElement>(".cmn-widget");
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/" && !isWriting(event.target)) root?.querySelector<HTMLElement>("[data-testid=filter]")?.focus();
      else if (event.target === root && (event.key === "ArrowDown" || event.key === "ArrowUp")) list.current?.focus();
      else return;
      event.preventDefault();
    };
    root?.addEventListener("keydown", onKeyDown);
    return () => root?.removeEventListener("keydown", onKeyDown);
  }, []);

  return (
    <div class="cmn-runs" ref={element}>
      <header class="cmn-row cmn-topbar">
        <strong>Tool use</strong>
        <Progress state={state} />
        <span class="cmn-row">
          {state.status === "running" && (
            <Button testid="stop" tone="danger" onClick={() => void patiently(bridge, bridge.call("runs.stop"))}>
              Stop
            </Button>
          )}
          <LargeText />
        </span>
      </header>
      {state.problem && (
        <p class="cmn-problem-line" data-testid="problem">
          {state.problem}
        </p>
      )}
      <ArmTable arms={state.arms} chosen={filter.arm} onChoose={(arm) => setFilter({ ...filter, arm })} />
      <FilterBar state={state} filter={filter} onFilter={setFilter} onDown={() => list.current?.focus()} />
      <div class="cmn-columns" data-open={shown !== null}>
        <CaseList
          entries={entries}
          state={state}
          shown={shown?.row}
          onOpen={(row) => void open(row, { focus: true })}
          onMove={(row) => shown && void open(row)}
          handle={list}
        />
        {shown && <RunCard detail={shown} card={card} onRepeat={(repeat) => open(shown.row, { repeat })} onBack={back} />}
      </div>
    </div>
  );
}

const BUSY = "The kernel answers when the cell has ended. To stop it now, interrupt the kernel: ■.";

/** Wait for an answer, and say what to do if the cell that runs keeps the kernel from giving one. */
async function patiently<T>(bridge: Bridge<RunsState>, answer: Promise<T>): Promise<T> {
  const timer = setTimeout(() => {
    bridge.error.value = BUSY;
  }, 2000);
  const result = await answer;
  clearTimeout(timer);
  if (bridge.error.value === BUSY) bridge.error.value = null;
  return result;
}

const SAID: Record<string, string> = {
  running: "▸ running",
  done: "✓ done",
  stopped: "■ stopped",
  "over budget": "■ stopped at the budget",
  failing: "✗ failed",
};

/** How far the runs are, as a bar and in words. */
function Progress({ state }: { state: RunsState["runs"] }) {
  const { status, ended, planned, reused, seconds } = state;
  const arms = Object.values(state.arms);
  const spent = arms.reduce((sum, arm) => sum + arm.all_tokens, 0);
  const cost = arms.reduce((sum, arm) => sum + (arm.all_cost ?? 0), 0);
  const origin = arms.some((arm) => arm.origin === "estimated") ? "estimated" : "reported";
  const text = [
    ended < planned ? `${number.format(ended)} of ${counted(planned, "run")}` : counted(planned, "run"),
    reused > 0 && `${number.format(reused)} made before`,
    duration(seconds),
    spent > 0 && tokens(spent, origin),
    cost > 0 && money(cost, arms.find((arm) => arm.currency)?.currency),
  ];
  return (
    <span class="cmn-progress">
      <span class="cmn-run-status" data-status={status} data-testid="run-status">
        {SAID[status]}
      </span>
      {status === "running" && (
        <progress aria-label="Runs that have ended" max={planned || 1} value={ended} data-testid="progress" />
      )}
      <span class="cmn-quiet" data-testid="figures">
        {text.filter(Boolean).join(" · ")}
      </span>
    </span>
  );
}

/** Say the beginning of each fifth, and the end, for a person who does not see it. */
function useSayings({ status, ended, planned }: RunsState["runs"]) {
  const bridge = useBridge<RunsState>();
  const fifth = planned ? Math.floor((5 * ended) / planned) : 0;
  const before = useRef({ status, fifth });
  useEffect(() => {
    const { status: was, fifth: at } = before.current;
    before.current = { status, fifth };
    if (was === status && at === fifth) return;
    bridge.say(`${number.format(ended)} of ${counted(planned, "run")}${status === "running" ? "" : `, ${status}`}.`);
  }, [status, fifth]);
}
