/** Put a text on the clipboard, and have the button that did it say so for a moment. */
export async function copyFrom(button: HTMLElement, text: string): Promise<void> {
  await copyText(text);
  button.dataset.copied = "true";
  setTimeout(() => delete button.dataset.copied, 1500);
}

/** Also where a page has no right to the clipboard (http, an embedded frame). */
async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const focused = document.activeElement;
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  }
}
