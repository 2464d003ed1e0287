import { useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { FormField } from "./FormField";
import { atFirst } from "./form";
import { QuestionCard, ServerMessage, useAnswer } from "./QuestionCard";
import type { FormAsked } from "./state";

/** A form of a server. */
export function FormCard({ id, question }: { id: string; question: FormAsked }) {
  const answer = useAnswer(id);
  const [values, setValues] = useState(() => atFirst(question.fields));
  const send = (event: Event) => {
    event.preventDefault();
    answer("send", values);
  };
  // Notebooks take the Enter that would submit a form.
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && event.target instanceof HTMLInputElement && !event.isComposing) send(event);
  };
  const title = (
    <>
      Server <code data-testid="question-server">{question.server}</code> asks you
    </>
  );
  return (
    <QuestionCard question={question} label={`Server ${question.server} asks you`} title={title}>
      <ServerMessage message={question.message} />
      <form class="cmn-form" noValidate data-testid="question-form" onSubmit={send} onKeyDown={onKeyDown}>
        {question.fields.map((field) => (
          <FormField
            key={field.name}
            field={field}
            value={values[field.name]}
            onChange={(value) => setValues((before) => ({ ...before, [field.name]: value }))}
          />
        ))}
        {question.channel === "panel" && (
          <div class="cmn-row cmn-controls">
            <Button testid="send-form" tone="primary" type="submit">
              Send to the server
            </Button>
            <Button testid="decline" onClick={() => answer("decline")}>
              Decline
            </Button>
            <Button testid="cancel" onClick={() => answer("cancel")}>
              Cancel
            </Button>
          </div>
        )}
      </form>
    </QuestionCard>
  );
}
