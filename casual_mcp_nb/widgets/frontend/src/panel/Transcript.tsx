import type { Ref } from "preact";
import { useImperativeHandle, useRef } from "preact/hooks";
import { Button } from "../lib/controls";
import { counted } from "../lib/words";
import { activity, turnsInOrder } from "./conversation";
import { useFollow } from "./follow";
import { Questions } from "./Questions";
import type { ConversationState } from "./state";
import { TurnArticle } from "./TurnArticle";

export interface TranscriptHandle {
  toEnd(): void;
}

interface Props {
  conversation: ConversationState;
  /** Called when the focus has no place left here. */
  onDone(): void;
  handle: Ref<TranscriptHandle>;
}

/** The turns, the message that is on its way, and what waits for the person. Its end stays in sight. */
export function Transcript({ conversation, onDone, handle }: Props) {
  const { earlier, pending, busy, questions } = conversation;
  const box = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const { away, toEnd } = useFollow(box, content);
  useImperativeHandle(handle, () => ({ toEnd }));
  const turns = turnsInOrder(conversation.turns);
  const last = turns.at(-1)?.row.number ?? 0;
  const waits = Object.keys(questions).length > 0;
  return (
    <div class="cmn-scroller-box">
      <section
        ref={box}
        class="cmn-scroller"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
        tabIndex={0}
        aria-label="Transcript"
        data-testid="transcript"
      >
        <div ref={content}>
          {!turns.length && !pending && (
            <p class="cmn-empty cmn-quiet" data-testid="empty">
              Ask a question below. You will see every step here.
            </p>
          )}
          {earlier > 0 && (
            <p class="cmn-quiet" data-testid="earlier">
              {counted(earlier, "earlier turn")} not shown; still part of the conversation.
            </p>
          )}
          <div data-testid="turns">
            {turns.map(({ key, row }) => (
              <TurnArticle key={key} turn={key} row={row} after={last - row.number} busy={busy} onSent={onDone} />
            ))}
          </div>
          {pending && (
            <>
              <div class="cmn-bubble-row">
                <div class="cmn-bubble" data-testid="pending">
                  {pending}
                </div>
              </div>
              <p class="cmn-waiting" role="status" data-testid="waiting">
                {activity(conversation)}
              </p>
            </>
          )}
          <Questions questions={questions} onDone={onDone} />
        </div>
      </section>
      {away && (
        <Button
          testid="newest"
          data-waits={waits}
          onClick={() => {
            toEnd();
            box.current?.focus();
          }}
        >
          {waits ? "↓ Waiting for you" : "↓ Newest"}
        </Button>
      )}
    </div>
  );
}
