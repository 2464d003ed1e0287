import type { ComponentChildren } from "preact";
import { useBridge } from "../lib/widget";
import type { Question } from "./state";

interface Props {
  question: Question;
  label: string;
  title: ComponentChildren;
  children: ComponentChildren;
}

/** The frame of a question. One that is asked in a cell is only shown. */
export function QuestionCard({ question, label, title, children }: Props) {
  const inCell = question.channel === "input";
  return (
    <section
      class="cmn-question"
      tabIndex={-1}
      aria-label={label}
      data-testid={`question-${question.kind}`}
      data-status={question.channel}
    >
      <div class="cmn-question-title">{title}</div>
      <fieldset disabled={inCell}>{children}</fieldset>
      {inCell && (
        <p class="cmn-quiet" data-testid="asked-in-cell">
          The running cell asks this, since a click would arrive only after it: answer in the box below the cell.
        </p>
      )}
    </section>
  );
}

/** The function that answers a question. */
export function useAnswer(id: string) {
  const bridge = useBridge();
  return (answer: string, values?: Record<string, unknown>) =>
    void bridge.call("conversation.answer", { question: id, answer, ...(values && { values }) });
}

/** Who asks, and what; it is neither the model nor this notebook. */
export function ServerMessage({ message, ours = false }: { message: string; ours?: boolean }) {
  return (
    <>
      <p class="cmn-said" data-testid="question-message">
        {message}
      </p>
      {!ours && (
        <p class="cmn-quiet">
          This question comes from the server, not from the model or this notebook. Your answer goes to the server.
        </p>
      )}
    </>
  );
}
