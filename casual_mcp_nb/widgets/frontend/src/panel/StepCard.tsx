import { useEffect, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge } from "../lib/widget";
import { QuestionCard, useAnswer } from "./QuestionCard";
import type { StepAsked } from "./state";

/** A pause before a model call: the request that is about to be sent, and what can be edited in it. */
export function StepCard({ id, question }: { id: string; question: StepAsked }) {
  const answer = useAnswer(id);
  const [changes, setChanges] = useState<Record<string, string>>({});
  const edited = Object.keys(changes).length > 0;
  const change = (key: string, before: string, text: string) =>
    setChanges(({ [key]: _, ...others }) => (text === before ? others : { ...others, [key]: text }));
  const label = `Paused before step ${question.step}`;
  return (
    <QuestionCard question={question} label={label} title={label}>
      <p data-testid="question-message">{question.message}</p>
      {question.texts.length === 0 && (
        <p class="cmn-quiet" data-testid="step-no-edit">
          Nothing to edit here: the search result names tools that are loaded already. What you write can be edited before step
          1, and a tool's result before the step that reads it.
        </p>
      )}
      {question.texts.length > 0 && (
        <details data-testid="step-edit">
          <summary>Edit the text that the model reads next</summary>
          {question.texts.map(({ key, label, text }) => (
            <label key={key} class="cmn-field">
              <span class="cmn-field-title">{label}</span>
              <textarea
                rows={Math.min(8, 1 + text.split("\n").length)}
                data-testid={`edit-${key || "message"}`}
                value={changes[key] ?? text}
                onInput={(event) => change(key, text, event.currentTarget.value)}
              />
            </label>
          ))}
        </details>
      )}
      {question.channel === "panel" && (
        <div class="cmn-row cmn-controls">
          <Button testid="step-next" tone="primary" onClick={() => (edited ? answer("edit", changes) : answer("next"))}>
            {edited ? "Send edited" : "Next"}
          </Button>
          <Button testid="step-run" onClick={() => answer("run", changes)}>
            Run to the end
          </Button>
          <Button testid="step-stop" tone="danger" onClick={() => answer("stop")}>
            Stop
          </Button>
        </div>
      )}
      {/* Last: Tab would go through all of its messages before a button. */}
      <ComingRequest question={id} />
    </QuestionCard>
  );
}

/** Exactly what the coming step would send. */
function ComingRequest({ question }: { question: string }) {
  const bridge = useBridge();
  const [html, setHtml] = useState("");
  useEffect(() => {
    // A pause that ended meanwhile has nothing to show.
    bridge.request<string>("conversation.coming_request", { question }).then(setHtml, () => {});
  }, [question]);
  return <Drawn testid="step-request" class="cmn-coming" html={html} />;
}
