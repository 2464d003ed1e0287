// The letters of `casual_mcp_nb/widgets/_rows.py` for what becomes of a tool, and the states of servers, in words.

import type { Mode, ServerInfo } from "./state";

interface Status {
  word: string;
  why: string;
  /** Whether the model can reach the tool. */
  included: boolean;
  /** Whether its checkbox changes nothing. */
  fixed?: boolean;
  /** Whether no toolset can include it. */
  barred?: boolean;
  /** Whether the list marks it with a tag. */
  tag?: boolean;
}

const STATUSES: Record<string, Status> = {
  l: { word: "loaded", why: "Sent with every request.", included: true },
  d: { word: "deferred", why: "The model finds it by search.", included: true },
  o: { word: "excluded", why: "You excluded it.", included: false },
  t: { word: "not in toolset", why: "The toolset leaves it out. Include it to make a custom toolset.", included: false },
  c: {
    word: "changed",
    why: "Its server changed it. Open it to accept the change.",
    included: false,
    fixed: true,
    tag: true,
  },
  s: { word: "server off", why: "Its server is off.", included: false, fixed: true },
  a: {
    word: "app only",
    why: "Its server keeps it for its own app. No model is offered it.",
    included: false,
    fixed: true,
    barred: true,
    tag: true,
  },
  k: {
    word: "task only",
    why: "It runs only as a task, which is not supported. No model is offered it.",
    included: false,
    fixed: true,
    barred: true,
    tag: true,
  },
  x: {
    word: "excluded by config",
    why: "The config leaves it out (include_tools or exclude_tools).",
    included: false,
    fixed: true,
    barred: true,
  },
};

const UNKNOWN: Status = { word: "unknown", why: "", included: false, fixed: true, barred: true };

export function statusOf(letter: string): Status {
  return STATUSES[letter] ?? UNKNOWN;
}

export const MODES: readonly (readonly [Mode, string])[] = [
  ["loaded", "Loaded"],
  ["deferred", "Deferred"],
  ["off", "Off"],
];

export const STATES: Record<ServerInfo["state"], string> = {
  ready: "Ready",
  unlisted: "Tools not listed",
  starting: "Starting …",
  failed: "Failed",
  closed: "Closed",
};

const MODE_HELP: Record<Mode, string> = {
  loaded: "Its tools are sent with every request.",
  deferred: "The model finds its tools by search.",
  off: "The model never sees its tools.",
};

/** What the mode of a server means, and why another one may result. */
export function modeHelp({ mode, effective }: Pick<ServerInfo, "mode" | "effective">): string {
  if (mode === effective) return MODE_HELP[mode];
  const why = effective === "deferred" ? "Defer every server is on (under More)" : "discovery is off";
  return `Now ${effective}, because ${why}. ${MODE_HELP[effective]}`;
}

/** Whether a server cannot be used and says why. */
export const isBroken = (info: ServerInfo | undefined): boolean => info?.state === "failed" || info?.state === "unlisted";
