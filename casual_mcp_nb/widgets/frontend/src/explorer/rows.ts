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

/** The texts that the filter looks through, made once for the tools of a server. */
const texts = new WeakMap<readonly ToolEntry[], readonly string[]>();

function textsOf(tools: readonly ToolEntry[]): readonly string[] {
  const cached = texts.get(tools);
  if (cached) return cached;
  const fresh = tools.map(([name, wire, , claims = "", summary = ""]) => `${name} ${wire} ${claims} ${summary}`.toLowerCase());
  texts.set(tools, fresh);
  return fresh;
}

export function countTools(tools: SelectionState["tools"]): number {
  return Object.values(tools ?? {}).reduce((sum, each) => sum + each.length, 0);
}

/** Return the rows, and how many tools pass the filter: each of its words is in a tool's text or in its server's name. */
export function rowsOf({ order, servers, tools, fates }: Source, view: View): { rows: ListEntry[]; count: number } {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const grouped = view.order === "server";
  const rows: ListEntry[] = [];
  const matches: ToolRowEntry[] = [];
  let count = 0;
  for (const server of order) {
    const entries = tools?.[server] ?? [];
    const name = server.toLowerCase();
    const inText = words.filter((word) => !name.includes(word));
    const wanted = inText.length ? textsOf(entries) : null;
    const open = words.length > 0 || view.isOpen(server);
    const group: ToolRowEntry[] = [];
    let shown = 0;
    for (let index = 0; index < entries.length; index++) {
      if (wanted && !inText.every((word) => (wanted[index] as string).includes(word))) continue;
      shown++;
      if (grouped && !open) continue;
      const tool = entries[index] as ToolEntry;
      group.push({ kind: "tool", key: keyOfTool(tool[1]), server, tool, status: fates?.[server]?.[index] ?? "l", grouped });
    }
    count += shown;
    if (!grouped) {
      matches.push(...group);
      continue;
    }
    if (inText.length && !shown) continue;
    rows.push({ kind: "server", key: keyOfServer(server), server, shown, all: entries.length, open });
    if (isBroken(servers[server])) rows.push({ kind: "failure", key: `f:${server}`, server });
    rows.push(...group);
  }
  return { rows: grouped ? rows : matches.sort(COMPARE[view.order as keyof typeof COMPARE]), count };
}

const COMPARE = {
  tokens: (one: ToolRowEntry, other: ToolRowEntry) => other.tool[2] - one.tool[2],
  name: (one: ToolRowEntry, other: ToolRowEntry) => (one.tool[0] < other.tool[0] ? -1 : one.tool[0] > other.tool[0] ? 1 : 0),
};
