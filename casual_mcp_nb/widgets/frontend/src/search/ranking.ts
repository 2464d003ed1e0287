// Rank tools for a query: the arithmetic of `casual_mcp_nb/discovery` (`_ranking.py`, `_engine.py`) once more, in the same
// order, so that the scores are the same. `tests/search.test.ts` compares them.

import type { PlainIndex } from "./index";
import { ExactNames } from "./names";
import { chunks, Splitter } from "./text";

/** The numbers of tools, or of servers, each with a value. */
type Entries = readonly (readonly [place: number, value: number])[];
type Weights = ReadonlyMap<string, number>;

export interface Scored {
  tool: number;
  score: number;
}

export class Ranking {
  private readonly splitter: Splitter;
  private readonly names: ExactNames;
  private readonly numbers: Map<string, number>;
  private readonly idf: number[];
  /** What each term adds to the score of each tool that has it. */
  private readonly postings: Entries[];
  /** The tools that have a term in their name, with its idf. */
  private readonly inName: Entries[];
  private readonly nameIdf: number[];
  private readonly copies: Map<number, number>;
  private readonly deprecated: Set<number>;
  private readonly serverOf: number[];
  private readonly serverNorms: number[];
  private readonly toolsOf = new Map<string, Entries>();
  private readonly serversOf = new Map<string, Entries>();

  constructor(private readonly index: PlainIndex) {
    const { tools, vocabulary, texts, constants } = index;
    this.splitter = new Splitter(index.words, constants);
    this.names = new ExactNames(index);
    this.numbers = new Map(vocabulary.map((term, number) => [term, number]));
    this.copies = new Map(index.copies);
    this.deprecated = new Set(index.deprecated);
    const servers = [...new Set(tools.map(([, server]) => server))];
    this.serverOf = tools.map(([, server]) => servers.indexOf(server));
    const sizes = servers.map((_, number) => this.serverOf.filter((server) => server === number).length);
    const mean = tools.length / servers.length;
    this.serverNorms = sizes.map((size) => 1 - constants.server_b + (constants.server_b * size) / mean);

    const averages = constants.fields.map((_, field) =>
      Math.max(texts.reduce((sum, tool) => sum + (tool[field]?.length ?? 0), 0) / tools.length, 1e-9),
    );
    const frequencies: [tool: number, frequency: number][][] = vocabulary.map(() => []);
    const named: number[][] = vocabulary.map(() => []);
    texts.forEach((fields, tool) => {
      const together = new Map<number, number>();
      fields.forEach((terms, field) => {
        const [weight, b] = constants.fields[field] as [number, number];
        const norm = 1 - b + (b * terms.length) / (averages[field] as number);
        for (const [term, count] of counted(terms)) {
          together.set(term, (together.get(term) ?? 0) + (weight * count) / norm);
          if (field === 0) (named[term] as number[]).push(tool);
        }
      });
      for (const [term, frequency] of together) (frequencies[term] as [number, number][]).push([tool, frequency]);
    });
    this.idf = frequencies.map((entries) => Math.log((tools.length + 1) / entries.length));
    const { k1 } = constants;
    this.postings = frequencies.map((entries, term) =>
      entries.map(([tool, frequency]) => [tool, ((this.idf[term] as number) * frequency * (k1 + 1)) / (k1 + frequency)]),
    );
    this.inName = named.map((entries, term) => entries.map((tool) => [tool, this.idf[term] as number]));
    this.nameIdf = tools.map(() => 0);
    for (const entries of this.inName) add(this.nameIdf, entries, 1);
    this.nameIdf = this.nameIdf.map((value) => value || 1);
  }

  /** The best tools for a query with their scores, best first. */
  search(query: string, count: number): Scored[] {
    const scores = this.scores(query);
    const called = new Set(this.names.called(this.splitter.beginning(query)));
    if (called.size) {
      const bonus = 1 + Math.max(...scores);
      for (const tool of called) scores[tool] = (scores[tool] as number) + bonus;
    }
    const ranked = scores.map((score, tool) => ({ tool, score })).filter(({ score }) => score > 0);
    ranked.sort(better);
    const seen = new Map<number, number>();
    for (const hit of ranked) {
      if (this.deprecated.has(hit.tool) && !called.has(hit.tool)) hit.score *= this.index.constants.deprecated;
      const kind = this.copies.get(hit.tool);
      if (kind === undefined) continue;
      const before = seen.get(kind) ?? 0;
      if (!called.has(hit.tool)) hit.score *= this.index.constants.copy ** before;
      seen.set(kind, before + 1);
    }
    return ranked.sort(better).slice(0, count);
  }

  /** The words of a query that a tool matches, as they are or by a synonym. */
  words(query: string, tool: number): string[] {
    const words = chunks(this.splitter.readable(query)).filter((word) =>
      this.splitter.terms(word).some((term) => this.entries(term).some(([place]) => place === tool)),
    );
    return [...new Set(words)];
  }

  private scores(query: string): number[] {
    const { clause, clause_power, server } = this.index.constants;
    const text = this.splitter.readable(query);
    const weights = this.weights(text);
    const names = this.nameScores(weights);
    let scores = this.sum(weights).map((score, tool) => score + (names[tool] as number));
    const best = Math.max(...scores);
    if (!(best > 0)) return scores;
    const parts = this.splitter.clauses(text);
    if (parts.length > 1) {
      const fit = this.fit(parts);
      scores = scores.map((score, tool) => score + clause * best * power(fit[tool] as number, clause_power));
    }
    if (this.serverNorms.length > 1) {
      const fits = this.serverNorms.map(() => 0);
      for (const [term, weight] of weights) add(fits, this.servers(term), weight);
      const most = Math.max(...fits);
      const share = most > 0 ? server / most : 1;
      scores = scores.map((score, tool) => score * (1 + (fits[this.serverOf[tool] as number] as number) * share));
    }
    return scores;
  }

  /** How well each tool matches the part of the request that it matches best, up to 1. */
  private fit(parts: readonly string[]): number[] {
    const fit = this.index.tools.map(() => 0);
    const distinct = new Map(
      parts.map((part) => {
        const weights = [...this.weights(part)].sort(([one], [other]) => (one < other ? -1 : 1));
        return [JSON.stringify(weights), new Map(weights)];
      }),
    );
    for (const weights of distinct.values()) {
      const scores = this.sum(weights);
      const best = Math.max(...scores);
      if (best > 0)
        scores.forEach((score, tool) => {
          fit[tool] = Math.max(fit[tool] as number, score / best);
        });
    }
    return fit;
  }

  /** The terms of a text with their weights. */
  private weights(text: string): Map<string, number> {
    return new Map(this.splitter.terms(text).map((term) => [term, this.splitter.emphasis(term)]));
  }

  private sum(weights: Weights): number[] {
    const scores = this.index.tools.map(() => 0);
    for (const [term, weight] of weights) add(scores, this.entries(term), weight);
    return scores;
  }

  private nameScores(weights: Weights): number[] {
    const covered = this.index.tools.map(() => 0);
    for (const term of weights.keys()) {
      const number = this.numbers.get(term);
      if (number !== undefined) add(covered, this.inName[number] as Entries, 1);
    }
    const { name_covered } = this.index.constants;
    return covered.map((value, tool) => (name_covered * value * value) / (this.nameIdf[tool] as number));
  }

  /** The tools that have a term or an expansion of it, each with the best value among them. */
  private entries(term: string): Entries {
    const cached = this.toolsOf.get(term);
    if (cached) return cached;
    const best = new Map<number, number>();
    for (const [number, weight] of this.expansions(term))
      for (const [tool, value] of this.postings[number] as Entries)
        best.set(tool, Math.max(best.get(tool) ?? 0, weight * value));
    const entries = [...best].sort(([one], [other]) => one - other);
    this.toolsOf.set(term, entries);
    return entries;
  }

  private expansions(term: string): Iterable<readonly [number: number, weight: number]> {
    const { related, same_topic } = this.index.constants;
    const others = new Map((own(this.index.topics, term) ?? []).map((number) => [number, same_topic]));
    for (const number of own(this.index.synonyms, term) ?? []) others.set(number, related);
    const number = this.numbers.get(term);
    if (number === undefined) {
      for (const other of this.alike(term)) others.set(other, related);
      return others;
    }
    const idf = this.idf[number] as number;
    const scaled = [...others].map(
      ([other, weight]) => [other, weight * Math.min(1, idf / (this.idf[other] as number))] as const,
    );
    return [[number, 1], ...scaled];
  }

  /** The terms with the same prefix as one that no tool contains. */
  private alike(term: string): number[] {
    const { like } = this.index.constants;
    if (!/^[A-Za-z]{5,}$/.test(term) || this.splitter.emphasis(term) < 1) return [];
    const beginning = term.slice(0, Math.max(4, Math.ceil(term.length * like)));
    return this.index.vocabulary.flatMap((other, number) =>
      other.startsWith(beginning) && beginning.length >= like * Array.from(other).length ? [number] : [],
    );
  }

  /** The servers whose tools mention a term, each with its score. */
  private servers(term: string): Entries {
    const cached = this.serversOf.get(term);
    if (cached) return cached;
    const { server_k1 } = this.index.constants;
    const spoken = this.serverNorms.map(() => 0);
    for (const [tool, value] of this.entries(term)) {
      const server = this.serverOf[tool] as number;
      spoken[server] = (spoken[server] as number) + value;
    }
    const number = this.numbers.get(term);
    const rarity = number === undefined ? 1 : (this.idf[number] as number);
    const entries = spoken.flatMap((value, server): Entries => {
      if (!value) return [];
      const frequency = value / rarity / (this.serverNorms[server] as number);
      return [[server, (rarity * frequency * (server_k1 + 1)) / (frequency + server_k1)]];
    });
    this.serversOf.set(term, entries);
    return entries;
  }
}

function better(one: Scored, other: Scored): number {
  return other.score - one.score || one.tool - other.tool;
}

function add(sums: number[], entries: Entries, weight: number): void {
  for (const [place, value] of entries) sums[place] = (sums[place] as number) + weight * value;
}

/** How often each value occurs, in the order in which they first do. */
function counted<T>(values: readonly T[]): Map<T, number> {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

/** A power of two as repeated squares. */
function power(value: number, exponent: number): number {
  let result = value;
  for (let reached = 1; reached < exponent; reached *= 2) result *= result;
  return result;
}

/** What a query calls `constructor` is a word like any other. */
function own<T>(record: Record<string, T>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
