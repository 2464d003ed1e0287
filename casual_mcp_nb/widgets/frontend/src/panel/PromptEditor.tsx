import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { sends } from "../lib/keys";

interface Props {
  text: string;
  /** What sending it replaces. */
  note: string;
  onSend(text: string): void;
  onLeave(): void;
}

/** Another text for a turn. */
export function PromptEditor({ text, note, onSend, onLeave }: Props) {
  const [value, setValue] = useState(text);
  const box = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") onLeave();
    if (!sends(event)) return;
    event.preventDefault();
    onSend(value);
  };
  return (
    <div class="cmn-editor">
      <textarea
        ref={box}
        rows={3}
        aria-label="Another text for this turn"
        data-testid="edit-box"
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="cmn-row">
        <Button testid="edit-send" tone="primary" onClick={() => onSend(value)}>
          Send edited message
        </Button>
        <Button testid="edit-cancel" onClick={onLeave}>
          Cancel
        </Button>
        <span class="cmn-quiet">{note}</span>
      </div>
    </div>
  );
}
