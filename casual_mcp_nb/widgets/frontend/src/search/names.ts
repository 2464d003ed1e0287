// Find tools that a query mentions by name: `casual_mcp_nb/discovery/_engine.py` once more.

import type { PlainIndex } from "./index";
import { chunks, folded, trimmed } from "./text";

const MAX_WORDS = 6;
const MAX_CHUNKS = 500;
const OUTSIDE = /^[^\p{L}\p{N}_]+|[^\p{L}\p{N}_]+$/gu;
const QUOTE = /^["'`\p{Pi}\p{Pf}]$/u;

export class ExactNames {
  private readonly places = new Map<string, number[]>();
  private readonly plain: Set<string>;
  private readonly starts = new Set<string>();
  private longest = 1;

  constructor({ tools, plain }: PlainIndex) {
    this.plain = new Set(plain);
    tools.forEach(([name, server, wireName], index) => {
      const folds = folded(trimmed(name));
      if (!this.plain.has(folds) && folds.includes(" ")) {
        const words = chunks(folds);
        this.longest = Math.max(this.longest, Math.min(MAX_WORDS, words.length));
        this.starts.add(words[0] as string).add(bare(words[0] as string));
      }
      for (const form of new Set([folds, folded(wireName), folded(`${server}:${name}`)]))
        this.places.set(form, [...(this.places.get(form) ?? []), index]);
    });
  }

  /** The tools that a query mentions, in order. */
  called(query: string): number[] {
    const whole = folded(trimmed(query));
    const found = new Set([...this.of(whole), ...this.of(bare(whole))]);
    for (const piece of this.pieces(whole)) for (const index of this.of(piece)) found.add(index);
    return [...found].sort((one, other) => one - other);
  }

  private of(form: string): readonly number[] {
    return this.places.get(form) ?? [];
  }

  private *pieces(query: string): Generator<string> {
    const all = chunks(query).slice(0, MAX_CHUNKS);
    for (const [start, chunk] of all.entries()) {
      const inside = bare(chunk);
      yield* this.forms(chunk, inside);
      if (!this.starts.has(chunk) && !this.starts.has(inside)) continue;
      for (let end = start + 2; end <= Math.min(start + this.longest, all.length); end++) {
        const phrase = all.slice(start, end).join(" ");
        yield* this.forms(phrase, bare(phrase));
      }
    }
  }

  private *forms(chunk: string, inside: string): Generator<string> {
    if (!this.plain.has(chunk)) yield chunk;
    if (inside !== chunk && (!this.plain.has(inside) || isQuoted(chunk, inside))) yield inside;
  }
}

function bare(text: string): string {
  return text.replace(OUTSIDE, "");
}

function isQuoted(chunk: string, inside: string): boolean {
  const at = chunk.indexOf(inside);
  const before = Array.from(chunk.slice(0, at)).at(-1) ?? "";
  const after = Array.from(chunk.slice(at + inside.length))[0] ?? "";
  return QUOTE.test(before) && QUOTE.test(after);
}
