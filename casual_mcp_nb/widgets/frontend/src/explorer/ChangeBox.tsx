import { Button, Verbatim } from "../lib/controls";
import { useBridge } from "../lib/widget";
import type { ToolDetail } from "./state";

interface Props {
  name: string;
  change: NonNullable<ToolDetail["change"]>;
  onAccepted(): void;
}

/** How a server changed a tool, and a button that accepts it. */
export function ChangeBox({ name, change, onAccepted }: Props) {
  const bridge = useBridge();
  const accept = async () => {
    if ((await bridge.call("selection.accept_change", { name })) !== undefined) onAccepted();
  };
  const text = change.blocked
    ? "Its server changed it. No model is offered it until you accept the change."
    : "Its server changed it.";
  return (
    <div class="cmn-change" data-testid="change">
      <div class="cmn-row">
        <span class="cmn-grow">{text}</span>
        <Button testid="accept" onClick={accept}>
          Accept the change
        </Button>
      </div>
      <Verbatim label="Changes" testid="diff" text={change.diff} />
    </div>
  );
}
