import { useState } from "preact/hooks";
import { Button, Verbatim } from "../lib/controls";
import { sends } from "../lib/keys";
import { QuestionCard, useAnswer } from "./QuestionCard";
import type { ApprovalAsked } from "./state";

const MAX_REASON = 1000;

/** Whether a call may run, with its complete arguments. */
export function ApprovalCard({ id, question }: { id: string; question: ApprovalAsked }) {
  const answer = useAnswer(id);
  const [reason, setReason] = useState("");
  const { server, tool, claims, choices, difference, channel } = question;
  const deny = () => answer("deny", { reason });
  const title = (
    <>
      Allow <code data-testid="question-server">{server}</code> to run <code data-testid="question-tool">{tool}</code>?{" "}
      {claims.map((claim) => (
        <span key={claim} class="cmn-tag" data-tone={claim === "destructive" ? "bad" : "plain"} title="Declared by the server">
          {claim}
        </span>
      ))}
    </>
  );
  return (
    <QuestionCard question={question} label={`Allow ${server} to run ${tool}?`} title={title}>
      <p class="cmn-quiet">{question.why}</p>
      {difference && <Verbatim label="Changes" testid="question-difference" text={difference} />}
      <Verbatim label="Complete arguments" testid="question-arguments" text={question.arguments} />
      {channel === "panel" && (
        <div class="cmn-row cmn-controls">
          {choices.map(([what, text], place) => (
            <Button
              key={what}
              testid={what.replaceAll("_", "-")}
              tone={place === 0 ? "primary" : what === "deny" ? "danger" : "plain"}
              onClick={what === "deny" ? deny : () => answer(what)}
            >
              {text}
            </Button>
          ))}
          <input
            class="cmn-grow"
            aria-label="Reason for the model"
            placeholder="Reason for the model (optional)"
            data-testid="deny-reason"
            maxLength={MAX_REASON}
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
            onKeyDown={(event) => sends(event) && reason.trim() && deny()}
          />
        </div>
      )}
    </QuestionCard>
  );
}
