// Keys that are pressed in a widget mean nothing to the notebook around it, where a single letter can cut a cell.

const CONTROL = "a[href], button:enabled, input:enabled, select:enabled, textarea:enabled, summary, [tabindex]";

/** Whether a key that is pressed here belongs to a text that is being written. */
export function isWriting(target: EventTarget | null): boolean {
  return target instanceof Element && target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");
}

/** Whether Enter sends; Shift+Enter is a new line, and an Enter that ends the input of a character is neither. */
export function sends(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

/** Keep keys and focus in a widget; those with Ctrl or ⌘ still reach the notebook. Return a function that ends this. */
export function keepKeys(root: HTMLElement): () => void {
  const isForNotebook = (event: KeyboardEvent) => event.ctrlKey || event.metaKey;
  // JupyterLab looks at the focused element before all that it is in, so that element carries the mark.
  const shield = (event: KeyboardEvent) => {
    const target = event.composedPath()[0];
    if (target instanceof Element && root.contains(target))
      target.toggleAttribute("data-lm-suppress-shortcuts", !isForNotebook(event));
  };
  const stop = (event: KeyboardEvent) => {
    if (!isForNotebook(event)) event.stopPropagation();
  };
  // A click on a label or a heading would leave the focus with the notebook, and so the letters that come next.
  const takeFocus = (event: Event) => {
    if (event.target instanceof Element && event.target.closest(CONTROL) === root) root.focus({ preventScroll: true });
  };
  // JupyterLab takes the Enter key from every input in a cell: no new line in a text, no form that is sent.
  const keepInput = (event: Event) => event.stopPropagation();
  window.addEventListener("keydown", shield, true);
  root.addEventListener("keydown", stop);
  root.addEventListener("pointerdown", takeFocus);
  root.addEventListener("click", takeFocus);
  root.addEventListener("beforeinput", keepInput, true);
  return () => window.removeEventListener("keydown", shield, true);
}
