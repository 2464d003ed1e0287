// The states behind the chat panel, as `casual_mcp_nb/widgets/conversation.py`, `_asked.py`, `_transcript.py` make them.

import type { AppsState } from "../app/state";
import type { Unaccepted } from "../lib/TrustCard";
import type { LimitsState, TokensState } from "../tokens/state";

export type TurnStatus = "running" | "done" | "stopped" | "failed";

export interface TurnRow {
  number: number;
  prompt: string;
  /** The prompt as it was before it was edited at a pause. */
  before?: string;
  /** For each image of the prompt its address; empty where its bytes can be fetched. */
  images: string[];
  steps: number;
  status: TurnStatus;
  html: string;
  /** The apps of its calls, by id. */
  apps?: string[];
}

interface Asked {
  order: number;
  /** Where it can be answered: `input` is a prompt in the running cell. */
  channel: "input" | "panel";
}

export interface ApprovalAsked extends Asked {
  kind: "approval";
  server: string;
  tool: string;
  arguments: string;
  claims: string[];
  why: string;
  /** Answers with their labels, the suggested one first. */
  choices: [answer: string, label: string][];
  difference: string;
}

export interface Field {
  name: string;
  title: string;
  kind: "text" | "number" | "integer" | "boolean" | "choice" | "choices";
  description: string;
  required: boolean;
  default?: unknown;
  choices: [value: string, label: string][];
  minimum?: number;
  maximum?: number;
  format?: string;
}

export interface FormAsked extends Asked {
  kind: "form";
  server: string;
  message: string;
  /** Only for a sign-in: the page to open, and what follows. */
  address?: string;
  ending?: string;
  /** Only for the question whether an address may be used for a sign-in, which does not come from the server. */
  ours?: boolean;
  fields: Field[];
}

export interface LinkAsked extends Asked {
  kind: "link";
  server: string;
  message: string;
  address: string;
}

export interface StepAsked extends Asked {
  kind: "step";
  step: number;
  message: string;
  /** What the model reads next and can be edited. */
  texts: { key: string; label: string; text: string }[];
}

export type Question = ApprovalAsked | FormAsked | LinkAsked | StepAsked;

/** A call of the session, as `conversation.audit` returns it. */
export interface AuditRow {
  number: number;
  at: number;
  tool: string;
  caller: string;
  decided_by: string;
  status: string;
  outcome: string;
  seconds: string;
}

export interface ConversationState {
  /** The resources and prompts that go with the next message: their names by id. */
  attached?: Record<string, string>;
  turns: Record<string, TurnRow>;
  /** How many turns before these are not shown. */
  earlier: number;
  /** A message that is on its way. */
  pending?: string;
  busy: boolean;
  /** Whether a cell runs the turn and blocks, so that a click would arrive only after it. */
  in_cell: boolean;
  doing: string;
  said: string;
  models: [name: string, label: string][];
  model?: string;
  tool_sets: string[];
  tool_set?: string;
  custom: boolean;
  step_mode: boolean;
  examples: string[];
  image_limits: { each: number; together: number };
  questions: Record<string, Question>;
  /** How many calls of tools there were in the session. */
  calls: number;
  unaccepted?: Unaccepted;
}

/** A saved conversation. */
export interface ConversationRow {
  id: string;
  title: string;
  /** When it last changed, as ISO 8601 with its time zone. */
  changed: string;
  about: string;
}

/** Conversations as `conversations.found` returns them. */
export interface ConversationList {
  rows: ConversationRow[];
  /** How many there are, also those that are not among the rows. */
  total: number;
  /** The id of the one that is open. */
  current?: string | null;
}

/** The saved conversations, and the tools that this one has loaded; `casual_mcp_nb/widgets/conversation.py` makes it. */
export interface ConversationsState {
  /** Whether there is a place for conversations. */
  saves: boolean;
  /** Whether this one is saved there. */
  saved: boolean;
  /** Where they are saved, in a sentence. */
  note?: string;
  /** Another number after each change. */
  version: number;
  discovered: number;
  tools: string[];
  /** What is done with a cassette: "recording lesson.json". */
  cassette?: string;
}

export interface PanelState extends AppsState {
  conversation: ConversationState;
  conversations: ConversationsState;
  tokens: TokensState;
  limits: LimitsState;
}
