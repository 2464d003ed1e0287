import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { Drawn } from "../lib/Drawn";
import { useBridge } from "../lib/widget";

type Mode = "deferred" | "off";

interface Unused {
  /** How many there are, and their price; absent if there are none. */
  text?: string;
  tools?: string;
  deferred?: string;
  off?: string;
}

const CHOICES: readonly (readonly [mode: Mode, label: string])[] = [
  ["deferred", "Defer them …"],
  ["off", "Turn them off …"],
];

/** The loaded tools that no conversation used: what a turn would cost without them, and a button that defers them or turns
 *  them off.
 */
export function UnusedTools({ shown }: { shown: boolean }) {
  const bridge = useBridge();
  const [unused, setUnused] = useState<Unused>({});
  const [mode, setMode] = useState<Mode | null>(null);
  const [done, setDone] = useState("");
  const status = useRef<HTMLParagraphElement>(null);
  // Conversations go on while another tab is shown
  useEffect(() => {
    if (!shown) return;
    setMode(null);
    setDone("");
    bridge.call<Unused>("selection.unused", {}).then((found) => setUnused(found ?? {}));
  }, [bridge, shown]);
  const apply = async (chosen: Mode) => {
    if ((await bridge.call("selection.leave_unused", { mode: chosen })) === undefined) return;
    setDone(`${unused.tools} ${chosen === "off" ? "turned off" : "deferred"}.`);
    setUnused({});
    status.current?.focus();
  };
  return (
    <section aria-label="Unused tools" data-testid="unused">
      <p role="status" tabIndex={-1} ref={status}>
        {done || unused.text}
      </p>
      {unused.text && (
        <div class="cmn-row">
          {CHOICES.map(([each, label]) => (
            <Button
              key={each}
              testid={`unused-${each}`}
              aria-expanded={each === mode}
              onClick={() => setMode(each === mode ? null : each)}
            >
              {label}
            </Button>
          ))}
        </div>
      )}
      {unused.text && mode && (
        <div class="cmn-change">
          <Drawn html={unused[mode] ?? ""} testid="unused-difference" />
          <Button testid="leave-unused" tone="primary" onClick={() => apply(mode)}>
            {`${mode === "off" ? "Turn off" : "Defer"} ${unused.tools}`}
          </Button>
        </div>
      )}
    </section>
  );
}
