import { useCallback, useRef, useState } from "preact/hooks";
import { AppView } from "../app/AppView";
import { copyFrom } from "../lib/clipboard";
import { Button } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge, useWidgetState } from "../lib/widget";
import { addButtons } from "./actions";
import { replaces } from "./conversation";
import { PromptEditor } from "./PromptEditor";
import { PromptImages } from "./PromptImages";
import { Requests } from "./Requests";
import type { PanelState, TurnRow } from "./state";

interface Props {
  /** Its key. */
  turn: string;
  row: TurnRow;
  /** How many turns follow it. */
  after: number;
  busy: boolean;
  onSent(): void;
}

/** A turn: what the person said, and what followed, as the package draws it. */
export function TurnArticle({ turn, row, after, busy, onSent }: Props) {
  const bridge = useBridge();
  const { apps: shownApps, seconds } = useWidgetState<PanelState>().apps;
  const [edited, setEdited] = useState<string | null>(null);
  const [step, setStep] = useState<number | null>(null);
  const prompt = useRef<HTMLDivElement>(null);
  const finished = row.status !== "running";
  const decorate = useCallback(
    (content: DocumentFragment) => addButtons(content, row.number, finished),
    [row.number, finished],
  );

  const rerun = async (text?: string) => {
    setEdited(null);
    onSent();
    const started = await bridge.call("conversation.rerun", { turn, ...(text !== undefined && { prompt: text }) });
    // What was not sent can be sent again.
    if (started === undefined && text !== undefined) setEdited(text);
  };
  const leave = () => {
    setEdited(null);
    requestAnimationFrame(() => prompt.current?.querySelector<HTMLElement>("[data-testid=edit]")?.focus());
  };
  const onAction = async (button: HTMLButtonElement) => {
    const { action, call, step: asked } = button.dataset;
    if (action === "request") {
      const next = asked ? Number(asked) : row.steps;
      return setStep((shown) => (shown === null || (asked && shown !== next) ? next : null));
    }
    const text = await bridge.call<string>("conversation.copy", { turn, what: action, ...(call !== undefined && { call }) });
    if (text === undefined) return;
    await copyFrom(button, text);
    bridge.say("Copied.");
  };
  return (
    <article
      class="cmn-chat-turn"
      aria-label={`Turn ${row.number}`}
      aria-busy={!finished}
      data-status={row.status}
      data-testid={`turn-${row.number}`}
    >
      {edited === null ? (
        <div class="cmn-bubble-row" ref={prompt}>
          <div class="cmn-bubble">
            <div data-testid="prompt">{row.prompt || "(no text)"}</div>
            <PromptImages turn={turn} images={row.images} />
            {row.before !== undefined && (
              <div class="cmn-quiet cmn-before" data-testid="prompt-before">
                Edited by hand. Before: {row.before}
              </div>
            )}
          </div>
          <span class="cmn-bubble-tools">
            <Button
              testid="edit"
              tone="quiet"
              aria-label={`Edit turn ${row.number}`}
              disabled={busy}
              onClick={() => setEdited(row.prompt)}
            >
              Edit
            </Button>
            <Button
              testid="ask-again"
              tone="quiet"
              aria-label={`Ask turn ${row.number} again`}
              disabled={busy}
              onClick={() => (after ? setEdited(row.prompt) : void rerun())}
            >
              Ask again
            </Button>
          </span>
        </div>
      ) : (
        <PromptEditor text={edited} note={replaces(after)} onSend={rerun} onLeave={leave} />
      )}
      <Drawn testid="turn-body" class="cmn-turn-drawn" html={row.html} decorate={decorate} onAction={onAction} />
      {row.apps?.map(
        (app) => shownApps[app] && <AppView key={app} app={app} row={shownApps[app]} seconds={seconds} open={!after} inPanel />,
      )}
      {step !== null && <Requests turn={turn} steps={row.steps} step={Math.min(step, row.steps)} onStep={setStep} />}
    </article>
  );
}
