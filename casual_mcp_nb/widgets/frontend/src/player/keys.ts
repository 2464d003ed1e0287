// The keys of the player.

export const KEYS: readonly [keys: string, does: string][] = [
  ["→ or Page Down", "next"],
  ["← or Page Up", "back"],
  ["Home, End", "first, last"],
  ["Space", "play, pause"],
  ["/", "search"],
  ["L", "large text"],
  ["D", "dark, light"],
  ["?", "these keys; Escape closes them"],
];

export type Action = "next" | "back" | "first" | "last" | "play" | "search" | "large" | "dark" | "help" | "close";

const ACTIONS: Record<string, Action> = {
  ArrowRight: "next",
  PageDown: "next",
  ArrowLeft: "back",
  PageUp: "back",
  Home: "first",
  End: "last",
  " ": "play",
  "/": "search",
  l: "large",
  d: "dark",
  "?": "help",
  Escape: "close",
};

/** What a key does; null where a control needs it, or the browser. */
export function actionOf(event: KeyboardEvent): Action | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return null;
  const target = event.target as Element | null;
  if (target?.closest("input:not([type=range]), select, textarea, [role=tab]")) return null;
  // The space bar presses a button that has the focus.
  if (event.key === " " && target?.closest("button, summary")) return null;
  return ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? null;
}
