import { useId, useState } from "preact/hooks";
import { PartsBar } from "../tokens/PartsBar";
import type { TokensState } from "../tokens/state";
import { TokensChart } from "../tokens/TokensChart";
import { tokensIn } from "../tokens/tokens";
import { activity } from "./conversation";
import type { ConversationState } from "./state";

/** What the conversation took so far, and what happens now. The tokens of each step unfold above it. */
export function Foot({ conversation, tokens }: { conversation: ConversationState; tokens: TokensState }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const waits = conversation.busy && Object.keys(conversation.questions).length > 0;
  return (
    <div class="cmn-foot">
      {open && (
        <div id={id} class="cmn-foot-tokens" data-testid="tokens-part">
          <TokensChart tokens={tokens} />
        </div>
      )}
      <div class="cmn-foot-line">
        <button
          type="button"
          class="cmn-foot-button"
          title="Tokens of each step"
          aria-expanded={open}
          aria-controls={id}
          data-testid="tokens-toggle"
          onClick={() => setOpen(!open)}
        >
          <span data-testid="tokens-all">
            {tokens.all.steps ? `This conversation ${tokensIn(tokens.all)}` : "Nothing sent yet"}
          </span>
          {tokens.all.steps > 0 && <PartsBar values={tokens.all.parts} names={tokens.parts} most={tokens.all.sent} />}
        </button>
        <span class="cmn-doing" data-waits={waits} data-testid="doing">
          {activity(conversation)}
        </span>
      </div>
    </div>
  );
}
