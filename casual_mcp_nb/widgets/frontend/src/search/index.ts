// The plain values of an index, as `casual_mcp_nb/discovery/_engine.py` makes them.

export interface Words {
  stop: string[];
  weak: string[];
  compounds: string[];
  /** Each with the shortest stem that it may leave, longest first. */
  suffixes: [suffix: string, left: number][];
  irregular: [word: string, stem: string][];
  extensions: string[];
  not_a_host: string[];
  /** The pattern of an operator between two numbers: its first group is a sign, the second a word. */
  operator: string;
  /** What tools say for each operator. */
  operators: Record<string, string>;
  /** The pattern of everyday phrases, each a group, and what tools say for each. */
  phrase: string;
  phrases: string[];
}

export interface Constants {
  fields: [weight: number, b: number][];
  k1: number;
  related: number;
  same_topic: number;
  like: number;
  name_covered: number;
  clause: number;
  clause_power: number;
  server: number;
  server_k1: number;
  server_b: number;
  copy: number;
  deprecated: number;
  weak: number;
  max_query: number;
  max_clauses: number;
}

export interface PlainIndex {
  /** In the order in which equal scores are ranked. */
  tools: [name: string, server: string, wireName: string][];
  vocabulary: string[];
  /** For each tool and field the numbers of its terms, with repetitions. */
  texts: number[][][];
  /** For each near-duplicate the first of its kind. */
  copies: [tool: number, first: number][];
  /** The tools that their servers call deprecated. */
  deprecated: number[];
  /** The names that are ordinary words. */
  plain: string[];
  /** For each term the numbers of its synonyms in the vocabulary. */
  synonyms: Record<string, number[]>;
  topics: Record<string, number[]>;
  words: Words;
  constants: Constants;
}
