// The state of the widget, as `RunsState` in `casual_mcp_nb/widgets/runs.py` makes it.

import type { Origin } from "../tokens/state";

export type Status = "running" | "done" | "stopped" | "over budget" | "failing";

export interface Arm {
  name: string;
  made: number;
  not_made: number;
  /** Of the `made` ones, those that a judge model should grade and has not. */
  not_graded: number;
  /** The share of right runs with its interval, once there is a run. */
  right?: number;
  low?: number;
  high?: number;
  tokens?: number;
  all_tokens: number;
  origin: Origin;
  cost?: number;
  all_cost?: number;
  currency?: string;
  seconds?: number;
}

/** A case in an arm. What follows `planned` is there once a run of it has begun. */
export interface CaseRow {
  case: string;
  /** The number of the arm. */
  arm: number;
  planned: number;
  active?: boolean;
  ended?: number;
  right?: number;
  /** Those that are right or wrong. */
  judged?: number;
  made?: number;
  /** The groups of the runs that are not right, "not judged" and "not made". */
  outcomes?: string[];
  message?: string;
  detail?: string;
  tools?: string;
  tokens?: number;
  origin?: Origin;
  cost?: number;
  seconds?: number;
}

export interface RunsState {
  runs: {
    status: Status;
    problem: string;
    ended: number;
    planned: number;
    reused: number;
    seconds: number;
    groups: string[];
    arms: Record<string, Arm>;
    rows: Record<string, CaseRow>;
  };
}

/** A run with its transcript. */
export interface RunDetail {
  row: string;
  repeat: number;
  repeats: { repeat: number; mark: string }[];
  case: string;
  arm: string;
  outcome: string;
  right?: boolean;
  detail: string;
  parameters: string[];
  needed: string[];
  called: string[];
  model: string;
  tokens?: number;
  origin: Origin;
  seconds: number;
  cost?: number;
  currency?: string;
  turns: { prompt: string; html: string }[];
}
