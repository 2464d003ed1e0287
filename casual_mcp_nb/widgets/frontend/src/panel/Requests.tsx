import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge } from "../lib/widget";

interface Props {
  turn: string;
  steps: number;
  /** The step whose request is shown, from 1. */
  step: number;
  /** Called with another step, or with null to close. */
  onStep(step: number | null): void;
}

/** Exactly what each step of a turn sent to the model, one at a time. */
export function Requests({ turn, steps, step, onStep }: Props) {
  const bridge = useBridge();
  const [html, setHtml] = useState("");
  useEffect(() => {
    let current = true;
    void bridge.call<string>("conversation.request", { turn, step }).then((drawn) => current && drawn && setHtml(drawn));
    return () => {
      current = false;
    };
  }, [turn, step]);
  const section = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (html) section.current?.scrollIntoView({ block: "nearest" });
  }, [html]);
  return (
    <section ref={section} class="cmn-requests" aria-label="Requests" data-testid="requests">
      <div class="cmn-row">
        <strong class="cmn-grow">Requests</strong>
        {Array.from({ length: steps }, (_, index) => index + 1).map((each) => (
          <Button key={each} testid={`sent-${each}`} aria-pressed={each === step} onClick={() => onStep(each)}>
            Step {each}
          </Button>
        ))}
        <Button testid="requests-close" tone="quiet" aria-label="Close the requests" onClick={() => onStep(null)}>
          Close
        </Button>
      </div>
      <Drawn testid="request" html={html} />
    </section>
  );
}
