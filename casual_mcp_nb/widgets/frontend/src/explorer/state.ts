import type { WithResources } from "../resources/state";

// The states behind the explorer, as `casual_mcp_nb/widgets/selection.py` and `search.py` make them. All tokens are estimated.

import type { Unaccepted } from "../lib/TrustCard";
import type { LimitsState } from "../tokens/state";

export type Mode = "loaded" | "deferred" | "off";

export interface ServerInfo {
  state: "ready" | "unlisted" | "starting" | "failed" | "closed";
  /** The chosen mode, and the one that results: all can be deferred, and discovery can be off. */
  mode: Mode;
  effective: Mode;
  tools: number;
  /** How many of its tools the selection includes, and what these cost. */
  inside: number;
  tokens: number;
  all_tokens: number;
  transport: string;
  /** The version of the protocol and how it was agreed on, its extensions, and what it uses that is deprecated, in words. */
  protocol?: string;
  extensions?: string;
  deprecated?: string;
  /** Why it failed, and the end of what it wrote. */
  error?: string;
  tail?: string;
  /** How long it took to start, in words. */
  seconds?: string;
  instructions?: string;
}

/** Name, name on the wire, tokens, what the server claims of it (words with blanks between), summary; empty values at the end are left out. */
export type ToolEntry = readonly [name: string, wire: string, tokens: number, claims?: string, summary?: string];

/** A rule of a toolset: every tool, these, or all but these. */
export type Rule = true | readonly string[] | { exclude: readonly string[] };

export interface ToolSet {
  description?: string;
  servers: Record<string, Rule>;
}

export interface ToolSetsState {
  order: readonly string[];
  known: Record<string, ToolSet & { size: number }>;
  /** Name of the config file; empty without one. */
  file: string;
  selected?: string;
  /** A custom toolset that is in use. */
  own?: ToolSet;
}

export interface Cost {
  total: number;
  servers: Record<string, number>;
  finder: number;
  manifest: number;
  first_request?: number;
  turn?: number;
  ten_turns?: number;
  ten_turns_worst?: number;
}

export interface BudgetState {
  now: Cost;
  before?: Cost;
  undeferred: Cost;
}

export interface ManifestState {
  text?: string;
  tokens: number;
  tools: number;
}

export interface SelectionState {
  order: readonly string[];
  servers: Record<string, ServerInfo>;
  options: { discovery: boolean | "auto"; defer_all: boolean; strategy: "search" | "browse"; delivery: string } & Record<
    string,
    unknown
  >;
  /** The options that are numbers. */
  limits: Record<string, { label: string; help: string }>;
  tool_sets: ToolSetsState;
  budget: BudgetState;
  manifest: ManifestState;
  /** What is wrong with the selection. */
  problem?: string;
  /** The tools of each server, and a letter for the status of each, see `statuses.ts`; not in the small widgets. */
  tools?: Record<string, readonly ToolEntry[]>;
  fates?: Record<string, string>;
  /** What each bundled server is for. */
  bundled_names?: Record<string, string>;
  unaccepted?: Unaccepted;
  /** How often the person ran each tool, by its name on the wire. */
  calls?: Record<string, number>;
}

export interface SearchState {
  deferred: number;
  all: number;
  cut: number;
}

/** A task as `%mcp tasks` shows it. */
export interface TaskRow {
  tool: string;
  /** Its number and its state, in words. */
  state: string;
  progress: string;
  age: string;
  status: string;
  over: boolean;
}

export interface TasksState {
  /** By number; none until there has been a task. */
  rows: Record<string, TaskRow>;
  /** How many earlier ones there are, in words. */
  more?: string;
  /** How many run, in words. */
  note?: string;
  how_to_answer?: string;
}

export interface ExplorerState extends WithResources {
  selection: SelectionState;
  search: SearchState;
  tasks: TasksState;
  limits: LimitsState;
}

export interface Field {
  name: string;
  type: string;
  required: boolean;
  description: string;
  kind: "string" | "integer" | "number" | "boolean" | "choice" | "json";
  choices?: readonly string[];
  default?: string;
}

/** What `selection.tool` returns. */
export interface ToolDetail {
  name: string;
  wire_name: string;
  server: string;
  title: string;
  description: string;
  badges: readonly string[];
  destructive: boolean;
  tokens: number;
  fields: readonly Field[];
  schema: string;
  /** The parameters whose values are repeated in HTTP headers, in words. */
  headers?: string;
  result_schema?: string;
  change?: { diff: string; blocked: boolean };
}

/** What `selection.try_tool` returns. */
export interface CallResult {
  html: string;
  status: string;
  id?: string;
}

/** A call that the person made. */
export interface CallRow {
  id: string;
  at: number;
  tool: string;
  arguments: string;
  status: string;
  seconds: string;
}

export interface LogLine {
  at: number;
  level: string;
  text: string;
}

export interface RpcMessage {
  at: number;
  direction: "sent" | "received";
  method: string;
  tool: string;
  text: string;
}

export interface WireMessage {
  at: number;
  direction: "sent" | "received";
  kind: "request" | "response" | "error" | "notification" | "http";
  method: string;
  id: string;
  /** In words, as the time is; empty for what has none. */
  size: string;
  seconds: string;
  /** That of HTTP, or 0. */
  status: number;
  /** The message, and the halves of its HTTP exchange; not of early messages. */
  text?: string;
  request?: string;
  response?: string;
}

/** A request with all that belongs to it, in all of its rounds. */
export interface WireGroup {
  number: number;
  method: string;
  tool: string;
  at: number;
  seconds: string;
  rounds: number;
  ended: "ok" | "error" | "open";
  messages: readonly WireMessage[];
  hidden: number;
}

/** What `selection.wire` returns, the newest first. */
export interface Wire {
  groups: readonly WireGroup[];
  hidden: number;
  dropped: number;
}

export interface Hit {
  name: string;
  wire_name: string;
  server: string;
  summary: string;
  rank: number;
  score: number;
  /** The score relative to the best one. */
  share: number;
}

/** What `search.search` returns. */
export interface Ranked {
  query: string;
  cut: number;
  searched: number;
  hits: readonly Hit[];
  /** Words, or words and meaning. */
  ranked_by?: string;
  /** Why meaning does not count, where the session has an embedding model. */
  note?: string;
}
