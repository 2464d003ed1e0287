import { useEffect, useState } from "preact/hooks";
import { useBridge } from "../lib/widget";

/** The images of a prompt; an address is shown as text, since only the provider fetches it. */
export function PromptImages({ turn, images }: { turn: string; images: readonly string[] }) {
  if (!images.length) return null;
  return (
    <div class="cmn-thumbnails">
      {images.map((address, index) =>
        address ? <code key={index}>{address}</code> : <FetchedImage key={index} turn={turn} index={index} />,
      )}
    </div>
  );
}

function FetchedImage({ turn, index }: { turn: string; index: number }) {
  const bridge = useBridge();
  const [url, setUrl] = useState<string | undefined>(undefined);
  useEffect(() => {
    bridge.request<string>("conversation.image", { turn, index }).then(setUrl, () => {});
  }, [turn, index]);
  return url ? <img src={url} alt={`Attached, ${index + 1}`} data-testid="prompt-image" /> : null;
}
