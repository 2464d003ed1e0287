import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useUniqueId } from "../lib/id";
import { counted } from "../lib/words";
import { PartsBar } from "../tokens/PartsBar";
import { SpendLimits } from "../tokens/SpendLimits";
import type { LimitsState, TokensState } from "../tokens/state";
import { TokensChart } from "../tokens/TokensChart";
import { reusedInWords, tokensIn } from "../tokens/tokens";
import { CallsSoFar } from "./CallsSoFar";
import { activity } from "./conversation";
import { DiscoveredTools } from "./DiscoveredTools";
import type { ConversationState, ConversationsState } from "./state";

type Part = "tokens" | "calls" | "tools";

interface Props {
  conversation: ConversationState;
  conversations: ConversationsState;
  tokens: TokensState;
  limits: LimitsState;
}

/** What the conversation took so far, and what happens now. The tokens of each step unfold above it. */
export function Foot({ conversation, conversations, tokens, limits }: Props) {
  const { discovered, cassette } = conversations;
  const [shown, setShown] = useState<Part | null>(null);
  const id = useUniqueId();
  const opens = (part: Part) => ({
    open: shown === part,
    controls: id,
    onClick: () => setShown(shown === part ? null : part),
  });
  const calls = conversation.calls;
  const waits = conversation.busy && Object.keys(conversation.questions).length > 0;
  return (
    <div class="cmn-foot">
      {shown === "tokens" && (
        <div id={id} class="cmn-foot-part" data-testid="tokens-part">
          <TokensChart tokens={tokens} />
        </div>
      )}
      {shown === "calls" && (
        <div id={id} class="cmn-foot-part" data-testid="audit-part">
          <CallsSoFar count={calls} />
        </div>
      )}
      {shown === "tools" && discovered > 0 && (
        <div id={id} class="cmn-foot-part" data-testid="tools-part">
          <DiscoveredTools busy={conversation.busy} />
        </div>
      )}
      <div class="cmn-foot-line">
        <Toggle title="Tokens of each step" testId="tokens-toggle" {...opens("tokens")}>
          <span data-testid="tokens-all">
            {tokens.all.steps ? `This conversation ${tokensIn(tokens.all)}` : "Nothing sent yet"}
          </span>
          {tokens.all.steps > 0 && <InputBar tokens={tokens} />}
        </Toggle>
        <SpendLimits limits={limits} />
        {calls > 0 && (
          <Toggle
            title="Every call and search: who made it, who allowed it, how it ended"
            testId="audit-toggle"
            {...opens("calls")}
          >
            Calls and searches: {calls}
          </Toggle>
        )}
        {discovered > 0 && (
          <Toggle
            title="The deferred tools that the model found, each with a button that unloads it"
            testId="tools-toggle"
            {...opens("tools")}
          >
            {counted(discovered, "discovered tool")}
          </Toggle>
        )}
        {cassette && (
          <span class="cmn-clip" title="In Python: session.cassette" data-testid="cassette">
            ● {cassette}
          </span>
        )}
        <span class="cmn-doing" data-waits={waits} data-testid="doing">
          {activity(conversation)}
        </span>
      </div>
    </div>
  );
}

interface ToggleProps {
  title: string;
  testId: string;
  open: boolean;
  controls: string;
  onClick: () => void;
  children: ComponentChildren;
}

/** A button of the last line that shows a part above it. */
function Toggle({ title, testId, open, controls, onClick, children }: ToggleProps) {
  return (
    <button
      type="button"
      class="cmn-foot-button"
      title={title}
      aria-expanded={open}
      aria-controls={controls}
      data-testid={testId}
      onClick={onClick}
    >
      {children}
    </button>
  );
}

/** The input as a bar: what is reused from the step before and what is new, or its parts before anything can be reused. */
function InputBar({ tokens: { all, parts } }: { tokens: TokensState }) {
  if (all.reused === undefined) return <PartsBar values={all.parts} names={parts} most={all.sent} />;
  const values = [all.reused, Math.max(0, all.sent - all.reused)];
  return (
    <>
      <PartsBar values={values} names={["Reused from the previous step", "New"]} most={all.sent} look="reuse" />
      <span data-testid="tokens-reused">{reusedInWords(all)} from the previous step</span>
    </>
  );
}
