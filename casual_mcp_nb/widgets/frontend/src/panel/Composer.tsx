import type { Ref } from "preact";
import { useImperativeHandle, useRef, useState } from "preact/hooks";
import { Button, Checkbox, Select } from "../lib/controls";
import { sends } from "../lib/keys";
import { useBridge } from "../lib/widget";
import { AttachButton, Thumbnails } from "./AttachedImages";
import { AttachedOffers, AttachMenu } from "./AttachedOffers";
import { type Attachments, sendable } from "./attachments";
import type { ConversationState } from "./state";

const WAITS = "A turn waits for your answer above: answer it first, or stop the turn.";
const RUNS = "A turn is running: wait until it ends, or stop it.";

export interface ComposerHandle {
  /** Put a text into the box where nothing is typed, and the focus. */
  offer(text: string): void;
}

interface Props {
  conversation: ConversationState;
  attachments: Attachments;
  /** Called with a message when it goes off, and without one when it has arrived or was refused. */
  onSend(prompt?: string): void;
  /** Called to move the focus to what waits for the person. */
  onAnswer(): void;
  handle: Ref<ComposerHandle>;
}

/** The message, what goes with it, and how it is sent. */
export function Composer({ conversation, attachments, onSend, onAnswer, handle }: Props) {
  const bridge = useBridge();
  const [text, setText] = useState("");
  const [sending, setSending] = useState(false);
  const [choosing, setChoosing] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const { busy, examples, models, model, step_mode } = conversation;
  const questions = Object.values(conversation.questions);
  useImperativeHandle(handle, () => ({
    offer: (offered) => {
      setText((typed) => (typed.trim() ? typed : offered));
      box.current?.focus();
    },
  }));

  const send = async (prompt: string) => {
    box.current?.focus();
    if (busy || sending) {
      const asks = questions.length > 0;
      // The draft stays, and everybody is told why, not only those who hear it.
      bridge.error.value = asks ? `${WAITS} Your message stays here.` : `${RUNS} Your message stays here.`;
      return;
    }
    const images = attachments.list;
    if (!prompt.trim()) {
      if (images.length) bridge.error.value = "Write a message to go with the image.";
      return;
    }
    onSend(prompt);
    setSending(true);
    setChoosing(false);
    setText("");
    attachments.replace([]);
    const started = await bridge.call("conversation.send", { prompt, ...(images.length && { images: sendable(images) }) });
    setSending(false);
    onSend();
    if (started !== undefined) return;
    // What was not sent can be sent again.
    setText((typed) => typed || prompt);
    attachments.replace(images);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!sends(event)) return;
    event.preventDefault();
    void send(text);
  };
  const onPaste = (event: ClipboardEvent) => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    void attachments.add(event.clipboardData.files);
  };
  return (
    <div class="cmn-composer">
      {examples.length > 0 && !conversation.pending && !sending && (
        <fieldset class="cmn-row cmn-examples" aria-label="Examples" data-testid="examples">
          <span class="cmn-quiet">Try</span>
          {examples.map((example) => (
            <Button key={example} testid="example" onClick={() => send(example)}>
              {example}
            </Button>
          ))}
        </fieldset>
      )}
      {choosing && <AttachMenu onClose={() => setChoosing(false)} />}
      <AttachedOffers attached={conversation.attached ?? {}} onRemoved={() => box.current?.focus()} />
      <Thumbnails attachments={attachments} onRemoved={() => box.current?.focus()} />
      <textarea
        ref={box}
        rows={2}
        aria-label="Message"
        placeholder="Ask a question. Enter to send, Shift+Enter for a new line."
        data-testid="message"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div class="cmn-row">
        {questions.some(({ channel }) => channel !== "input") && (
          // The next stop of the Tab key behind the message box: what waits is above it, and can be out of sight.
          <Button testid="to-question" onClick={onAnswer}>
            ↑ Go to the question
          </Button>
        )}
        {busy || sending || conversation.pending !== undefined ? (
          <Button
            testid="stop"
            tone="danger"
            onClick={() => {
              void bridge.call("conversation.stop");
              box.current?.focus();
            }}
          >
            ■ Stop
          </Button>
        ) : (
          <Button testid="send" tone="primary" onClick={() => send(text)}>
            Send
          </Button>
        )}
        <AttachButton attachments={attachments} />
        <Button
          testid="attach-resource"
          tone="quiet"
          aria-expanded={choosing}
          title="Resources and prompts of MCP servers"
          onClick={() => setChoosing((before) => !before)}
        >
          Attach resource
        </Button>
        <span class="cmn-grow" />
        <Select
          testid="model"
          label="Model"
          value={model ?? ""}
          options={models}
          disabled={!models.length}
          onChoose={(name) => bridge.call("conversation.set_model", { name })}
        />
        <Checkbox
          text="Step by step"
          testid="step-mode"
          title="Pause before each model call"
          checked={step_mode}
          onChoose={(on) => bridge.call("conversation.set_step_mode", { on })}
        />
      </div>
    </div>
  );
}
