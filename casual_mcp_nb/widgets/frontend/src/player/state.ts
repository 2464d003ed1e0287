// The data in the page, as `casual_mcp_nb/widgets/_slides.py` and `player.py` make it.

import type { Origin } from "../tokens/state";

/** What is said of a state, and its tone. */
export type Mark = [text: string, tone: string];
/** A half-open range of numbers. */
export type Span = [start: number, end: number];
/** A text, or an element: its tag and what is in it. */
export type ProseNode = string | ProseNode[];

interface Pictures {
  /** The address of each image, which holds its bytes, and what it is. */
  images?: [source: string, note: string][];
  notes?: string[];
}

export interface PromptSlide extends Pictures {
  kind: "prompt";
  turn: number;
  text: string;
  attached?: string[];
  /** The prompt as it was before it was edited by hand. */
  before?: string;
}

export interface RequestSlide {
  kind: "request";
  turn: number;
  step: number;
  /** What it holds, in words. */
  words: string;
  /** Tokens by part. */
  parts: number[];
  origin: Origin;
  reused?: number;
  messages: Span[];
  tools: Span[];
  left_out?: number;
  options?: [name: string, value: string][];
  remarks?: Mark[];
}

export interface Call extends Pictures {
  tool: string;
  arguments: string;
  status: Mark;
  seconds?: string;
  result?: string;
  unedited?: string;
  nested?: Call[];
}

interface OfAnswer {
  turn: number;
  step: number;
  /** What the model said before its calls. */
  said?: ProseNode[];
  /** What its answer took, in words. */
  figures?: string[];
}

export interface CallSlide extends Call, OfAnswer {
  kind: "call";
}

export interface SearchSlide extends Call, OfAnswer {
  kind: "search";
  query: string;
  words: string;
  rows: [tool: string, score: number | null, why: string][];
}

export interface AnswerSlide {
  kind: "answer";
  turn: number;
  step?: number;
  text: ProseNode[];
  status?: Mark;
  figures?: string[];
}

/** A program that a model wrote for a cell of the notebook; it belongs to no turn. */
export interface CellSlide {
  kind: "cell";
  turn: 0;
  number: number;
  task: string;
  code: string;
  /** The calls of tools that its text shows, each as a row of the table that a notebook shows. */
  calls: [tool: string, line: string, tokens: string, policy: string, asks: string][];
  /** How its last run ended. */
  status: Mark;
  figures: string[];
  difference?: string;
}

export type Slide = PromptSlide | RequestSlide | CallSlide | SearchSlide | AnswerSlide | CellSlide;

export interface Message {
  role: string;
  text: string;
  tokens: number;
  name?: string;
  images?: number;
  calls?: [name: string, args: string][];
}

export interface Tool {
  name: string;
  tokens: number;
  description: string;
  definition?: string;
}

export interface TurnRow {
  prompt: string;
  status: string;
  figures: string[];
}

/** The tools of the session that a person can look through. */
export interface Catalog {
  /** Whether they are the deferred ones, and not all. */
  deferred: boolean;
  /** How many there are; the page may have only the first of them. */
  total: number;
  tools: ListedTool[];
}

export type ListedTool = [name: string, description: string];

export interface Lesson {
  catalog: Catalog;
  /** Whether the page has a cassette in it. */
  cassette: boolean;
  title: string;
  /** Seconds since 1970. */
  began: number | null;
  model: string;
  /** What the parts of a request are called. */
  parts: string[];
  turns: TurnRow[];
  slides: Slide[];
  messages: Message[];
  tools: Tool[];
}
