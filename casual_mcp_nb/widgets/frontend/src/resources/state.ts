// The state behind resources and prompts, as `casual_mcp_nb/widgets/resources.py` makes it.

export interface ResourcesState {
  /** Changes with what servers offer. */
  version: number;
  resources: number;
  prompts: number;
  skills: number;
  /** The resources whose changes servers report, by server and URI with a blank between. */
  followed?: Record<string, { updates: number; problem?: string }>;
  /** How many go with the next message of a panel. */
  attached: number;
}

/** A resource, a template, a prompt or a skill of a server. */
export interface Offer {
  kind: "resource" | "prompt" | "skill";
  server: string;
  /** The URI of a resource, the URI template of a template, the name of a prompt or a skill. */
  name: string;
  title: string;
  summary: string;
  description: string;
  template?: boolean;
  /** Its type and size in words; of a skill, its tokens and its files. */
  about?: string;
  fields: readonly { name: string; description: string; required: boolean }[];
}

/** What `resources.offers` returns. */
export interface OfferList {
  rows: readonly Offer[];
  total: number;
  problems: readonly string[];
}

/** The state of a widget that shows them. */
export interface WithResources {
  resources: ResourcesState;
}
