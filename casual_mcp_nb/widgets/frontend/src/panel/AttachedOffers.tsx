import { Button } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { ResourcesPane } from "../resources/ResourcesPane";

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

/** Resources and prompts to choose from, above the message. Escape closes it. */
export function AttachMenu({ onClose }: { onClose(): void }) {
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    const composer = (event.currentTarget as HTMLElement).closest(".cmn-composer");
    onClose();
    composer?.querySelector<HTMLElement>("[data-testid=attach-resource]")?.focus();
  };
  return (
    <section class="cmn-attach-menu" aria-label="Resources and prompts" onKeyDown={onKeyDown}>
      <ResourcesPane />
    </section>
  );
}
