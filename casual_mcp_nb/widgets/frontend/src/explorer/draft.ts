// A toolset while it is edited: the ticks of the list, before anything of it is used or saved.

import { signal } from "@preact/signals";
import type { Rule, SelectionState, ToolEntry } from "./state";
import { statusOf } from "./statuses";

/** What `selection.draft` returns: the rules, and for each connected server the names on the wire of the tools in them. */
export interface DraftData {
  description?: string;
  servers: Record<string, Rule>;
  ticked: Record<string, readonly string[]>;
}

interface Tools {
  tools?: SelectionState["tools"] | undefined;
  fates?: SelectionState["fates"] | undefined;
}

export class ToolsetDraft {
  readonly name = signal("");
  readonly description = signal("");
  readonly ticked = signal<ReadonlySet<string>>(new Set());
  readonly #rules: Record<string, Rule>;
  /** The servers whose ticks were changed: the others keep their rule, which can include tools that are not there yet. */
  readonly #touched = new Set<string>();

  /** `original` is the saved toolset that is edited; without one, the toolset is new. */
  constructor(
    data: DraftData,
    readonly original = "",
  ) {
    this.name.value = original;
    this.description.value = original ? (data.description ?? "") : "";
    this.ticked.value = new Set(Object.values(data.ticked).flat());
    this.#rules = data.servers;
  }

  /** Tick tools of one server, or remove their ticks. */
  tick(server: string, wires: Iterable<string>, on: boolean): void {
    const ticked = new Set(this.ticked.value);
    for (const wire of wires) on ? ticked.add(wire) : ticked.delete(wire);
    this.#touched.add(server);
    this.ticked.value = ticked;
  }

  /** The toolset as the kernel takes it. */
  arguments(tools: SelectionState["tools"]): DraftData {
    const touched = [...this.#touched];
    const wires = (server: string) =>
      (tools?.[server] ?? []).map(([, wire]) => wire).filter((wire) => this.ticked.value.has(wire));
    return {
      description: this.description.value,
      servers: Object.fromEntries(Object.entries(this.#rules).filter(([server]) => !this.#touched.has(server))),
      ticked: Object.fromEntries(touched.map((server) => [server, wires(server)])),
    };
  }
}

/** The tools of a server that a toolset can include. */
export function tickable({ tools, fates }: Tools, server: string): readonly ToolEntry[] {
  return (tools?.[server] ?? []).filter((_, index) => !statusOf(fates?.[server]?.[index] ?? "l").barred);
}

/** How many of these tools are ticked, and what they cost. */
export function sumOf(tools: readonly ToolEntry[], ticked: ReadonlySet<string>): { count: number; tokens: number } {
  const inside = tools.filter(([, wire]) => ticked.has(wire));
  return { count: inside.length, tokens: inside.reduce((sum, [, , cost]) => sum + cost, 0) };
}
