// What requests and turns cost: the rows of the budget table, and what it says in a sentence.

import { compared, counted } from "../lib/words";
import type { BudgetState, Cost, SelectionState } from "./state";

const MAX_SERVERS = 12;

export interface BudgetRow {
  key: string;
  label: string;
  now: number;
  before: number | undefined;
  undeferred: number;
}

const WHOLE: readonly (readonly [key: string, label: string, read: (cost: Cost) => number | undefined])[] = [
  ["all", "Tool definitions", (cost) => cost.total],
  ["first", "First request: system prompt and tool definitions", (cost) => cost.first_request],
  ["turn", "A turn with one search and one call", (cost) => cost.turn],
  ["ten", "Ten turns, three of them with a search", (cost) => cost.ten_turns],
  ["worst", "At worst: each of the ten searches for other tools", (cost) => cost.ten_turns_worst],
];

/** Return the rows of whole requests and turns. */
export function wholeRows({ now, before, undeferred }: BudgetState): BudgetRow[] {
  return WHOLE.flatMap(([key, label, read]) => {
    const [present, loaded] = [read(now), read(undeferred)];
    if (present === undefined || loaded === undefined) return [];
    return [{ key, label, now: present, before: before && read(before), undeferred: loaded }];
  });
}

/** Return the parts of the first request: servers, the largest first and the last of many together, then what finds tools. */
export function partRows({ now, before, undeferred }: BudgetState, order: readonly string[]): BudgetRow[] {
  const rows = order.map((name) => ({
    key: `s:${name}`,
    label: name,
    now: now.servers[name] ?? 0,
    before: before && (before.servers[name] ?? 0),
    undeferred: undeferred.servers[name] ?? 0,
  }));
  const used = rows.filter((row) => row.now || row.before || row.undeferred);
  used.sort((one, other) => other.now - one.now || other.undeferred - one.undeferred);
  const others = used.splice(MAX_SERVERS);
  if (others.length) {
    const sum = (read: (row: BudgetRow) => number) => others.reduce((total, row) => total + read(row), 0);
    used.push({
      key: "others",
      label: counted(others.length, "more server"),
      now: sum((row) => row.now),
      before: before && sum((row) => row.before ?? 0),
      undeferred: sum((row) => row.undeferred),
    });
  }
  for (const [key, label] of [
    ["finder", "search tool"],
    ["manifest", "manifest"],
  ] as const)
    if (now[key] || before?.[key]) used.push({ key, label, now: now[key], before: before?.[key], undeferred: 0 });
  return used;
}

/** "a turn costs 60% less than with every tool loaded", or more; empty where nothing is deferred. */
export function headlineSaving({ budget, manifest }: Pick<SelectionState, "budget" | "manifest">): string {
  const [now, loaded] = [budget.now.turn, budget.undeferred.turn];
  if (!manifest.tools || now === undefined || loaded === undefined) return "";
  const share = compared(now, loaded);
  return share === "the same"
    ? "a turn costs the same as with every tool loaded"
    : `a turn costs ${share} than with every tool loaded`;
}

const COMPARED: readonly (readonly [text: string, read: (cost: Cost) => number | undefined])[] = [
  ["the tool definitions", (cost) => cost.total],
  ["a turn with a search", (cost) => cost.turn],
  ["ten turns with three searches", (cost) => cost.ten_turns],
];

/** What deferring saves and what it costs in this set-up, in a sentence. */
export function verdict({ budget, manifest }: Pick<SelectionState, "budget" | "manifest">): string {
  if (!manifest.tools) return "Nothing is deferred.";
  const saved: string[] = [];
  const costlier: string[] = [];
  for (const [text, read] of COMPARED) {
    const [now, loaded] = [read(budget.now), read(budget.undeferred)];
    if (now === undefined || loaded === undefined || compared(now, loaded) === "the same") continue;
    const share = compared(now, loaded).replace(/ .*/, "");
    if (now < loaded) saved.push(`${share} of ${text}`);
    else costlier.push(`${share} more for ${text}`);
  }
  const parts = [saved.length && `saves ${listed(saved)}`, costlier.length && `costs ${listed(costlier)}`].filter(Boolean);
  return parts.length ? `Deferring ${parts.join(", but ")}.` : "Deferring makes no difference here.";
}

function listed(texts: readonly string[]): string {
  return texts.length < 3 ? texts.join(" and ") : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`;
}
