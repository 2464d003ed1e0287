import { useEffect, useState } from "preact/hooks";
import { Button, CopyButton, Labelled, Verbatim } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { clock, counted } from "../lib/words";
import type { Wire, WireGroup, WireMessage } from "./state";

const METHODS = ["tools/*", "resources/*", "prompts/*", "elicitation/*", "sampling/*", "notifications/*"];
const OUTCOMES = { ok: "", error: "✗ error", open: "… no answer" };

/** What went over the wire to a server, by request; the newest first. */
export function WireView({ server, version }: { server: string; version: unknown }) {
  const bridge = useBridge();
  const [wire, setWire] = useState<Wire | null>(null);
  const [method, setMethod] = useState("");
  const [text, setText] = useState("");
  const [again, setAgain] = useState(0);
  // `version` and `again` tell that there is more
  useEffect(() => {
    let wanted = true;
    void bridge.call<Wire>("selection.wire", { server, method, text }).then((next) => wanted && next && setWire(next));
    return () => {
      wanted = false;
    };
  }, [bridge, server, method, text, version, again]);
  if (!wire) return null;
  return (
    <div class="cmn-messages" data-testid="wire">
      <div class="cmn-row">
        <Labelled text="Method">
          <select data-testid="wire-method" value={method} onChange={(event) => setMethod(event.currentTarget.value)}>
            <option value="">all</option>
            {METHODS.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </Labelled>
        <Labelled text="Text">
          <input type="search" data-testid="wire-text" value={text} onChange={(event) => setText(event.currentTarget.value)} />
        </Labelled>
        <span class="cmn-quiet cmn-grow">{aboutWire(wire)}</span>
        <Button testid="wire-refresh" tone="quiet" onClick={() => setAgain((count) => count + 1)}>
          Refresh
        </Button>
      </div>
      {wire.groups.map((group) => (
        <details key={group.number} data-testid="wire-group" data-status={group.ended}>
          <summary>
            <span class="cmn-quiet cmn-number">{clock(group.at)}</span> <code>{group.method}</code> {group.tool}{" "}
            <span class="cmn-quiet">{aboutGroup(group)}</span>
          </summary>
          {group.messages.map((message, place) => (
            <MessageDetails key={`${message.at}-${place}`} message={message} />
          ))}
          {group.hidden > 0 && <p class="cmn-quiet">{counted(group.hidden, "more message")}</p>}
        </details>
      ))}
    </div>
  );
}

function MessageDetails({ message }: { message: WireMessage }) {
  const facts = [message.id && `id ${message.id}`, message.size, message.seconds, message.status && `HTTP ${message.status}`];
  const texts = [message.request, message.response, message.text].filter(Boolean) as string[];
  return (
    <details data-testid="wire-message" data-kind={message.kind}>
      <summary>
        {message.direction === "sent" ? "→" : "←"} {message.kind} <code>{message.method}</code>{" "}
        <span class="cmn-quiet">{facts.filter(Boolean).join(", ")}</span>
      </summary>
      {texts.map((text, place) => (
        <Verbatim key={place} label={`${message.kind} ${message.id ?? ""}`} testid="wire-contents" text={text} />
      ))}
      {texts.length ? (
        <CopyButton testid="copy-wire" text={() => texts.join("\n\n")} />
      ) : (
        <p class="cmn-quiet">Too long to be shown here: session.servers.wire has it.</p>
      )}
    </details>
  );
}

/** "3 messages, 2 rounds, 12 ms, ✗ error" */
export function aboutGroup(group: WireGroup): string {
  const messages = counted(group.messages.length + group.hidden, "message");
  const rounds = group.rounds > 1 ? counted(group.rounds, "round") : "";
  return [messages, rounds, group.seconds, OUTCOMES[group.ended]].filter(Boolean).join(", ");
}

/** "50 groups, 12 earlier groups not shown" */
export function aboutWire(wire: Wire): string {
  const earlier = wire.hidden ? `, ${counted(wire.hidden, "earlier group")} not shown` : "";
  const dropped = wire.dropped ? `, ${counted(wire.dropped, "message")} before that were dropped` : "";
  return `${wire.groups.length ? counted(wire.groups.length, "group") : "None."}${earlier}${dropped}`;
}
