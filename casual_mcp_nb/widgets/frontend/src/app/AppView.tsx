import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import "./app.css";
import { Button, Verbatim } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { counted } from "../lib/words";
import { AppHost } from "./host";
import type { AppQuestion, AppRow, AppsState, Ask, LogEntry, Phase } from "./state";
import { followTheme, themeOf, variablesOf } from "./theme";

const WORDS: Record<Phase, string> = {
  loading: "▸ loading",
  starting: "▸ starting",
  shown: "✓ shown",
  failed: "✗ not shown",
  stopped: "✗ not shown",
  closed: "■ closed",
};

interface Props {
  app: string;
  row: AppRow;
  seconds: number;
  /** Whether it opens by itself. */
  open?: boolean;
  /** A panel asks the questions about calls itself. */
  inPanel?: boolean;
}

/** An app in its frame, with what it asks and says around it. */
export function AppView({ app, row, seconds, open = true, inPanel = false }: Props) {
  const bridge = useBridge<AppsState>();
  const [runs, setRuns] = useState(open && !row.reopened && row.status !== "closed" ? 1 : 0);
  const [listed, setListed] = useState(false);
  const element = useRef<HTMLElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const host = useMemo(
    () =>
      new AppHost({
        title: row.tool,
        seconds,
        call: (command, args = {}) => bridge.request(`apps.${command}`, { app, ...args }),
        theme: () => themeOf(element.current),
        variables: () => variablesOf(element.current),
      }),
    [app, runs],
  );
  useEffect(() => {
    if (!runs || !place.current) return;
    void host.open(place.current);
    const unfollow = followTheme(element.current, () => host.themeChanged());
    return () => {
      unfollow();
      host.dispose();
    };
  }, [host]);
  useEffect(() => host.deliver(row.sent), [host, row.sent]);
  useEffect(() => {
    if (row.status === "closed" && runs) void host.close("The app was closed.");
  }, [host, row.status]);
  const mode = host.mode.value;
  useEffect(() => {
    const box = element.current;
    if (!box || mode === "inline") return;
    // The top layer is over everything, wherever the notebook has its cells, and nothing is moved, so the page goes on.
    box.setAttribute("popover", "manual");
    box.showPopover?.();
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && host.setMode("inline");
    // The notebook behind it is out of sight, so the focus comes back from there to the bar.
    const onFocus = (event: FocusEvent) => {
      if (!box.contains(event.target as Node)) box.querySelector<HTMLElement>(":scope > .cmn-app-bar button")?.focus();
    };
    window.addEventListener("keydown", onKey, true);
    document.addEventListener("focusin", onFocus);
    return () => {
      window.removeEventListener("keydown", onKey, true);
      document.removeEventListener("focusin", onFocus);
      box.hidePopover?.();
      box.removeAttribute("popover");
    };
  }, [mode]);

  const phase = runs ? host.phase.value : "closed";
  const questions = Object.entries(row.questions).sort(([, one], [, other]) => one.order - other.order);
  const [first] = inPanel ? [] : questions;
  const isOver = phase === "closed" || phase === "stopped";
  return (
    <section
      ref={element}
      class="cmn-app"
      aria-label={`App of ${row.tool}`}
      data-testid="app-view"
      data-app={app}
      data-status={phase}
      data-mode={mode}
    >
      <div class="cmn-app-bar">
        <code class="cmn-grow" data-testid="app-tool" title={row.title}>
          {row.tool}
        </code>
        <span class="cmn-quiet" data-testid="app-status">
          {runs ? WORDS[phase] : row.obstacle ? WORDS.stopped : "○ not opened"}
        </span>
        <Button testid="app-messages" tone="quiet" aria-expanded={listed} onClick={() => setListed(!listed)}>
          Messages
        </Button>
        {isOver ? (
          row.status !== "closed" &&
          (runs > 0 || !row.obstacle) && (
            <Button testid="app-open" onClick={() => setRuns(runs + 1)}>
              {runs ? "Open again" : "Open the app"}
            </Button>
          )
        ) : (
          <>
            <Button
              testid="app-mode"
              tone="quiet"
              onClick={() => host.setMode(mode === "inline" ? "fullscreen" : "inline")}
              disabled={phase !== "shown"}
            >
              {mode === "inline" ? "Full screen" : "Exit full screen"}
            </Button>
            <Button testid="app-close" tone="quiet" onClick={() => void host.close("The person closed it.")}>
              Close
            </Button>
          </>
        )}
      </div>
      {host.problem.value && (
        <div key="problem" class="cmn-app-problem" role="alert" data-testid="app-problem">
          {host.problem.value}
        </div>
      )}
      {!runs && row.obstacle && (
        <div class="cmn-app-problem" role="status" data-testid="app-obstacle">
          {row.obstacle}
        </div>
      )}
      {host.asks.value.map((ask) => (
        <AskCard key={ask.text} ask={ask} />
      ))}
      {first && (
        <CallCard
          key={first[0]}
          question={first[1]}
          more={questions.length - 1}
          answer={(answer) => void bridge.call("apps.answer", { app, question: first[0], answer })}
        />
      )}
      {/* Without a key, the line of a problem would take this element, and the frame in it. */}
      <div
        key="place"
        ref={place}
        class="cmn-app-place"
        data-testid="app-place"
        data-border={host.border.value}
        hidden={isOver || phase === "failed" || phase === "loading"}
        style={mode === "inline" ? { height: `${host.height.value}px` } : {}}
      />
      {(listed || phase === "failed" || (phase === "stopped" && runs > 0)) && <Messages log={host.log.value} />}
    </section>
  );
}

const ASKED: Record<Ask["kind"], [title: string, yes: string]> = {
  link: ["The app wants to open this page in a new tab:", "Open"],
  file: ["The app wants to save on your computer:", "Save"],
  message: [
    "The app wants to send this to the model, as your message. The model also reads what the app says about itself:",
    "Send",
  ],
};

function AskCard({ ask }: { ask: Ask }) {
  const [title, yes] = ASKED[ask.kind];
  return (
    <section class="cmn-app-ask" aria-label={title} data-testid={`app-ask-${ask.kind}`}>
      <p>{title}</p>
      <Verbatim label="Exactly" testid="app-ask-text" text={ask.text} />
      <div class="cmn-row cmn-controls">
        <Button testid="app-allow" tone="primary" onClick={() => ask.answer(true)}>
          {yes}
        </Button>
        <Button testid="app-refuse" tone="danger" onClick={() => ask.answer(false)}>
          Do not
        </Button>
      </div>
    </section>
  );
}

function CallCard({ question, more, answer }: { question: AppQuestion; more: number; answer(answer: string): void }) {
  const { server, tool, claims, why, difference } = question;
  return (
    <section class="cmn-app-ask" aria-label={`Allow ${server} to run ${tool}?`} data-testid="app-question">
      <p>
        Allow an app of <code>{server}</code> to run <code data-testid="app-question-tool">{tool}</code>?{" "}
        {claims.map((claim) => (
          <span
            key={claim}
            class="cmn-tag"
            data-tone={claim === "destructive" ? "bad" : "plain"}
            title="Declared by the server"
          >
            {claim}
          </span>
        ))}
      </p>
      <p class="cmn-quiet">
        {why}
        {more > 0 && ` ${counted(more, "more call")} of apps of this server ${more > 1 ? "wait" : "waits"} for you.`}
      </p>
      {difference && <Verbatim label="Changes" testid="app-question-difference" text={difference} />}
      <Verbatim label="Complete arguments" testid="app-question-arguments" text={question.arguments} />
      <div class="cmn-row cmn-controls">
        {question.choices.map(([what, label], index) => (
          <Button
            key={what}
            testid={`app-${what.replaceAll("_", "-")}`}
            tone={index === 0 ? "primary" : what === "deny" ? "danger" : "plain"}
            onClick={() => answer(what)}
          >
            {label}
          </Button>
        ))}
      </div>
    </section>
  );
}

const FROM = { app: "app →", host: "← host", page: "page" };

/** The messages so far, the handshake first. */
function Messages({ log }: { log: LogEntry[] }) {
  return (
    <section class="cmn-app-log" aria-label="Messages of the app">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard */}
      <ol tabIndex={0} data-testid="app-log">
        {log.map((entry, index) => (
          <li key={index} data-sender={entry.sender}>
            <span class="cmn-quiet">{FROM[entry.sender]}</span> <code>{entry.method}</code>{" "}
            <span class="cmn-mono">{entry.text}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
