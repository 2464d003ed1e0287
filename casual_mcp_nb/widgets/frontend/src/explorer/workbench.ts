// What a person has chosen in one view of the explorer. It stays in the page; what the session decides is in its state.

import { signal } from "@preact/signals";
import type { RowListHandle } from "../lib/RowList";
import type { ToolsetDraft } from "./draft";
import { keyOfServer, keyOfTool, type Order } from "./rows";
import type { CallResult } from "./state";

export type Choice = { kind: "tool"; server: string; name: string } | { kind: "server"; server: string };
export type TabKey = "tool" | "search" | "budget" | "manifest" | "resources" | "tasks";
export type Task = "add server";

/** What is looked for in one search box. */
export class SearchRequest {
  readonly query = signal("");
  /** Where to look, once a person has said so; before that, where the model looks. */
  readonly scope = signal<"deferred" | "all" | null>(null);
  /** The tool whose rank is explained, whether it was found or not. */
  readonly explained = signal("");
  /** Counts how often the query is to have the focus. */
  readonly focus = signal(0);
}

/** What was filled in for a tool, and what its last run returned. */
export interface Trial {
  values: Record<string, string>;
  result?: CallResult & { title: string };
}

const FEW_TOOLS = 100;

export class Workbench {
  readonly filter = signal("");
  readonly order = signal<Order>("server");
  readonly choice = signal<Choice | null>(null);
  readonly tab = signal<TabKey>("tool");
  /** What covers the tabs for a while. */
  readonly task = signal<Task | null>(null);
  /** The toolset that is edited: the ticks of the list are then those of it. */
  readonly draft = signal<ToolsetDraft | null>(null);
  /** Counts how often the card was to have the focus, and how often it got it. */
  readonly cardFocus = signal(0);
  cardFocused = 0;
  /** The part of a server's card that is to be open. */
  readonly serverPart = signal<"log" | null>(null);
  readonly search = new SearchRequest();
  readonly trials = new Map<string, Trial>();
  readonly list: { current: RowListHandle | null } = { current: null };
  #opener: HTMLElement | null = null;
  #editOpener: HTMLElement | null = null;
  readonly #opened = signal<ReadonlyMap<string, boolean>>(new Map());

  /** Whether the tools of a server are in the list: until a person says otherwise, all of a few. */
  isOpen(server: string, tools: number): boolean {
    return this.#opened.value.get(server) ?? tools <= FEW_TOOLS;
  }

  setOpen(servers: readonly string[], open: boolean): void {
    this.#opened.value = new Map([...this.#opened.value, ...servers.map((server) => [server, open] as const)]);
  }

  /** Show the card of a tool or a server; with `focus` the keyboard goes there too. */
  choose(choice: Choice, { focus = false } = {}): void {
    const key = keyOf(choice);
    if (!this.choice.value || keyOf(this.choice.value) !== key) this.serverPart.value = null;
    this.choice.value = choice;
    this.tab.value = "tool";
    this.task.value = null;
    if (focus) this.cardFocus.value++;
  }

  /** Show a tool that was met elsewhere, in the list too. */
  reveal(server: string, name: string): void {
    if (this.order.value === "server") this.setOpen([server], true);
    this.choose({ kind: "tool", server, name }, { focus: true });
    setTimeout(() => this.list.current?.reveal(keyOfTool(name)));
  }

  /** Cover the tabs with a task; its opener gets the focus back. */
  begin(task: Task, opener: HTMLElement): void {
    this.#opener = opener;
    this.task.value = task;
  }

  endTask(): void {
    this.task.value = null;
    this.#opener?.focus();
  }

  /** Let the ticks of the list be those of a toolset; the opener gets the focus back. */
  beginEdit(draft: ToolsetDraft, opener: HTMLElement): void {
    this.#editOpener = opener;
    this.draft.value = draft;
  }

  endEdit(): void {
    this.draft.value = null;
    this.#editOpener?.focus();
  }

  /** Show a server that was added. */
  added(server: string): void {
    if (this.task.value !== "add server") return;
    this.choose({ kind: "server", server }, { focus: true });
    setTimeout(() => this.list.current?.reveal(keyOfServer(server)));
  }

  /** Explain the rank of a tool in the search tab. */
  explain(name: string): void {
    this.search.explained.value = name;
    this.search.focus.value++;
    this.tab.value = "search";
  }

  backToList(): void {
    const choice = this.choice.value;
    this.list.current?.focus(choice ? keyOf(choice) : undefined);
  }
}

export function keyOf(choice: Choice): string {
  return choice.kind === "tool" ? keyOfTool(choice.name) : keyOfServer(choice.server);
}
