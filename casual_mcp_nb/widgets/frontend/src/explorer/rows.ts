// The rows of the list: which servers and tools it shows, in which order.

import type { SelectionState, ToolEntry } from "./state";
import { isBroken } from "./statuses";

export type Order = "server" | "tokens" | "name";

export interface ServerEntry {
  kind: "server";
  key: string;
  server: string;
  /** How many of its tools pass the filter, and how many there are. */
  shown: number;
  all: number;
  open: boolean;
}

export interface FailureEntry {
  kind: "failure";
  key: string;
  server: string;
}

export interface ToolRowEntry {
  kind: "tool";
  key: string;
  server: string;
  tool: ToolEntry;
  /** The letter of its status. */
  status: string;
  /** Whether the row of its server is above it. */
  grouped: boolean;
}

export type ListEntry = ServerEntry | FailureEntry | ToolRowEntry;

export const keyOfServer = (server: string) => `s:${server}`;
export const keyOfTool = (wire: string) => `t:${wire}`;

interface View {
  filter: string;
  order: Order;
  isOpen(server: string): boolean;
}

type Source = Pick<SelectionState, "order" | "servers" | "tools" | "fates">;

export function countTools(tools: SelectionState["tools"]): number {
  return Object.values(tools ?? {}).reduce((sum, each) => sum + each.length, 0);
}

/** The tools of a server as rows, and the texts that the filter looks through. */
interface Group {
  tools: readonly ToolEntry[];
  fates: string;
  grouped: boolean;
  rows: readonly ToolRowEntry[];
  texts: readonly string[] | null;
}

/** Makes the rows of one list. What stays the same from key to key in the filter stays the same object, down to the whole list. */
export class RowMaker {
  #groups = new Map<string, Group>();
  #others = new Map<string, ServerEntry | FailureEntry>();
  #sorted: { groups: readonly Group[]; order: Order; rows: readonly ToolRowEntry[] } | null = null;
  #before: readonly ListEntry[] = [];

  /** Return the rows, and how many tools pass the filter: each of its words is in a tool's text or in its server's name. */
  make({ order, servers, tools, fates }: Source, view: View): { rows: readonly ListEntry[]; count: number } {
    const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const grouped = view.order === "server";
    this.#groups = new Map(
      order.map((server) => [server, this.#group(server, tools?.[server] ?? NOTHING, fates?.[server] ?? "", grouped)]),
    );
    const rows: ListEntry[] = [];
    const passing = new Set<ToolRowEntry>();
    let count = 0;
    for (const [server, group] of this.#groups) {
      const name = server.toLowerCase();
      const inText = words.filter((word) => !name.includes(word));
      const matches = inText.length ? matching(group, inText) : group.rows;
      count += matches.length;
      if (!grouped) {
        if (words.length) for (const row of matches) passing.add(row);
        continue;
      }
      if (inText.length && !matches.length) continue;
      const open = words.length > 0 || view.isOpen(server);
      const shown = matches.length;
      rows.push(this.#kept({ kind: "server", key: keyOfServer(server), server, shown, all: group.rows.length, open }));
      if (isBroken(servers[server])) rows.push(this.#kept({ kind: "failure", key: `f:${server}`, server }));
      if (open) for (const row of matches) rows.push(row);
    }
    if (grouped) return { rows: this.#same(rows), count };
    const sorted = this.#sort([...this.#groups.values()], view.order);
    return { rows: this.#same(words.length ? sorted.filter((row) => passing.has(row)) : sorted), count };
  }

  /** Make the texts of one server before a key in the filter asks for them; return whether there was one without. */
  prepare(): boolean {
    for (const group of this.#groups.values()) {
      if (group.texts) continue;
      group.texts = textsOf(group.tools);
      return true;
    }
    return false;
  }

  #group(server: string, tools: readonly ToolEntry[], fates: string, grouped: boolean): Group {
    const before = this.#groups.get(server);
    if (before?.tools === tools && before.fates === fates && before.grouped === grouped) return before;
    const rows = tools.map((tool, index): ToolRowEntry => {
      const old = before?.rows[index];
      const status = fates[index] ?? "l";
      if (old?.tool === tool && old.status === status && old.grouped === grouped) return old;
      return { kind: "tool", key: keyOfTool(tool[1]), server, tool, status, grouped };
    });
    return { tools, fates, grouped, rows, texts: before?.tools === tools ? before.texts : null };
  }

  /** Return the row that there was before where nothing of it changed. */
  #kept<E extends ServerEntry | FailureEntry>(fresh: E): E {
    const old = this.#others.get(fresh.key) as E | undefined;
    if (old && (Object.keys(fresh) as (keyof E)[]).every((name) => old[name] === fresh[name])) return old;
    this.#others.set(fresh.key, fresh);
    return fresh;
  }

  #sort(groups: readonly Group[], order: Order): readonly ToolRowEntry[] {
    const before = this.#sorted;
    if (before?.order === order && isSame(before.groups, groups)) return before.rows;
    const rows = groups.flatMap((group) => group.rows).sort(COMPARE[order as keyof typeof COMPARE]);
    this.#sorted = { groups, order, rows };
    return rows;
  }

  #same(rows: readonly ListEntry[]): readonly ListEntry[] {
    if (!isSame(this.#before, rows)) this.#before = rows;
    return this.#before;
  }
}

const NOTHING: readonly ToolEntry[] = [];

function textsOf(tools: readonly ToolEntry[]): readonly string[] {
  return tools.map(([name, wire, , claims = "", summary = ""]) => `${name} ${wire} ${claims} ${summary}`.toLowerCase());
}

function matching(group: Group, words: readonly string[]): readonly ToolRowEntry[] {
  group.texts ??= textsOf(group.tools);
  const texts = group.texts;
  return group.rows.filter((_, index) => words.every((word) => (texts[index] as string).includes(word)));
}

function isSame<T>(one: readonly T[], other: readonly T[]): boolean {
  return one.length === other.length && one.every((each, index) => each === other[index]);
}

const COMPARE = {
  tokens: (one: ToolRowEntry, other: ToolRowEntry) => other.tool[2] - one.tool[2],
  name: (one: ToolRowEntry, other: ToolRowEntry) => (one.tool[0] < other.tool[0] ? -1 : one.tool[0] > other.tool[0] ? 1 : 0),
};
