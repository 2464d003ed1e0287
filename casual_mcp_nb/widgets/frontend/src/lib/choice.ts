import { useState } from "preact/hooks";

/** A value that a person changes and the kernel decides.
 *
 *  While a change is not answered, what arrives may be older than the click, so the control shows what was chosen. Then, also
 *  when the change was refused, it shows what holds: a command's patch arrives before its answer.
 */
export function useChoice<T>(value: T, send: (next: T) => Promise<unknown>): [T, (next: T) => void] {
  const [choice, setChoice] = useState<{ value: T; open: number } | null>(null);
  const choose = (next: T) => {
    setChoice((before) => ({ value: next, open: (before?.open ?? 0) + 1 }));
    void send(next).finally(() =>
      setChoice((before) => (before && before.open > 1 ? { ...before, open: before.open - 1 } : null)),
    );
  };
  return [choice ? choice.value : value, choose];
}
