import "./panel.css";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { TrustCard } from "../lib/TrustCard";
import { ErrorLine, useBridge } from "../lib/widget";
import { useAttachments } from "./attachments";
import { Composer, type ComposerHandle } from "./Composer";
import { Conversations } from "./Conversations";
import { announcement } from "./conversation";
import { Foot } from "./Foot";
import { Head } from "./Head";
import type { PanelState } from "./state";
import { Transcript, type TranscriptHandle } from "./Transcript";

/** A chat: the transcript scrolls in the middle, and the message box stays in sight below it. */
export function Panel() {
  const bridge = useBridge<PanelState>();
  const { conversation, conversations, tokens, limits } = bridge.state.value;
  const [listed, setListed] = useState(false);
  // A message is shown before the kernel knows it, until there is a turn more.
  const [sent, setSent] = useState<{ prompt: string; after: number } | null>(null);
  const last = Math.max(0, ...Object.values(conversation.turns).map((row) => row.number));
  const unanswered = sent?.after === last ? { ...conversation, pending: conversation.pending ?? sent.prompt } : conversation;
  const main = useRef<HTMLDivElement>(null);
  const composer = useRef<ComposerHandle>(null);
  const transcript = useRef<TranscriptHandle>(null);
  const attachments = useAttachments(conversation.image_limits, (why) => {
    bridge.error.value = why;
  });
  useEffect(() => void bridge.call("conversation.seen"), []);
  useAnnouncements(conversation, (text) => bridge.say(text));

  const onDrag = (event: DragEvent) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  };
  const onDrop = (event: DragEvent) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    event.stopPropagation();
    void attachments.add(event.dataTransfer.files);
  };
  // Where there is little room, the list is in place of the chat.
  const hidesMain = () => main.current?.offsetParent === null;
  const closeList = () => {
    setListed(false);
    main.current?.querySelector<HTMLElement>("[data-testid=conversations]")?.focus();
  };
  return (
    <div class="cmn-chat" data-listed={listed}>
      {listed && <Conversations onOpened={() => hidesMain() && closeList()} onClose={closeList} />}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the button beside the message box attaches images too */}
      <div ref={main} class="cmn-chat-main" onDragOver={onDrag} onDrop={onDrop}>
        <Head
          conversation={conversation}
          conversations={conversations}
          listed={listed}
          onList={() => setListed(!listed)}
          onUndone={(prompt) => composer.current?.offer(prompt)}
        />
        <Transcript handle={transcript} conversation={unanswered} onDone={() => composer.current?.offer("")} />
        <TrustCard config={conversation.unaccepted} command="conversation.accept_config" />
        <ErrorLine />
        <Composer
          handle={composer}
          conversation={conversation}
          attachments={attachments}
          onAnswer={() => main.current?.querySelector<HTMLElement>(".cmn-question")?.focus()}
          onSend={(prompt) => {
            setSent(prompt === undefined ? null : { prompt, after: last });
            if (prompt !== undefined) transcript.current?.toEnd();
          }}
        />
        <Foot conversation={conversation} conversations={conversations} tokens={tokens} limits={limits} />
      </div>
    </div>
  );
}

function useAnnouncements(conversation: PanelState["conversation"], say: (text: string) => void) {
  const before = useRef(conversation);
  useLayoutEffect(() => {
    const text = announcement(before.current, conversation);
    before.current = conversation;
    if (text !== undefined) say(text);
  }, [conversation]);
}
