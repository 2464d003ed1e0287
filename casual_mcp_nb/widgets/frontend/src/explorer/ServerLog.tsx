import { useEffect, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { clock, counted } from "../lib/words";
import type { LogLine } from "./state";

interface Log {
  lines: readonly LogLine[];
  dropped: number;
}

/** What a server wrote to stderr, and the log messages that it sent; the newest last. */
export function ServerLog({ server, version }: { server: string; version: unknown }) {
  const bridge = useBridge();
  const [log, setLog] = useState<Log | null>(null);
  const [again, setAgain] = useState(0);
  // `version` and `again` tell that there is more
  useEffect(() => {
    let wanted = true;
    void bridge.call<Log>("selection.server_log", { server }).then((next) => wanted && next && setLog(next));
    return () => {
      wanted = false;
    };
  }, [bridge, server, version, again]);
  if (!log) return null;
  return (
    <div class="cmn-log" data-testid="log">
      <div class="cmn-row">
        <span class="cmn-quiet cmn-grow">
          {log.lines.length ? counted(log.lines.length, "line") : "It wrote nothing."}
          {log.dropped > 0 && `, ${counted(log.dropped, "line")} before that were dropped`}
        </span>
        <Button testid="log-refresh" tone="quiet" onClick={() => setAgain((count) => count + 1)}>
          Refresh
        </Button>
      </div>
      {log.lines.length > 0 && (
        // biome-ignore lint/a11y/useSemanticElements: a section cannot be preformatted
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
        <pre tabIndex={0} role="region" aria-label={`Log of ${server}`}>
          {log.lines.map((line, place) => (
            <div key={`${line.at}-${place}`}>
              <span class="cmn-quiet">
                {clock(line.at)} {line.level}
              </span>{" "}
              {line.text}
            </div>
          ))}
        </pre>
      )}
    </div>
  );
}
