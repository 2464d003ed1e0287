import { useLayoutEffect, useRef } from "preact/hooks";
import { ApprovalCard } from "./ApprovalCard";
import { questionsInOrder } from "./conversation";
import { FormCard } from "./FormCard";
import { LinkCard } from "./LinkCard";
import { StepCard } from "./StepCard";
import type { Question } from "./state";

/** What waits for the person: calls to approve, forms and links of servers, pauses of the step mode. */
export function Questions({ questions, onDone }: { questions: Record<string, Question>; onDone(): void }) {
  const list = useRef<HTMLDivElement>(null);
  const had = useRef(false);
  const cards = questionsInOrder(questions);
  useLayoutEffect(() => {
    const focused = (list.current?.getRootNode() as Document | ShadowRoot | undefined)?.activeElement;
    // Never a button: the next question must not be answered by a key that was meant for the last one.
    if (had.current && (!focused || focused === document.body)) {
      const next = list.current?.querySelector<HTMLElement>(".cmn-question");
      if (next) next.focus();
      else onDone();
      had.current = false;
    }
  }, [questions]);
  return (
    <div
      ref={list}
      data-testid="questions"
      onFocusIn={() => {
        had.current = true;
      }}
      onFocusOut={(event) => {
        // Without a next element, what had the focus may have been removed.
        if (event.relatedTarget) had.current = list.current?.contains(event.relatedTarget as Node) ?? false;
      }}
    >
      {cards.map(({ key, row }) => (
        <Card key={key} id={key} question={row} />
      ))}
    </div>
  );
}

function Card({ id, question }: { id: string; question: Question }) {
  switch (question.kind) {
    case "approval":
      return <ApprovalCard id={id} question={question} />;
    case "form":
      return <FormCard id={id} question={question} />;
    case "link":
      return <LinkCard id={id} question={question} />;
    case "step":
      return <StepCard id={id} question={question} />;
  }
}
