import { Verbatim } from "../lib/controls";
import { useWidgetState } from "../lib/widget";
import { counted, tokens } from "../lib/words";
import type { ExplorerState } from "./state";

/** What the model reads about the deferred tools, word for word. */
export function ManifestPane() {
  const { text, tokens: price, tools } = useWidgetState<ExplorerState>().selection.manifest;
  if (!text)
    return (
      <p class="cmn-quiet" data-testid="manifest-text">
        Nothing is deferred, so there is no manifest.
      </p>
    );
  return (
    <>
      <p class="cmn-quiet">
        {tokens(price)} for {counted(tools, "deferred tool")}
      </p>
      <Verbatim label="The manifest as the model reads it" testid="manifest-text" text={text} />
    </>
  );
}
