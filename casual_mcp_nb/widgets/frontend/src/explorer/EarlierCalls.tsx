import { useEffect, useState } from "preact/hooks";
import { useBridge } from "../lib/widget";
import { clock } from "../lib/words";
import type { CallRow } from "./state";
import type { Trial } from "./workbench";

interface Props {
  name: string;
  /** How many there are; they are read again when it changes. */
  count: number;
  /** The call whose result is shown. */
  shown: string | undefined;
  onShow(result: NonNullable<Trial["result"]>): void;
}

/** The calls of a tool that the person made; a click shows the result again. */
export function EarlierCalls({ name, count, shown, onShow }: Props) {
  const bridge = useBridge();
  const [calls, setCalls] = useState<readonly CallRow[]>([]);
  useEffect(() => {
    if (count) bridge.request<CallRow[]>("selection.calls", { name }).then(setCalls, () => setCalls([]));
  }, [bridge, name, count]);
  const show = async ({ id, at, status }: CallRow) => {
    const html = await bridge.call<string>("selection.call_html", { id });
    if (html !== undefined) onShow({ id, html, status, title: `Run at ${clock(at)}` });
  };
  if (!count || !calls.length) return null;
  return (
    <div class="cmn-earlier">
      <p class="cmn-quiet">Your calls</p>
      <ol data-testid="calls">
        {calls.map((call) => (
          <li key={call.id}>
            <button
              type="button"
              class="cmn-link"
              aria-pressed={call.id === shown}
              data-testid="earlier-call"
              onClick={() => show(call)}
            >
              <span class="cmn-quiet cmn-number">{clock(call.at)}</span>
              <code class="cmn-clip">{call.arguments}</code>
              <span class="cmn-number" data-status={call.status}>
                {call.status === "ok" ? "✓" : `✗ ${call.status}`} {call.seconds}
              </span>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}
