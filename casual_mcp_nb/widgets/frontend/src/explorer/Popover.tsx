import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

/** Controls that a button shows above what is below it. Escape, and a step out of it, close it. */
export function Popover({ label, testid, children }: { label: string; testid: string; children: ComponentChildren }) {
  const element = useRef<HTMLDetailsElement>(null);
  const close = () => element.current?.removeAttribute("open");
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !element.current?.open) return;
    event.stopPropagation();
    close();
    element.current.querySelector("summary")?.focus();
  };
  const onFocusOut = (event: FocusEvent) => {
    if (event.relatedTarget && !element.current?.contains(event.relatedTarget as Node)) close();
  };
  return (
    <details class="cmn-popover" ref={element} onKeyDown={onKeyDown} onFocusOut={onFocusOut} data-testid={testid}>
      <summary>{label}</summary>
      <div>{children}</div>
    </details>
  );
}
