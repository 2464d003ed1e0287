import { useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge } from "../lib/widget";

/** End the connection to a server, and its process, and start it again. */
export function RestartButton({ server, tabIndex = 0 }: { server: string; tabIndex?: number }) {
  const bridge = useBridge();
  const [busy, setBusy] = useState(false);
  const restart = async () => {
    setBusy(true);
    await bridge.call("selection.reconnect", { server });
    setBusy(false);
  };
  return (
    <Button
      testid="reconnect"
      tabIndex={tabIndex}
      aria-label={`Restart ${server}`}
      aria-disabled={busy}
      onClick={() => busy || restart()}
    >
      {busy ? "Starting …" : "Restart"}
    </Button>
  );
}
