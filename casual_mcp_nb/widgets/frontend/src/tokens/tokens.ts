// What the token meter says, in words and in lengths.

import { counted, number, tokens } from "../lib/words";
import type { Origin, StepTokens, TokensState, TokensSum } from "./state";

export interface TurnTokens {
  turn: number;
  sum: TokensSum;
  steps: StepTokens[];
}

/** The turns whose steps are shown, each with its steps, in order. */
export function byTurn({ rows, turns }: TokensState): TurnTokens[] {
  const steps = Object.values(rows).sort((one, other) => one.turn - other.turn || one.step - other.step);
  return Object.entries(turns)
    .map(([turn, sum]) => ({ turn: Number(turn), sum, steps: steps.filter((step) => step.turn === Number(turn)) }))
    .filter((group) => group.steps.length > 0)
    .sort((one, other) => one.turn - other.turn);
}

/** "≈ 824" for an estimate, "824" for what a provider reported. */
export function amount(count: number, origin: Origin | undefined): string {
  return `${origin === "estimated" ? "≈ " : ""}${number.format(count)}`;
}

export function tokensIn(sum: TokensSum): string {
  return sum.steps ? `${tokens(sum.sent, sum.origin)} in` : "nothing sent yet";
}

/** "62% reused"; empty where there is no step before. */
export function reusedInWords(sum: Pick<TokensSum, "reused" | "sent">): string {
  return sum.reused === undefined ? "" : `${Math.round((100 * sum.reused) / Math.max(1, sum.sent))}% reused`;
}

export function tokensOut(sum: TokensSum): string {
  return sum.answer === undefined ? "output tokens not reported" : `${tokens(sum.answer, sum.answer_origin)} out`;
}

/** "Turn 1: 2 steps, ≈ 824 tokens in, output tokens not reported" */
export function turnInWords({ turn, sum }: TurnTokens): string {
  return `Turn ${turn}: ${counted(sum.steps, "step")}, ${tokensIn(sum)}, ${tokensOut(sum)}`;
}

/** "System prompt 12, Messages 3": the parts that are not empty. */
export function partsInWords(values: readonly number[], names: readonly string[]): string {
  const named = names.map((name, index) => [name, values[index] ?? 0] as const);
  return named
    .filter(([, value]) => value > 0)
    .map(([name, value]) => `${name} ${number.format(value)}`)
    .join(", ");
}
