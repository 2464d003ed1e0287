import { Button, CopyButton, Verbatim } from "../lib/controls";
import { QuestionCard, ServerMessage, useAnswer } from "./QuestionCard";
import type { LinkAsked } from "./state";

/** A page that a server wants the person to visit. It is not opened from here. */
export function LinkCard({ id, question }: { id: string; question: LinkAsked }) {
  const answer = useAnswer(id);
  const { server, address } = question;
  const title = (
    <>
      Server <code data-testid="question-server">{server}</code> wants you to visit a page
    </>
  );
  return (
    <QuestionCard question={question} label={`Server ${server} wants you to visit a page`} title={title}>
      <ServerMessage message={question.message} />
      <Verbatim label="Address" testid="question-address" text={address} />
      <p class="cmn-quiet">It does not open automatically. Read the address before you copy it.</p>
      {question.channel === "panel" && (
        <div class="cmn-row cmn-controls">
          <Button testid="accept" tone="primary" onClick={() => answer("accept")}>
            I have visited it
          </Button>
          <Button testid="decline" onClick={() => answer("decline")}>
            Decline
          </Button>
          <Button testid="cancel" onClick={() => answer("cancel")}>
            Cancel
          </Button>
          <CopyButton testid="copy-address" text={() => address}>
            Copy address
          </CopyButton>
        </div>
      )}
    </QuestionCard>
  );
}
