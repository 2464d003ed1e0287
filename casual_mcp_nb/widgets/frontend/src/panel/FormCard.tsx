import { useState } from "preact/hooks";
import { Button, CopyButton, Verbatim } from "../lib/controls";
import { FormField } from "./FormField";
import { atFirst } from "./form";
import { QuestionCard, ServerMessage, useAnswer } from "./QuestionCard";
import type { FormAsked } from "./state";

/** A form of a server, the address that ends a sign-in to it, or whether a sign-in may use an address. The last two stay here. */
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
  const { server, message, address, ours } = question;
  const name = <code data-testid="question-server">{server}</code>;
  let title = <>Server {name} asks you</>;
  let label = `Server ${server} asks you`;
  let action = "Send to the server";
  if (address) {
    title = <>Sign in to server {name}</>;
    label = `Sign in to server ${server}`;
    action = "Sign in";
  } else if (ours) {
    title = <>Sign-in to server {name}: accept an address?</>;
    label = `Sign-in to server ${server}: accept an address?`;
    action = "Accept";
  }
  return (
    <QuestionCard question={question} label={label} title={title}>
      {address ? (
        <>
          <p class="cmn-said" data-testid="question-message">
            {message}
          </p>
          <Verbatim label="Address" testid="question-address" text={address} />
          <CopyButton testid="copy-address" text={() => address}>
            Copy address
          </CopyButton>
          <p class="cmn-said">{question.ending}</p>
        </>
      ) : (
        <ServerMessage message={message} ours={ours === true} />
      )}
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
              {action}
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
