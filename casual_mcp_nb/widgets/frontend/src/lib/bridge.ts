// The connection of one view to its widget in the kernel: the state, its changes, and calls of commands.

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type Json, mergePatch } from "./merge_patch";

/** What anywidget gives a front end, as far as it is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  send(content: unknown): void;
  on(event: string, listener: (content: Message) => void): void;
  off(event: string, listener: (content: Message) => void): void;
}

interface Message {
  id?: string;
  patch?: Json;
  result?: unknown;
  error?: string;
  /** The kernel has the request, and works on it. */
  working?: boolean;
}

interface Waiting {
  resolve(result: unknown): void;
  reject(error: Error): void;
  timer: ReturnType<typeof setTimeout> | undefined;
  /** How often it was sent since the kernel last said anything about it. */
  unheard: number;
}

export const GONE =
  "The kernel restarted. To continue: %load_ext casual_mcp_nb, then %mcp resume. Or run the notebook from the top.";

export const UNANSWERED =
  "The kernel does not answer: it may be busy with a cell, or this page has lost it. Try again, or reload the page.";
/** When a request without an answer is sent again, in milliseconds. The kernel does it once. */
export const AGAIN_MS = 10_000;
/** How often it is sent before it counts as unanswered. */
export const MOST_SENT = 3;

/** Once for each model, whoever looks at it: patches are merged into its state. */
export function followPatches(model: Model): () => void {
  const onMessage = (message: Message) => {
    if (message?.patch) model.set("state", mergePatch(model.get("state") as Json, message.patch));
  };
  model.on("msg:custom", onMessage);
  return () => model.off("msg:custom", onMessage);
}

/** Once for each view. `S` is the state of the widget, by the names of its states in Python. */
export class Bridge<S> {
  /** The present state. */
  readonly state: ReadonlySignal<S>;
  /** Whether the kernel still knows the widget. */
  readonly live = signal(true);
  /** The last error of a command, for a person; null after one that succeeded. */
  readonly error: Signal<string | null> = signal(null);
  /** What a screen reader says next. */
  readonly announcement = signal("");

  #waiting = new Map<string, Waiting>();
  #page = Math.random().toString(36).slice(2);
  #count = 0;
  #model: Model;
  #listeners: [string, (content: Message) => void][];

  constructor(model: Model) {
    const state = signal(model.get("state") as S);
    this.state = state;
    this.#model = model;
    this.#listeners = [
      ["msg:custom", (message) => this.#onMessage(message)],
      ["change:state", () => (state.value = model.get("state") as S)],
      // The front end tells that the connection changed, but not how; a message without a command finds out and changes nothing.
      ["comm_live_update", () => setTimeout(() => this.#send({ id: null, call: "" }))],
    ];
    for (const [event, listener] of this.#listeners) model.on(event, listener);
  }

  /** Run a command of a state, as `name.command`; reject with an error whose message is for a person. */
  request<T>(command: string, args: object = {}): Promise<T> {
    const id = `${this.#page}-${this.#count++}`;
    return new Promise((resolve, reject) => {
      const message = { id, call: command, args };
      const again = () => {
        if (waiting.unheard === MOST_SENT) return this.#settle(id, { error: UNANSWERED });
        waiting.unheard++;
        if (!this.#send(message)) return this.#settle(id, { error: GONE });
        waiting.timer = setTimeout(again, AGAIN_MS);
      };
      const waiting: Waiting = { resolve: resolve as (result: unknown) => void, reject, timer: undefined, unheard: 0 };
      this.#waiting.set(id, waiting);
      again();
    });
  }

  /** Run a command; an error shows in the widget, and undefined comes back. */
  async call<T = null>(command: string, args: object = {}): Promise<T | undefined> {
    try {
      const result = await this.request<T>(command, args);
      this.error.value = null;
      return result;
    } catch (error) {
      this.error.value = (error as Error).message;
      return undefined;
    }
  }

  /** Have a screen reader say a text. */
  say(text: string): void {
    this.announcement.value = text;
  }

  close(): void {
    for (const { timer } of this.#waiting.values()) clearTimeout(timer);
    for (const [event, listener] of this.#listeners) this.#model.off(event, listener);
  }

  #send(message: object): boolean {
    try {
      this.#model.send(message);
      this.live.value = true;
    } catch {
      // The connection refuses messages once the kernel that knew the widget is gone.
      this.live.value = false;
    }
    return this.live.value;
  }

  #onMessage(message: Message): void {
    if (message?.id === undefined) return;
    if (!message.working) {
      this.#settle(message.id, message);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    if (waiting) waiting.unheard = 0;
  }

  #settle(id: string, { result, error }: Message): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    clearTimeout(waiting.timer);
    this.#waiting.delete(id);
    if (error === undefined) waiting.resolve(result);
    else waiting.reject(new Error(error));
  }
}
