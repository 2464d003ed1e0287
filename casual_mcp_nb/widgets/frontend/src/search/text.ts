// Split a query into terms: `casual_mcp_nb/discovery/text.py` once more, with the words and numbers of the index.

import type { Constants, Words } from "./index";

/** What Python counts as white space. */
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const SPACES = new RegExp(`[${SPACE}]+`, "u");
const CHUNK = new RegExp(`[^${SPACE}]+`, "gu");
const AROUND = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu");
// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
const ASCII = /^[\x00-\x7f]*$/;
const LETTERS = /[\p{L}\p{Nl}\p{No}]+|\p{Nd}+/gu;
const CASE = /(?<=[a-z])(?=[A-Z])/;
/** Scripts without spaces, or with endings that stick to words. */
const UNSPACED =
  /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u{20000}-\u{3134f}]/u;
/** Marks on letters, but not those that distinguish Japanese syllables. */
const MARKS = /(?![\u3099\u309a])\p{M}/gu;
const BREAK = /[.,;:!?\n()\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]+|(?<![\p{L}\p{N}_])(?:and|then)(?![\p{L}\p{N}_])/giu;
const DATE = /^(?:\p{Nd}{4}-\p{Nd}\p{Nd}-\p{Nd}\p{Nd}|\p{Nd}{1,2}[./]\p{Nd}{1,2}[./]\p{Nd}{2,4})$/u;
const EDGES = /^[.,;:!?()[\]{}<>"'`]+|[.,;:!?()[\]{}<>"'`]+$/g;

/** The words between white space. */
export function chunks(text: string): string[] {
  return text.split(SPACES).filter(Boolean);
}

export function trimmed(text: string): string {
  return text.replace(AROUND, "");
}

/** Lower case in which different spellings of a letter are the same, as Python's `casefold`. */
export function folded(text: string): string {
  if (ASCII.test(text)) return text.toLowerCase();
  return Array.from(text, foldedLetter).join("");
}

function foldedLetter(letter: string): string {
  // The dotless i has an upper case that is another letter's.
  if (letter === "ı") return letter;
  return letter.toUpperCase().toLowerCase();
}

/** Splits text as one index does. */
export class Splitter {
  private readonly stop: Set<string>;
  private readonly weak: Set<string>;
  private readonly word: RegExp;
  private readonly operator: RegExp;
  private readonly phrase: RegExp;
  private readonly irregular: Map<string, string>;
  private readonly extensions: Set<string>;
  private readonly notAHost: Set<string>;

  constructor(
    private readonly words: Words,
    private readonly constants: Constants,
  ) {
    this.stop = new Set(words.stop);
    this.weak = new Set(words.weak);
    this.word = new RegExp(`${words.compounds.join("|")}|[A-Z]{2,}s(?![A-Za-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+`, "g");
    this.operator = new RegExp(words.operator, "gi");
    this.phrase = new RegExp(words.phrase, "gi");
    this.irregular = new Map(words.irregular);
    this.extensions = new Set(words.extensions);
    this.notAHost = new Set(words.not_a_host);
  }

  /** The terms of a text, in order, with repetitions. */
  terms(text: string): string[] {
    return chunks(text).flatMap((chunk) => this.chunkTerms(chunk));
  }

  private chunkTerms(chunk: string): string[] {
    if (ASCII.test(chunk)) {
      const words = /^[a-z]+$/.test(chunk) ? [chunk] : (chunk.match(this.word) ?? []).map((word) => word.toLowerCase());
      return words.filter((word) => !this.stop.has(word)).map((word) => this.stem(word));
    }
    const letters = chunk.normalize("NFKC").normalize("NFD").replace(MARKS, "").normalize("NFC");
    const words = (letters.match(LETTERS) ?? []).flatMap((word) => word.split(CASE)).map(folded);
    return words.flatMap((word) => {
      if (UNSPACED.test(word)) return pairs(word);
      return this.stop.has(word) ? [] : [this.stem(word)];
    });
  }

  stem(of: string): string {
    let word = of;
    if (word.length < 4 || !ASCII.test(word)) return word;
    word = this.singular(word);
    if (word.endsWith("ing") && word.length > 5) word = singleEnd(word.slice(0, -3));
    else if (word.endsWith("ed") && word.length > 4 && word.at(-3) !== "e") word = singleEnd(word.slice(0, -2));
    const whole = word;
    const suffix = this.words.suffixes.find(([end, left]) => whole.endsWith(end) && whole.length - end.length >= left);
    if (suffix) word = word.slice(0, -suffix[0].length);
    if (word.length > 3 && word.endsWith("e")) return word.slice(0, -1);
    if (word.length > 3 && word.endsWith("y") && !"aeiou".includes(word.at(-2) as string)) return `${word.slice(0, -1)}i`;
    return word;
  }

  private singular(word: string): string {
    const irregular = this.irregular.get(word);
    if (irregular !== undefined) return irregular;
    if (!word.endsWith("s")) return word;
    if (word.endsWith("ies") && word.length > 4) return `${word.slice(0, -3)}y`;
    if (/(?:sses|xes|ches|shes)$/.test(word)) return word.slice(0, -2);
    return "sui".includes(word.at(-2) as string) ? word : word.slice(0, -1);
  }

  /** The weight of a term of a request: filler words count less. */
  emphasis(term: string): number {
    return this.weak.has(term) ? this.constants.weak : 1;
  }

  /** The beginning of a query in the words of tools: literal values, operators between numbers, everyday phrases. */
  readable(query: string): string {
    const text = this.beginning(query).replace(CHUNK, (chunk) => {
      if (!/[./\\@-]/.test(chunk)) return chunk;
      const core = chunk.replace(EDGES, "");
      const kind = this.kind(core);
      return kind ? chunk.replaceAll(core, () => kind) : chunk;
    });
    return text
      .replace(this.operator, (_, sign, word) => this.words.operators[(sign ?? word).toLowerCase()] as string)
      .replace(this.phrase, (_, ...groups) => this.words.phrases[groups.findIndex((group) => group !== undefined)] as string);
  }

  beginning(query: string): string {
    const most = this.constants.max_query;
    return query.length <= most ? query : Array.from(query).slice(0, most).join("");
  }

  private kind(value: string): string {
    const [scheme, address] = split(value, "://");
    if (address !== null || value.startsWith("www.")) {
      const host = (address || scheme).split(/[/?#:]/)[0] as string;
      return ["url", ...host.split(".").filter((part) => !this.notAHost.has(part))].join(" ");
    }
    const [name, domain] = split(value, "@");
    if (domain !== null && name && domain.includes(".")) return "email";
    if (DATE.test(value)) return "date";
    const folders = value.split(/[\\/]/);
    const last = folders.pop() as string;
    const dot = last.lastIndexOf(".");
    const extension = last.slice(dot + 1);
    if (dot > 0 && this.extensions.has(extension.toLowerCase()))
      return folders.length ? `file ${extension}` : `${last.slice(0, dot)} file ${extension}`;
    return folders.length > 1 && ("/\\~".includes(value[0] as string) || value[1] === ":") ? "path" : "";
  }

  /** The parts of a request, split at punctuation, "and" and "then". */
  clauses(query: string): string[] {
    const parts: string[] = [];
    let from = 0;
    for (const match of query.matchAll(BREAK)) {
      if (parts.length === 4 * this.constants.max_clauses) break;
      parts.push(query.slice(from, match.index));
      from = match.index + match[0].length;
    }
    parts.push(query.slice(from));
    return parts.map(trimmed).filter(Boolean).slice(0, this.constants.max_clauses);
  }
}

function split(text: string, separator: string): [before: string, after: string | null] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + separator.length)];
}

function pairs(word: string): string[] {
  const letters = Array.from(word);
  return Array.from({ length: Math.max(1, letters.length - 1) }, (_, index) => letters.slice(index, index + 2).join(""));
}

function singleEnd(word: string): string {
  const end = word.at(-1) as string;
  return word.length > 3 && end === word.at(-2) && !"lsz".includes(end) ? word.slice(0, -1) : word;
}
