import { useRef } from "preact/hooks";
import { Button } from "../lib/controls";
import { type Attachments, IMAGE_TYPES } from "./attachments";

/** Chooses images from the person's files; they can also be pasted, and dropped anywhere on the panel. */
export function AttachButton({ attachments }: { attachments: Attachments }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button
        testid="attach"
        tone="quiet"
        title="PNG, JPEG, GIF or WebP. You can also paste or drop an image."
        onClick={() => input.current?.click()}
      >
        Attach image
      </Button>
      <input
        ref={input}
        type="file"
        hidden
        multiple
        accept={IMAGE_TYPES.join(",")}
        aria-label="Images to attach"
        data-testid="attach-files"
        onChange={(event) => {
          const field = event.currentTarget;
          void attachments.add([...(field.files ?? [])]);
          // The same file can be chosen again.
          field.value = "";
        }}
      />
    </>
  );
}

/** The images that go with the next message. */
export function Thumbnails({ attachments, onRemoved }: { attachments: Attachments; onRemoved(): void }) {
  if (!attachments.list.length) return null;
  return (
    <ul class="cmn-thumbnails" aria-label="Attached images" data-testid="attachments">
      {attachments.list.map(({ id, name, url }) => (
        <li key={id}>
          <img src={url} alt={name} />
          <Button
            testid="remove-image"
            aria-label={`Remove ${name}`}
            onClick={() => {
              attachments.remove(id);
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
