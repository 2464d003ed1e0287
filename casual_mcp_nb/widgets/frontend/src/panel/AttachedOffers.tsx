import { Button } from "../lib/controls";
import { useBridge } from "../lib/widget";

/** The resources and prompts that go with the next message. */
export function AttachedOffers({ attached, onRemoved }: { attached: Record<string, string>; onRemoved(): void }) {
  const bridge = useBridge();
  const entries = Object.entries(attached);
  if (!entries.length) return null;
  return (
    <ul class="cmn-offers-attached" aria-label="Attached resources and prompts" data-testid="attached-offers">
      {entries.map(([id, name]) => (
        <li key={id}>
          <code class="cmn-clip">{name}</code>
          <Button
            testid="detach"
            tone="quiet"
            aria-label={`Remove ${name}`}
            onClick={() => {
              void bridge.call("conversation.detach", { id });
              onRemoved();
            }}
          >
            ×
          </Button>
        </li>
      ))}
    </ul>
  );
}
