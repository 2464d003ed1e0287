// Images that go with the next message.

import { useState } from "preact/hooks";
import { number } from "../lib/words";
import type { ConversationState } from "./state";

export interface Attachment {
  id: number;
  name: string;
  size: number;
  /** The whole image as a `data:` address. */
  url: string;
}

export const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

type Limits = ConversationState["image_limits"];

/** Why a file cannot be attached; undefined if it can. Python checks all of it again, and what the bytes are. */
export function refusal(
  file: { name: string; type: string; size: number },
  attached: number,
  limits: Limits,
): string | undefined {
  if (!IMAGE_TYPES.includes(file.type)) return `${file.name} is not a PNG, JPEG, GIF or WebP image. Convert it to one of them.`;
  if (file.size > limits.each) return `${file.name} has ${megabytes(file.size)}; the limit is ${megabytes(limits.each)}.`;
  if (attached + file.size > limits.together)
    return `${file.name} does not fit: the images of one message can have ${megabytes(limits.together)} together.`;
  return undefined;
}

/** What the command that sends a message takes. */
export function sendable(attachments: readonly Attachment[]): { name: string; data: string }[] {
  return attachments.map(({ name, url }) => ({ name, data: url.slice(url.indexOf(",") + 1) }));
}

function megabytes(bytes: number): string {
  return `${number.format(Math.ceil(bytes / 10_000) / 100)} MB`;
}

export interface Attachments {
  list: readonly Attachment[];
  add(files: Iterable<File>): Promise<void>;
  remove(id: number): void;
  replace(list: readonly Attachment[]): void;
}

let count = 0;

/** The images of the message that is being written; `refuse` is told why one cannot be attached, or null. */
export function useAttachments(limits: Limits, refuse: (why: string | null) => void): Attachments {
  const [list, setList] = useState<readonly Attachment[]>([]);
  const add = async (files: Iterable<File>) => {
    let attached = list.reduce((sum, { size }) => sum + size, 0);
    let problem: string | null = null;
    const added: Attachment[] = [];
    for (const file of files) {
      const why = refusal(file, attached, limits);
      if (why === undefined) {
        attached += file.size;
        added.push({ id: count++, name: file.name, size: file.size, url: await read(file) });
      } else problem = why;
    }
    refuse(problem);
    setList((before) => [...before, ...added]);
  };
  return { list, add, remove: (id) => setList((before) => before.filter((each) => each.id !== id)), replace: setList };
}

function read(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
