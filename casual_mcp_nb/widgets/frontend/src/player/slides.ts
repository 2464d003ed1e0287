// What the player says of a slide, and what a request has that the one before had not.

import { amount } from "../tokens/tokens";
import type { Lesson, ListedTool, RequestSlide, SearchSlide, Slide, Span } from "./state";

/** Return the data of a page with its long texts in their places. */
export function withTexts({ texts, ...rest }: Lesson & { texts: string[] }): Lesson {
  const filled = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(filled);
    if (typeof value !== "object" || value === null) return value;
    if ("text" in value && typeof value.text === "number") return texts[value.text];
    return Object.fromEntries(Object.entries(value).map(([key, inside]) => [key, filled(inside)]));
  };
  return filled(rest) as Lesson;
}

/** The tools whose name or description has every word of a query, those with all of them in the name first. */
export function matching(tools: readonly ListedTool[], query: string): ListedTool[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const hasAll = (text: string) => words.every((word) => text.toLowerCase().includes(word));
  const named = tools.filter(([name]) => hasAll(name));
  const described = tools.filter(([name, description]) => !hasAll(name) && hasAll(`${name} ${description}`));
  return [...named, ...described];
}

/** What a slide is, and a few words on it. */
export function labelOf(slide: Slide): [what: string, about: string] {
  switch (slide.kind) {
    case "prompt":
      return ["Prompt", slide.text];
    case "request":
      return ["Request", `${amount(totalOf(slide), slide.origin)} in`];
    case "search":
      return ["Search", slide.query];
    case "call":
      return ["Call", slide.tool];
    case "answer":
      return ["Answer", slide.status?.[0] ?? ""];
    case "cell":
      return ["Cell", slide.task];
  }
}

/** "Turn 2, step 1" */
export function placeOf(slide: Slide): string {
  if (slide.kind === "cell") return `Written cell ${slide.number}`;
  const step = slide.kind === "prompt" || slide.step === undefined ? "" : `, step ${slide.step}`;
  return `Turn ${slide.turn}${step}`;
}

export function totalOf({ parts }: RequestSlide): number {
  return parts.reduce((sum, part) => sum + part, 0);
}

/** The numbers in spans. */
export function spread(spans: readonly Span[]): number[] {
  return spans.flatMap(([start, end]) => Array.from({ length: end - start }, (_, index) => start + index));
}

export interface Offered {
  /** The numbers of what this request has in common with the one before, and of what is new. */
  same: number[];
  added: number[];
  /** What only the one before has. */
  removed: number[];
}

/** Compare what a request holds with what the request before held. */
export function compared(now: readonly Span[], before: readonly Span[] | undefined): Offered {
  const numbers = spread(now);
  const old = new Set(spread(before ?? []));
  const current = new Set(numbers);
  return {
    same: numbers.filter((number) => old.has(number)),
    added: numbers.filter((number) => !old.has(number)),
    removed: [...old].filter((number) => !current.has(number)),
  };
}

/** The request before a slide, in whatever turn. */
export function requestBefore(slides: readonly Slide[], place: number): RequestSlide | undefined {
  return slides.slice(0, place).findLast((slide) => slide.kind === "request");
}

/** The searches of the model, each with its place in the lesson. */
export function searchesOf({ slides }: Lesson): { slide: SearchSlide; place: number }[] {
  return slides.flatMap((slide, place) => (slide.kind === "search" ? [{ slide, place }] : []));
}

/** The slides of each turn, each with its place in the lesson, and those of the written cells. */
export function byTurn({ turns, slides }: Lesson) {
  const placed = slides.map((slide, place) => ({ slide, place }));
  const groups = turns.map(({ prompt }, index) => ({
    title: `Turn ${index + 1}`,
    about: prompt,
    slides: placed.filter(({ slide }) => slide.turn === index + 1),
  }));
  const cells = placed.filter(({ slide }) => slide.kind === "cell");
  return cells.length ? [...groups, { title: "Written cells", about: "", slides: cells }] : groups;
}

/** The place that the address names, from `#1`; null if it names none. */
export function placeIn(hash: string, slides: number): number | null {
  const number = /^#[0-9]{1,6}$/.test(hash) ? Number(hash.slice(1)) : 0;
  return number >= 1 ? Math.min(number, slides) - 1 : null;
}
