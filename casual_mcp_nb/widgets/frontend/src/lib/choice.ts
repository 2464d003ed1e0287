import { useState } from "preact/hooks";

/** A value that a person changes and the kernel decides.
 *
 *  While a change is not answered, what arrives may be older than the click, so the control shows what was chosen. Then, also
 *  when the change was refused, it shows what holds: a command's patch arrives before its answer. `of` says what the value is of:
 *  a control that is now of something else does not show what was chosen before.
 */
export function useChoice<T>(value: T, send: (next: T) => Promise<unknown>, of = ""): [T, (next: T) => void] {
  const [choice, setChoice] = useState<{ of: string; value: T; open: number } | null>(null);
  const choose = (next: T) => {
    setChoice((before) => ({ of, value: next, open: (before?.of === of ? before.open : 0) + 1 }));
    void send(next).finally(() =>
      setChoice((before) => (before?.of !== of ? before : before.open > 1 ? { ...before, open: before.open - 1 } : null)),
    );
  };
  return [choice?.of === of ? choice.value : value, choose];
}
