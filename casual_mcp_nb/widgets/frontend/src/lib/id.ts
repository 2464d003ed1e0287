import { useState } from "preact/hooks";

/** An id that no other widget on the page has: `useId` counts from the start in each of them, and radio buttons of one name exclude each other. */
export function useUniqueId(): string {
  return useState(() => `cmn-${Math.random().toString(36).slice(2)}`)[0];
}
