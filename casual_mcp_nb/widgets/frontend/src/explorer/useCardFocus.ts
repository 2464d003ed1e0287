import { useEffect } from "preact/hooks";
import type { Workbench } from "./workbench";

/** Focus the heading of a card where the keyboard was to go to it: once, and not before the card is the right one. */
export function useCardFocus(bench: Workbench, heading: { current: HTMLElement | null }, isCurrent: boolean): void {
  const wanted = bench.cardFocus.value;
  useEffect(() => {
    if (!isCurrent || wanted <= bench.cardFocused) return;
    bench.cardFocused = wanted;
    heading.current?.focus({ preventScroll: true });
  }, [bench, heading, isCurrent, wanted]);
}
