import { useRef, useState } from "preact/hooks";
import { BreakableName, Button, CopyButton, Verbatim } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge, useWidgetState } from "../lib/widget";
import { tokens } from "../lib/words";
import { ChangeBox } from "./ChangeBox";
import { EarlierCalls } from "./EarlierCalls";
import { MessageList } from "./MessageList";
import { ParameterTable } from "./ParameterTable";
import type { CallResult, ExplorerState, Field, ToolDetail } from "./state";
import { statusOf } from "./statuses";
import { useCardFocus } from "./useCardFocus";
import type { Trial, Workbench } from "./workbench";

interface Props {
  bench: Workbench;
  detail: ToolDetail;
  /** The letter of its status. */
  status: string;
  /** Whether it is the card of the present choice, and not of the one before. */
  isCurrent: boolean;
  onAccepted(): void;
}

/** All that is known about one tool, and a form to run it. */
export function ToolCard({ bench, detail, status, isCurrent, onAccepted }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useCardFocus(bench, heading, isCurrent);
  const { included, word, why } = statusOf(status);
  // While a toolset is edited, the list says what is in that one.
  const outside = status && !included && !bench.draft.value;
  return (
    <section class="cmn-card" data-testid="card" data-tool={detail.wire_name} aria-label={`Tool ${detail.name}`}>
      <h3 tabIndex={-1} ref={heading}>
        <code>
          <BreakableName text={`${detail.server}:${detail.name}`} />
        </code>
        <span class="cmn-quiet cmn-about">
          {[tokens(detail.tokens), ...detail.badges.filter((claim) => claim !== "destructive" && claim !== "app")].join(" · ")}
        </span>
        {detail.badges.includes("app") && (
          <span class="cmn-tag" title="Its server shows its results in an app: session.tools.app(…)">
            app
          </span>
        )}
        {detail.destructive && (
          <span class="cmn-tag" data-tone="bad">
            destructive
          </span>
        )}
        {outside && <span class="cmn-tag">{word}</span>}
      </h3>
      {outside && <p class="cmn-quiet">{why}</p>}
      {detail.change && <ChangeBox name={detail.wire_name} change={detail.change} onAccepted={onAccepted} />}
      {detail.title && wordsOf(detail.title) !== wordsOf(detail.name) && <p class="cmn-quiet">{detail.title}</p>}
      <p class="cmn-said" data-testid="description">
        {detail.description || "The server gives no description."}
      </p>
      {detail.headers && (
        <p class="cmn-quiet" data-testid="tool-headers">
          In HTTP headers too: {detail.headers}
        </p>
      )}
      <TryIt bench={bench} detail={detail} />
    </section>
  );
}

/** A title that only says the name in other letters says nothing. */
const wordsOf = (text: string) => text.toLowerCase().replace(/[_\-\s]+/g, " ");

function trialOf(bench: Workbench, name: string): Trial {
  const trial = bench.trials.get(name) ?? { values: {} };
  bench.trials.set(name, trial);
  return trial;
}

/** Only a text that was typed and deleted again is meant to be empty. */
function isMissing(field: Field, value: string | undefined): boolean {
  return field.kind === "string" ? value === undefined : !value;
}

function TryIt({ bench, detail }: { bench: Workbench; detail: ToolDetail }) {
  const name = detail.wire_name;
  const bridge = useBridge<ExplorerState>();
  const count = useWidgetState<ExplorerState>().selection.calls?.[name] ?? 0;
  const trial = trialOf(bench, name);
  const [values, setValues] = useState(trial.values);
  const [result, setResult] = useState(trial.result);
  const [running, setRunning] = useState(false);
  const [shown, setShown] = useState<"schema" | "messages" | null>(null);
  const form = useRef<HTMLFormElement>(null);

  const write = (field: string, text: string) => {
    trial.values = { ...trial.values, [field]: text };
    setValues(trial.values);
  };
  const show = (next: NonNullable<Trial["result"]>) => {
    trial.result = next;
    setResult(next);
  };
  const toggle = (part: "schema" | "messages") => setShown((before) => (before === part ? null : part));
  const run = async () => {
    if (running) return;
    const missing = detail.fields.find((field) => field.required && isMissing(field, values[field.name]));
    if (missing) {
      bridge.error.value = `${missing.name} is required.`;
      form.current?.querySelector<HTMLElement>(`[data-testid="field-${CSS.escape(missing.name)}"]`)?.focus();
      return;
    }
    setRunning(true);
    const filled = Object.fromEntries(detail.fields.map((field) => [field.name, values[field.name] ?? ""]));
    const answer = await bridge.call<CallResult>("selection.try_tool", { name, filled });
    setRunning(false);
    if (!answer) return;
    show({ ...answer, title: "Last run" });
    bridge.say(`${detail.name}: ${answer.status}`);
  };

  return (
    <form
      ref={form}
      noValidate
      data-testid="try"
      onSubmit={(event) => {
        event.preventDefault();
        void run();
      }}
    >
      <ParameterTable fields={detail.fields} values={values} onWrite={write} />
      <div class="cmn-row cmn-actions">
        <Button testid="call" tone="primary" type="submit" aria-disabled={running}>
          {running ? "Running …" : "Run"}
        </Button>
        <CopyButton testid="copy-python" text={() => bridge.call<string>("selection.code_of", { name, filled: values })}>
          Copy as Python
        </CopyButton>
        <Button testid="schema-toggle" tone="quiet" aria-expanded={shown === "schema"} onClick={() => toggle("schema")}>
          Schema
        </Button>
        <Button testid="messages-toggle" tone="quiet" aria-expanded={shown === "messages"} onClick={() => toggle("messages")}>
          Messages
        </Button>
        <button type="button" class="cmn-link" data-testid="why" onClick={() => bench.explain(name)}>
          Explain its search rank
        </button>
      </div>
      {detail.destructive && <p class="cmn-quiet">This tool can delete or overwrite data. It runs as soon as you click.</p>}
      {shown === "schema" && <Schemas detail={detail} />}
      {shown === "messages" && <MessageList server={detail.server} tool={name} version={count} />}
      {result && (
        // biome-ignore lint/a11y/useSemanticElements: its name says what it is
        <div class="cmn-outcome" role="region" aria-label="Result" data-testid="result" data-status={result.status}>
          <p class="cmn-quiet">{result.title}</p>
          <Drawn html={result.html} />
        </div>
      )}
      <EarlierCalls name={name} count={count} shown={result?.id} onShow={show} />
    </form>
  );
}

function Schemas({ detail }: { detail: ToolDetail }) {
  return (
    <div data-testid="schema">
      <Verbatim label="Schema of the parameters" testid="schema-text" text={detail.schema} />
      {detail.result_schema && (
        <>
          <p class="cmn-quiet">Its result</p>
          <Verbatim label="Schema of the result" testid="result-schema" text={detail.result_schema} />
        </>
      )}
    </div>
  );
}
