// The state of apps, as `AppsState` in `casual_mcp_nb/widgets/app.py` makes it.

/** Whether a call of the app may run. */
export interface AppQuestion {
  order: number;
  server: string;
  tool: string;
  claims: string[];
  why: string;
  arguments: string;
  difference: string;
  choices: [answer: string, label: string][];
}

export interface AppRow {
  tool: string;
  title: string;
  status: "not opened" | "starting" | "shown" | "failed" | "closed";
  problem?: string;
  /** Why it cannot be opened now. */
  obstacle: string | null;
  /** Of a conversation that was resumed: it is opened by the person. */
  reopened: boolean;
  /** The number of the last notification for it. */
  sent: number;
  questions: Record<string, AppQuestion>;
}

export interface AppsState {
  apps: {
    apps: Record<string, AppRow>;
    /** How long a handshake may take. */
    seconds: number;
  };
}

/** A page with what is said to it, as `apps.page` returns it. */
export interface AppPage {
  html: string;
  policy: string;
  border: boolean;
  capabilities: Record<string, object>;
  toolInfo: object;
}

export type Mode = "inline" | "fullscreen";

/** Where the page is. `stopped` cannot be undone, `failed` can: the page may still complete its handshake. */
export type Phase = "loading" | "starting" | "shown" | "failed" | "stopped" | "closed";

export type Sender = "app" | "host" | "page";

export interface LogEntry {
  sender: Sender;
  method: string;
  text: string;
}

/** What an app wants the person to allow. */
export interface Ask {
  kind: "link" | "message" | "file";
  /** What would be done, in its own words: the address, the message, the names of the files. */
  text: string;
  answer(yes: boolean): void;
}
