// The host of one app: the messages of MCP Apps (SEP-1865), by hand. What changes something is asked in the kernel.
// See https://github.com/modelcontextprotocol/ext-apps, specification/draft/apps.mdx.

import { type Signal, signal } from "@preact/signals";
import { FLOOD, guardFrame, guardPage } from "./guard";
import { brief, filesOf, type Incoming, isRecord, linkOf, readMessage, textOf } from "./messages";
import type { AppPage, Ask, LogEntry, Mode, Phase, Sender } from "./state";

/** Asks the kernel about one app. Rejects with an error for a person. */
export type Call = <T>(command: string, args?: object) => Promise<T>;

export const PROTOCOL_VERSION = "2026-01-26";
const KNOWN_VERSIONS = new Set(["2025-11-21", PROTOCOL_VERSION]);
export const MIN_HEIGHT = 60;
export const MAX_HEIGHT = 700;
const MODES: readonly Mode[] = ["inline", "fullscreen"];
const MAX_LOG = 200;
const MAX_NOTES = 100;
const MAX_TEXT = 20_000;
const MAX_MISSING = 2;
/** How many requests of an app wait for the kernel at a time: what a person runs there waits behind no more. */
const MAX_OPEN = 8;
const NOTE_MILLISECONDS = 400;
const TEARDOWN_MILLISECONDS = 1000;
const ASK_AGAIN = 1000;
const DRAW_AFTER = 1500;
const DRAW_BETWEEN = 6000;

const INVALID = -32600;
const UNKNOWN_METHOD = -32601;
const REFUSED = -32000;
const BUSY = -32001;

class Refusal extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

interface Options {
  title: string;
  call: Call;
  seconds: number;
  theme(): "light" | "dark";
  variables(): Record<string, string>;
}

export class AppHost {
  readonly phase: Signal<Phase> = signal("loading");
  readonly problem = signal("");
  readonly height = signal(240);
  readonly mode: Signal<Mode> = signal("inline");
  readonly border = signal(true);
  readonly asks: Signal<Ask[]> = signal([]);
  readonly log: Signal<LogEntry[]> = signal([]);

  #options: Options;
  #frame: HTMLIFrameElement | null = null;
  #page: AppPage | null = null;
  #listener = (event: MessageEvent) => this.#onMessage(event);
  #initialized = false;
  #modes: readonly string[] | null = null;
  #delivered = 0;
  #delivering: Promise<void> = Promise.resolve();
  #context: { running: boolean; next: { params: Record<string, unknown>; done(error?: Error): void } | null } = {
    running: false,
    next: null,
  };
  #notes: [Sender, string, string][] = [];
  #dropped = 0;
  #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #requests = new Map<number, () => void>();
  #open = 0;
  #drawing = false;
  #lastRequest = 0;
  #drawnAt = 0;
  #around = { second: 0, count: 0 };

  constructor(options: Options) {
    this.#options = options;
  }

  /** Read the page and put its frame into an element. */
  async open(place: HTMLElement): Promise<void> {
    try {
      this.#page = await this.#read();
    } catch (error) {
      return this.#fail((error as Error).message, "stopped");
    }
    if (this.phase.value !== "loading") return;
    this.border.value = this.#page.border;
    this.#phase("starting");
    window.addEventListener("message", this.#listener);
    const { title, theme } = this.#options;
    this.#frame = guardFrame(guardPage(this.#page.html, this.#page.policy, theme()), `App: ${title}`);
    // It loads again when a notebook moves its cell: then everything begins again.
    this.#frame.addEventListener("load", () => {
      this.#scheme();
      this.#restart();
    });
    place.append(this.#frame);
    this.#await();
  }

  /** Ask for the page, and once more: while a cell runs, the first message of a widget may have to wait for its end. */
  async #read(): Promise<AppPage> {
    const { call } = this.#options;
    const again = new Promise<AppPage>((resolve, reject) => {
      this.#timer("page", ASK_AGAIN, () => call<AppPage>("page").then(resolve, reject));
    });
    try {
      return await Promise.race([call<AppPage>("page"), again]);
    } finally {
      clearTimeout(this.#timers.get("page"));
      again.catch(() => undefined);
    }
  }

  /** Deliver what the kernel has for the app up to now. */
  deliver(sent: number): void {
    if (this.#initialized && sent > this.#delivered) this.#delivering = this.#delivering.then(() => this.#deliver());
  }

  /** Tell the app about a new theme. */
  themeChanged(): void {
    const { theme, variables } = this.#options;
    this.#scheme();
    this.#contextChanged({ theme: theme(), styles: { variables: variables() } });
  }

  #scheme(): void {
    this.#frame?.contentWindow?.postMessage({ scheme: this.#options.theme() }, "*");
  }

  setMode(mode: Mode): void {
    if (this.mode.value === mode) return;
    this.mode.value = mode;
    this.#contextChanged({ displayMode: mode, containerDimensions: this.#dimensions() });
  }

  /** Take the page away. It is told, and may take a second. */
  async close(reason: string): Promise<void> {
    if (this.phase.value === "closed") return;
    const frame = this.#frame;
    if (this.#initialized) {
      await Promise.race([this.#request("ui/resource-teardown", { reason }), after(TEARDOWN_MILLISECONDS)]);
    }
    if (frame === this.#frame) this.#remove("closed");
  }

  /** Take the page away now: its place is gone. */
  dispose(): void {
    if (this.#initialized) this.#post({ jsonrpc: "2.0", id: ++this.#lastRequest, method: "ui/resource-teardown", params: {} });
    this.#remove("closed");
    void this.#flush();
  }

  #remove(phase: Phase): void {
    window.removeEventListener("message", this.#listener);
    this.#frame?.remove();
    this.#frame = null;
    this.#initialized = false;
    this.mode.value = "inline";
    for (const ask of this.asks.value) ask.answer(false);
    for (const [name, timer] of this.#timers) if (name !== "notes") clearTimeout(timer);
    this.#phase(phase);
  }

  #phase(phase: Phase): void {
    this.phase.value = phase;
  }

  #fail(problem: string, phase: "failed" | "stopped"): void {
    this.problem.value = problem;
    this.#note("host", "not shown", problem);
    if (phase === "stopped") this.#remove("stopped");
    else this.#phase(phase);
    this.#say("failed", problem);
  }

  #say(status: "starting" | "shown" | "failed", problem = ""): void {
    this.#options.call("status", { status, problem }).catch(() => undefined);
  }

  /** Wait for the handshake. */
  #await(): void {
    this.#say("starting");
    this.#timer("handshake", this.#options.seconds * 1000, () => {
      const heard = this.log.value.some((each) => each.sender === "app" && each.method === "ui/initialize");
      const what = heard ? "sent ui/initialize, but never ui/notifications/initialized" : "never sent ui/initialize";
      const problem = `The page did not complete its handshake within ${this.#options.seconds} s: it ${what}.`;
      this.#fail([problem, ...this.#missing()].join(" "), "failed");
    });
  }

  /** What the page could not get, which is the usual reason. */
  #missing(): string[] {
    const reasons = { "not loaded": "It could not load", blocked: "Its policy blocked" };
    return Object.entries(reasons).flatMap(([method, words]) => {
      const texts = this.log.value.filter((each) => each.sender === "page" && each.method === method).map((each) => each.text);
      return texts.length ? [`${words} ${texts.slice(-MAX_MISSING).join(", ")}.`] : [];
    });
  }

  #restart(): void {
    if (!this.#initialized) return;
    this.#initialized = false;
    this.#delivered = 0;
    this.#note("page", "load", "The page was loaded again.");
    this.#phase("starting");
    this.#await();
  }

  #onMessage(event: MessageEvent): void {
    const inside = this.#frame?.contentWindow;
    if (!inside) return;
    if (event.source !== inside) {
      // The page itself, around its guard. What it says is not even read, only counted. Before it is there, to ask for it raises.
      if (inside.length > 0 && event.source === inside[0]) this.#countAround();
      return;
    }
    const { event: what, data } = event.data as { event: string; data: unknown };
    if (what === "message") this.#fromApp(data);
    else if (what === "flood") this.#flooded();
    else if (what === "dropped") this.#note("host", "dropped", `${data} messages in one second`);
    else if (what === "load" && data !== 1) {
      this.#note("page", "load", "The page tried to go elsewhere, or loaded again.");
      this.#restart();
    }
  }

  #countAround(): void {
    const second = Math.floor(performance.now() / 1000);
    if (this.#around.second !== second) this.#around = { second, count: 0 };
    if (++this.#around.count > FLOOD) this.#flooded();
  }

  #flooded(): void {
    this.#frame?.contentWindow?.postMessage({ stop: true }, "*");
    this.#fail(`The page sent more than ${FLOOD.toLocaleString("en")} messages in one second, so it was stopped.`, "stopped");
  }

  #fromApp(data: unknown): void {
    const message = isRecord(data) && data.cmn === "page" ? null : readMessage(data);
    if (message === null) this.#fromPage(data as Record<string, unknown>);
    else if (typeof message === "string") this.#note("host", "ignored", message);
    else if (message.kind === "response") this.#answered(message);
    else {
      this.#note("app", message.method, brief(message.params));
      if (message.kind === "request") void this.#answer(message);
      else this.#notified(message.method, message.params);
    }
    if (!this.#timers.has("draw")) {
      this.#timer("draw", Math.max(DRAW_AFTER, this.#drawnAt + DRAW_BETWEEN - Date.now()), () => this.#draw());
    }
  }

  async #answer({ id, method, params }: Extract<Incoming, { kind: "request" }>): Promise<void> {
    let answer: object;
    try {
      answer = { id, result: await this.#serve(method, params) };
    } catch (error) {
      const code = error instanceof Refusal ? error.code : REFUSED;
      answer = { id, error: { code, message: (error as Error).message } };
    }
    this.#reply(answer, method);
  }

  #answered(message: Extract<Incoming, { kind: "response" }>): void {
    const done = this.#requests.get(message.id as number);
    this.#requests.delete(message.id as number);
    if (done) done();
    else this.#note("host", "ignored", "an answer to no request");
  }

  #reply(answer: object, method: string): void {
    this.#post({ jsonrpc: "2.0", ...answer });
    this.#note("host", `${method} ←`, brief(answer));
  }

  #notified(method: string, params: Record<string, unknown>): void {
    switch (method) {
      case "ui/notifications/initialized":
        if (this.#modes === null) {
          this.#note("host", "ignored", "initialized before ui/initialize");
          return;
        }
        this.#initialized = true;
        clearTimeout(this.#timers.get("handshake"));
        this.problem.value = "";
        this.#phase("shown");
        this.#say("shown");
        this.#delivered = 0;
        this.#delivering = this.#delivering.then(() => this.#deliver());
        return;
      case "ui/notifications/size-changed": {
        const { height } = params;
        if (typeof height === "number" && Number.isFinite(height)) {
          this.height.value = Math.round(Math.min(Math.max(height, MIN_HEIGHT), MAX_HEIGHT));
        }
        return;
      }
      case "ui/notifications/request-teardown":
        void this.close("The app requested it.");
        return;
    }
  }

  async #serve(method: string, params: Record<string, unknown>): Promise<unknown> {
    if (method === "ping") return {};
    if (method === "ui/initialize") return this.#initialize(params);
    if (!this.#initialized)
      throw new Refusal(INVALID, "The handshake is not complete: send ui/notifications/initialized first.");
    switch (method) {
      case "tools/call": {
        const { name, arguments: values } = params;
        if (typeof name !== "string" || (values !== undefined && !isRecord(values)))
          throw new Refusal(-32602, "tools/call needs a name, and arguments that are an object.");
        return this.#ask("call_tool", { name, arguments: values ?? {} });
      }
      case "tools/list":
        return this.#ask("list_tools");
      case "resources/read":
        if (typeof params.uri !== "string") throw new Refusal(-32602, "resources/read needs a uri.");
        return this.#ask("read_resource", { uri: params.uri });
      case "sampling/createMessage":
        if (!this.#page?.capabilities.sampling) throw new Refusal(UNKNOWN_METHOD, "This host does not offer sampling here.");
        return this.#ask("sample", { params });
      case "ui/update-model-context":
        return this.#update(params);
      case "ui/request-display-mode":
        return { mode: this.#requestedMode(params.mode) };
      case "ui/open-link":
        return this.#openLink(params.url);
      case "ui/download-file":
        return this.#saveFiles(params.contents);
      case "ui/message":
        return this.#message(params);
    }
    throw new Refusal(UNKNOWN_METHOD, "This host has no such method.");
  }

  /** Ask the kernel for the app, unless too many of its requests are open. */
  async #ask(command: string, args: object = {}): Promise<unknown> {
    if (this.#open >= MAX_OPEN)
      throw new Refusal(BUSY, `Busy: at most ${MAX_OPEN} requests of an app are open at a time. Wait for an answer first.`);
    this.#open++;
    try {
      return await this.#options.call(command, args);
    } finally {
      this.#open--;
    }
  }

  #initialize(params: Record<string, unknown>): object {
    const capabilities = isRecord(params.appCapabilities) ? params.appCapabilities : {};
    const modes = capabilities.availableDisplayModes;
    this.#modes = Array.isArray(modes) ? modes.map(String) : [...MODES];
    const { theme, variables } = this.#options;
    const wanted = String(params.protocolVersion ?? "");
    return {
      protocolVersion: KNOWN_VERSIONS.has(wanted) ? wanted : PROTOCOL_VERSION,
      hostInfo: { name: "casual-mcp-nb", version: "1" },
      hostCapabilities: this.#page?.capabilities ?? {},
      hostContext: {
        toolInfo: this.#page?.toolInfo,
        theme: theme(),
        styles: { variables: variables() },
        displayMode: this.mode.value,
        availableDisplayModes: MODES,
        containerDimensions: this.#dimensions(),
        locale: navigator.language,
        timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        userAgent: "casual-mcp-nb",
        platform: "web",
        deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: matchMedia("(hover: hover)").matches },
      },
    };
  }

  #dimensions(): object {
    const place = this.#frame?.parentElement;
    const width = Math.round(place?.clientWidth ?? 0) || 600;
    return this.mode.value === "inline"
      ? { width, maxHeight: MAX_HEIGHT }
      : { width, height: place?.clientHeight || MAX_HEIGHT };
  }

  #requestedMode(mode: unknown): Mode {
    const allowed = MODES.includes(mode as Mode) && this.#modes?.includes(mode as string);
    // Only what the person does may cover the notebook.
    if (allowed && (mode === "inline" || navigator.userActivation?.isActive)) this.setMode(mode as Mode);
    return this.mode.value;
  }

  /** Only the last of many updates counts, and one at a time goes to the kernel. */
  async #update(params: Record<string, unknown>): Promise<object> {
    const { next, running } = this.#context;
    next?.done();
    if (running) {
      await new Promise<void>((resolve, reject) => {
        this.#context.next = { params, done: (error) => (error ? reject(error) : resolve()) };
      });
      return {};
    }
    this.#context.running = true;
    try {
      await this.#setContext(params);
    } finally {
      void this.#continueContext();
    }
    return {};
  }

  async #continueContext(): Promise<void> {
    for (let next = this.#context.next; next; next = this.#context.next) {
      this.#context.next = null;
      await this.#setContext(next.params).then(
        () => next.done(),
        (error: Error) => next.done(error),
      );
    }
    this.#context.running = false;
  }

  #setContext({ content, structuredContent }: Record<string, unknown>): Promise<unknown> {
    return this.#options.call("set_context", {
      content: Array.isArray(content) ? content : null,
      structured: isRecord(structuredContent) ? structuredContent : null,
    });
  }

  async #openLink(url: unknown): Promise<object> {
    const address = linkOf(url);
    if (address === undefined) throw new Refusal(REFUSED, "Only addresses that begin with https:// or http:// can be opened.");
    await this.#asked("link", address, () => window.open(address, "_blank", "noopener,noreferrer"));
    return {};
  }

  async #saveFiles(contents: unknown): Promise<object> {
    const files = filesOf(contents);
    if (typeof files === "string") throw new Refusal(REFUSED, `This cannot be saved: ${files}.`);
    const words = files.map(({ name, size }) => `${name} (${size.toLocaleString("en")} bytes)`).join(", ");
    await this.#asked("file", words, () => {
      for (const { name, parts } of files) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
        link.download = name;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      }
    });
    return {};
  }

  async #message(params: Record<string, unknown>): Promise<object> {
    const text = textOf(params.content).slice(0, MAX_TEXT);
    if (params.role !== "user" || !text.trim())
      throw new Refusal(REFUSED, "Only messages of the user with a text can be sent.");
    await this.#asked("message", text);
    await this.#options.call("submit", { text });
    return {};
  }

  /** Ask the person, and do what they allow while their click counts. Only one such question of an app is open at a time. */
  #asked(kind: Ask["kind"], text: string, allowed?: () => unknown): Promise<void> {
    if (this.asks.value.length) throw new Refusal(REFUSED, "Another question of this app is still open.");
    return new Promise((resolve, reject) => {
      const answer = (yes: boolean) => {
        this.asks.value = [];
        if (!yes) return reject(new Refusal(REFUSED, "The person did not allow it."));
        allowed?.();
        resolve();
      };
      this.asks.value = [{ kind, text, answer }];
    });
  }

  async #deliver(): Promise<void> {
    try {
      const feed = await this.#options.call<[number, string, object][]>("feed", { after: this.#delivered });
      for (const [number, method, params] of feed) {
        if (!this.#initialized) return;
        this.#delivered = Math.max(this.#delivered, number);
        this.#notify(method, params);
      }
    } catch (error) {
      this.#note("host", "not sent", (error as Error).message);
    }
  }

  #contextChanged(changes: object): void {
    if (this.#initialized) this.#notify("ui/notifications/host-context-changed", changes);
  }

  #notify(method: string, params: object): void {
    this.#note("host", method, brief(params));
    this.#post({ jsonrpc: "2.0", method, params });
  }

  #request(method: string, params: object): Promise<void> {
    const id = ++this.#lastRequest;
    this.#note("host", method, brief(params));
    return new Promise((resolve) => {
      this.#requests.set(id, resolve);
      this.#post({ jsonrpc: "2.0", id, method, params });
    });
  }

  #post(message: object): void {
    this.#frame?.contentWindow?.postMessage({ message }, "*");
  }

  #fromPage({ event, text }: Record<string, unknown>): void {
    if (event === "picture") {
      // One for each time that it was told to draw itself.
      if (!this.#drawing) return;
      this.#drawing = false;
      const data = /^data:image\/jpeg;base64,([A-Za-z0-9+/=]{1,260000})$/.exec(String(text))?.[1];
      if (data) this.#options.call("picture", { data }).catch(() => undefined);
    } else if (event === "escape") this.setMode("inline");
    else this.#note("page", String(event).slice(0, 40), String(text).slice(0, 300));
  }

  /** Have the page draw itself, for where no kernel runs. */
  #draw(): void {
    this.#timers.delete("draw");
    this.#drawnAt = Date.now();
    this.#drawing = this.#initialized;
    if (this.#initialized) this.#post({ cmn: "draw" });
  }

  #note(sender: Sender, method: string, text: string): void {
    this.log.value = [...this.log.value.slice(1 - MAX_LOG), { sender, method, text }];
    if (this.#notes.length < MAX_NOTES) this.#notes.push([sender, method, text]);
    else this.#dropped++;
    if (!this.#timers.has("notes")) this.#timer("notes", NOTE_MILLISECONDS, () => void this.#flush());
  }

  async #flush(): Promise<void> {
    this.#timers.delete("notes");
    const [notes, dropped] = [this.#notes, this.#dropped];
    if (!notes.length) return;
    this.#notes = [];
    this.#dropped = 0;
    await this.#options.call("note", { notes, dropped }).catch(() => undefined);
  }

  #timer(name: string, milliseconds: number, run: () => void): void {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(run, milliseconds));
  }
}

function after(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
