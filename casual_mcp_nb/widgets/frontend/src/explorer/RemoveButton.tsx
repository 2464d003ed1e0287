import { useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge } from "../lib/widget";
import type { Workbench } from "./workbench";

/** End a server and take it out of the session, once a person has confirmed that. */
export function RemoveButton({ bench, server }: { bench: Workbench; server: string }) {
  const bridge = useBridge();
  const [asking, setAsking] = useState(false);
  const remove = async () => {
    if ((await bridge.call("selection.remove_server", { server })) === undefined) return;
    bench.choice.value = null;
    bench.backToList();
  };
  if (!asking)
    return (
      <Button testid="remove" tone="quiet" aria-label={`Remove ${server}`} onClick={() => setAsking(true)}>
        Remove
      </Button>
    );
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be part of a line
    <span class="cmn-row" role="group" aria-label={`Remove ${server}?`}>
      <span class="cmn-quiet">Remove it from this session?</span>
      <Button testid="remove-confirm" tone="danger" onClick={remove}>
        Remove
      </Button>
      <Button testid="remove-cancel" onClick={() => setAsking(false)} ref={focusOnce}>
        Cancel
      </Button>
    </span>
  );
}

const focusOnce = (button: HTMLButtonElement | null) => button?.focus();
