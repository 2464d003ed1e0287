// Which rows are shown, and what each says.

import type { Row } from "../lib/RowList";
import { number } from "../lib/words";
import type { CaseRow, RunsState } from "./state";

export interface CaseEntry extends Row {
  kind: "case";
  row: CaseRow;
}

/** Which rows a person wants to see. Empty texts leave everything in. */
export interface Filter {
  text: string;
  /** The number of an arm. */
  arm: string;
  /** A group of failures, or a state. */
  outcome: string;
}

export const NO_FILTER: Filter = { text: "", arm: "", outcome: "" };

/** The states of rows, beside the groups of failures. */
export const STATES = ["right", "not right", "not judged", "not made", "running", "waiting"] as const;

export type Mark = "right" | "wrong" | "part" | "not judged" | "not made" | "running" | "waiting";

/** What has become of the runs of a row. */
export function markOf(row: CaseRow): Mark {
  if (!row.ended) return row.active ? "running" : "waiting";
  if (row.active && row.ended < row.planned) return "running";
  if (!row.made) return "not made";
  if (row.right === row.made) return "right";
  if (row.right) return "part";
  return row.judged ? "wrong" : "not judged";
}

/** "3/3 right", "1/3 wrong tool". */
export function words(row: CaseRow): string {
  if (!row.ended) return markOf(row);
  const count = row.planned > 1 && row.judged ? `${row.right}/${row.judged} ` : "";
  const outcomes = row.outcomes?.length ? row.outcomes : ["right"];
  return count + [...outcomes, row.active && "running"].filter(Boolean).join(" · ");
}

/** Whether a row has a state, or a run in a group of failures. */
export function hasOutcome(row: CaseRow, outcome: string): boolean {
  switch (outcome) {
    case "right":
      return markOf(row) === "right";
    case "not right":
      return (row.outcomes ?? []).some((each) => each !== "not made" && each !== "not judged");
    case "running":
      return row.active === true;
    case "waiting":
      return !row.ended && !row.active;
    default:
      return row.outcomes?.includes(outcome) ?? false;
  }
}

function matches(row: CaseRow, arm: string, words: readonly string[]): boolean {
  const text = [row.case, arm, row.message, row.detail, row.tools, ...(row.outcomes ?? [])].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Makes the entries of the list. An entry whose row is the same stays the same, so that it is not drawn again. */
export class EntryMaker {
  #entries = new Map<string, CaseEntry>();

  make({ rows, arms }: RunsState["runs"], { text, arm, outcome }: Filter): CaseEntry[] {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const result: CaseEntry[] = [];
    for (const [key, row] of Object.entries(rows)) {
      if (arm && String(row.arm) !== arm) continue;
      if (outcome && !hasOutcome(row, outcome)) continue;
      if (words.length && !matches(row, arms[row.arm]?.name ?? "", words)) continue;
      const before = this.#entries.get(key);
      const entry: CaseEntry = before?.row === row ? before : { key, kind: "case", row };
      this.#entries.set(key, entry);
      result.push(entry);
    }
    return result;
  }
}

/** How many rows have each outcome, those of all arms or of one. */
export function counts({ rows, groups }: RunsState["runs"], arm: string): [outcome: string, count: number][] {
  const shown = Object.values(rows).filter((row) => !arm || String(row.arm) === arm);
  return [...STATES, ...groups].map((outcome) => [outcome, shown.filter((row) => hasOutcome(row, outcome)).length]);
}

/** "38%". */
export function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** "0.42 s", "12 s", "3 min 5 s". */
export function duration(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** "≈ 1,204", or a dash. */
export function amount(value: number | undefined, origin: string | undefined): string {
  return value === undefined ? "–" : `${origin === "estimated" ? "≈ " : ""}${number.format(Math.round(value))}`;
}

/** "0.0042 USD". */
export function money(value: number, currency = ""): string {
  return `${Number(value.toPrecision(2)).toString()} ${currency}`.trim();
}
