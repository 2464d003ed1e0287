// The state behind the token meter, as `casual_mcp_nb/widgets/conversation.py` makes it.

export type Origin = "estimated" | "reported";

export interface StepTokens {
  turn: number;
  step: number;
  /** Tokens of the request by part. */
  parts: number[];
  sent: number;
  /** Estimated tokens at its beginning that are the same as in the request before. */
  reused?: number;
  origin: Origin;
  answer?: number;
  answer_origin?: Origin;
}

export interface TokensSum {
  parts: number[];
  sent: number;
  reused?: number;
  origin: Origin;
  steps: number;
  answer?: number;
  answer_origin?: Origin;
}

export interface TokensState {
  /** What the parts of a request are called. */
  parts: string[];
  /** By turn and step, as "1.2". */
  rows: Record<string, StepTokens>;
  /** How many steps before these are not shown. */
  earlier: number;
  turns: Record<string, TokensSum>;
  all: TokensSum;
}

/** The state behind the spend limits, as `casual_mcp_nb/widgets/limits.py` makes it. */
export interface LimitsState {
  /** Each limit with what is used of it: "$0.42 of $1.00 today". */
  used: string[];
}
