// What an app may send: JSON-RPC as plain JSON, bounded in size. Everything in it is hostile.

export type Id = string | number;

export type Incoming =
  | { kind: "request"; id: Id; method: string; params: Record<string, unknown> }
  | { kind: "notification"; method: string; params: Record<string, unknown> }
  | { kind: "response"; id: Id; error: boolean };

export const MAX_MESSAGE = 1_000_000;
export const MAX_FILE_MESSAGE = 14_000_000;
const MAX_DEPTH = 60;
const MAX_ID = 200;
const MAX_METHOD = 100;

/** The size of a value in characters, about that of its JSON, or Infinity if it is larger than the limit or not plain JSON. */
export function sizeOf(value: unknown, limit: number): number {
  let size = 0;
  const pending: [unknown, number][] = [[value, 0]];
  while (pending.length) {
    const [item, depth] = pending.pop() as [unknown, number];
    if (depth > MAX_DEPTH) return Number.POSITIVE_INFINITY;
    if (typeof item === "string") size += item.length + 2;
    else if (item === null || typeof item === "boolean" || item === undefined) size += 4;
    else if (typeof item === "number") size += 8;
    else if (Array.isArray(item)) {
      size += item.length + 2;
      if (size > limit) break;
      for (const each of item) pending.push([each, depth + 1]);
    } else if (isPlain(item)) {
      size += 2;
      for (const key in item) {
        size += key.length + 4;
        if (size > limit) break;
        pending.push([item[key], depth + 1]);
      }
    } else return Number.POSITIVE_INFINITY;
    if (size > limit) break;
  }
  return size > limit ? Number.POSITIVE_INFINITY : size;
}

function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  // Structured clones have the prototype of this page.
  return prototype === Object.prototype || prototype === null;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return isPlain(value);
}

function isId(id: unknown): id is Id {
  return (typeof id === "string" && id.length <= MAX_ID) || (typeof id === "number" && Number.isFinite(id));
}

/** Read a message, or say why it is none. */
export function readMessage(data: unknown): Incoming | string {
  if (!isPlain(data) || data.jsonrpc !== "2.0") return "not a JSON-RPC message";
  const { id, method, params } = data;
  if (method === undefined)
    return isId(id) ? { kind: "response", id, error: "error" in data } : "a response without a usable id";
  if (typeof method !== "string" || method.length > MAX_METHOD) return "a method that is not a name";
  const limit = method === "ui/download-file" ? MAX_FILE_MESSAGE : MAX_MESSAGE;
  if (params !== undefined && !isPlain(params)) return `${method} with parameters that are not an object`;
  if (sizeOf(params ?? {}, limit) > limit)
    return `${method} with more than ${limit.toLocaleString("en")} characters, or not JSON`;
  const values = (params ?? {}) as Record<string, unknown>;
  if (id === undefined) return { kind: "notification", method, params: values };
  return isId(id) ? { kind: "request", id, method, params: values } : `${method} without a usable id`;
}

/** The beginning of a value as JSON, without walking the rest. */
export function brief(value: unknown, limit = 400): string {
  let left = limit;
  const write = (item: unknown, depth: number): string => {
    if (left <= 0 || depth > 6) return "…";
    if (typeof item === "string") {
      const text = JSON.stringify(item.slice(0, Math.min(left, 160)));
      left -= text.length;
      return item.length > 160 ? `${text.slice(0, -1)}…"` : text;
    }
    if (Array.isArray(item)) return `[${some(item.entries(), (each) => write(each, depth + 1))}]`;
    if (isPlain(item)) {
      return `{${some(Object.entries(item).entries(), ([key, each]) => {
        left -= key.length + 4;
        return `${JSON.stringify(key.slice(0, 60))}: ${write(each, depth + 1)}`;
      })}}`;
    }
    left -= 5;
    return String(item);
  };
  const some = <T>(entries: Iterable<[number, T]>, part: (each: T) => string): string => {
    const parts: string[] = [];
    for (const [, each] of entries) {
      if (left <= 0) {
        parts.push("…");
        break;
      }
      parts.push(part(each));
    }
    return parts.join(", ");
  };
  return write(value, 0);
}

/** An address that may be opened once the person has said so, or undefined. */
export function linkOf(text: unknown): string | undefined {
  if (typeof text !== "string" || text.length > 2000) return undefined;
  try {
    const url = new URL(text);
    const plain = (url.protocol === "https:" || url.protocol === "http:") && !url.username && !url.password;
    return plain ? url.href : undefined;
  } catch {
    return undefined;
  }
}

export interface AppFile {
  name: string;
  parts: BlobPart[];
  size: number;
}

const MAX_FILES = 5;

/** The files of `ui/download-file`, or a reason why they are refused. Only what is in the message itself is a file. */
export function filesOf(contents: unknown): AppFile[] | string {
  if (!Array.isArray(contents) || !contents.length || contents.length > MAX_FILES) return `between 1 and ${MAX_FILES} files`;
  const files: AppFile[] = [];
  for (const each of contents) {
    const resource = isRecord(each) && each.type === "resource" && isRecord(each.resource) ? each.resource : undefined;
    if (!resource) return "only contents that are in the message can be saved";
    const name = fileName(resource.uri);
    if (typeof resource.text === "string") files.push({ name, parts: [resource.text], size: resource.text.length });
    else if (typeof resource.blob === "string") {
      try {
        const bytes = Uint8Array.from(atob(resource.blob), (character) => character.charCodeAt(0));
        files.push({ name, parts: [bytes], size: bytes.length });
      } catch {
        return "its data is not base64";
      }
    } else return "a file without contents";
  }
  return files;
}

/** The last part of an address as a plain file name. */
export function fileName(uri: unknown): string {
  const last = String(uri ?? "")
    .split(/[?#]/, 1)[0]
    ?.split(/[\\/]/)
    .at(-1);
  let name = last ?? "";
  try {
    name = decodeURIComponent(name);
  } catch {
    // It stays as it is.
  }
  // Whatever is not a letter, a number, or one of these has no place in a name of a file.
  name = name.replace(/[^\p{L}\p{N} ._()+=,@-]/gu, "_").replace(/^\.+/, "");
  return name.slice(0, 100) || "file";
}

/** The text of a message's content, one block or several. */
export function textOf(content: unknown): string {
  const blocks = Array.isArray(content) ? content : [content];
  return blocks
    .map((block) => (isRecord(block) && block.type === "text" && typeof block.text === "string" ? block.text : ""))
    .filter(Boolean)
    .join("\n");
}
