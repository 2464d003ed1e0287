import { useRef, useState } from "preact/hooks";
import { Button, Labelled, LargeText, Select } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { clears } from "./conversation";
import type { ConversationState, ConversationsState } from "./state";

/** No toolset can have this name. */
const CUSTOM = "\u0000";

interface Props {
  conversation: ConversationState;
  conversations: ConversationsState;
  /** Whether the list of conversations is shown. */
  listed: boolean;
  onList(): void;
  /** Called with the prompt of the turn that was removed. */
  onUndone(prompt: string): void;
}

/** What holds for the whole conversation: the toolset, going back, starting over. */
export function Head({ conversation, conversations, listed, onList, onUndone }: Props) {
  const { tool_sets, tool_set, custom, busy } = conversation;
  const bridge = useBridge();
  const [asks, setAsks] = useState(false);
  const clear = useRef<HTMLSpanElement>(null);
  const turns = Object.keys(conversation.turns).length + conversation.earlier;
  const sets: [string, string][] = [["", "All tools"], ...tool_sets.map((name): [string, string] => [name, name])];
  if (custom) sets.push([CUSTOM, "Custom (unsaved)"]);

  const undo = async () => {
    const prompt = await bridge.call<string>("conversation.undo");
    if (prompt !== undefined) onUndone(prompt);
  };
  const leave = () => {
    setAsks(false);
    clear.current?.querySelector("button")?.focus();
  };
  // What is saved can be opened again.
  const loses = turns > 0 && !conversations.saved;
  const startOver = async () => {
    await bridge.call("conversation.clear");
    leave();
  };
  const confirms = asks && loses && !busy;
  return (
    <div class="cmn-head-bar">
      <div class="cmn-row">
        <strong>Chat</strong>
        {conversations.saves && (
          <Button testid="conversations" tone="quiet" aria-expanded={listed} onClick={onList}>
            Conversations
          </Button>
        )}
        <Labelled text="Toolset">
          <Select
            testid="tool-set"
            label="Toolset"
            value={custom ? CUSTOM : (tool_set ?? "")}
            options={sets}
            onChoose={(name) =>
              name === CUSTOM ? Promise.resolve() : bridge.call("conversation.set_tool_set", { name: name || null })
            }
          />
        </Labelled>
        <span class="cmn-grow" />
        <Button testid="undo" tone="quiet" title="Remove the last turn" disabled={busy || !turns} onClick={undo}>
          Undo
        </Button>
        <span ref={clear}>
          <Button
            testid="clear"
            tone="quiet"
            aria-expanded={confirms}
            disabled={busy}
            onClick={() => (loses ? setAsks(!asks) : void bridge.call("conversation.clear"))}
          >
            New conversation
          </Button>
        </span>
        <LargeText />
      </div>
      {confirms && <Confirm text={clears(turns)} onYes={startOver} onNo={leave} />}
    </div>
  );
}

function Confirm({ text, onYes, onNo }: { text: string; onYes(): void; onNo(): void }) {
  const focused = useRef(false);
  const onMount = (element: HTMLFieldSetElement | null) => {
    if (!element || focused.current) return;
    focused.current = true;
    element.querySelector<HTMLButtonElement>("[data-testid=clear-no]")?.focus();
  };
  return (
    <fieldset
      class="cmn-row cmn-confirm"
      aria-label="New conversation"
      data-testid="clear-confirm"
      ref={onMount}
      onKeyDown={(event) => event.key === "Escape" && onNo()}
    >
      <span class="cmn-grow">{text}</span>
      <Button testid="clear-yes" tone="primary" onClick={onYes}>
        Start over
      </Button>
      <Button testid="clear-no" onClick={onNo}>
        Cancel
      </Button>
    </fieldset>
  );
}
