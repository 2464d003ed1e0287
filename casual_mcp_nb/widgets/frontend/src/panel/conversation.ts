// What the panel says about a conversation, in words and in order.

import type { ConversationState, Question, TurnRow } from "./state";

export interface Keyed<T> {
  key: string;
  row: T;
}

/** The turns that are shown, oldest first. */
export function turnsInOrder(turns: Record<string, TurnRow>): Keyed<TurnRow>[] {
  return Object.entries(turns)
    .map(([key, row]) => ({ key, row }))
    .sort((one, other) => one.row.number - other.row.number);
}

/** The questions that wait, oldest first. */
export function questionsInOrder(questions: Record<string, Question>): Keyed<Question>[] {
  return Object.entries(questions)
    .map(([key, row]) => ({ key, row }))
    .sort((one, other) => one.row.order - other.row.order);
}

/** What becomes of the turns when one is edited, `after` being how many follow it. */
export function replaces(after: number): string {
  if (!after) return "This replaces the turn.";
  return `This replaces this turn and removes the ${after === 1 ? "one" : after} after it.`;
}

/** When something was: the time of today, else the date. */
export function when(iso: string, now: Date = new Date()): string {
  const at = new Date(iso);
  if (at.toDateString() === now.toDateString()) return at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const year = at.getFullYear() === now.getFullYear() ? {} : ({ year: "numeric" } as const);
  return at.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...year });
}

/** What starting over removes. */
export function clears(turns: number): string {
  return `Start over? This clears ${turns === 1 ? "1 turn" : `${turns} turns`} and the tools found in ${turns === 1 ? "it" : "them"}.`;
}

/** What happens now, for the foot line; empty when nothing does. */
export function activity({ busy, pending, in_cell, doing, questions }: ConversationState): string {
  if (!busy) return pending ? doing || "Sending …" : "";
  const now = Object.keys(questions).length ? "Waiting for you" : doing || "Starting …";
  return in_cell ? `${now} · A cell runs this turn: ■ in the toolbar stops it.` : now;
}

/** A question for those who hear it. */
export function questionInWords(question: Question): string {
  if (question.channel !== "panel") return "The running cell asks you something: answer in the box below it.";
  switch (question.kind) {
    case "approval":
      return `Waiting for you. Allow ${question.server} to run ${question.tool}?`;
    case "step":
      return `Waiting for you. Paused before step ${question.step}.`;
    default:
      return `Waiting for you. Server ${question.server} asks: ${question.message}`;
  }
}

/** What a screen reader says after a change: a new question, or else what became of the turn. */
export function announcement(before: ConversationState, now: ConversationState): string | undefined {
  const fresh = questionsInOrder(now.questions).filter(({ key }) => !(key in before.questions));
  const last = fresh.at(-1);
  if (last) return questionInWords(last.row);
  return now.said !== before.said ? now.said : undefined;
}
