import { useEffect, useState } from "preact/hooks";
import { CopyButton } from "../lib/controls";
import { useBridge } from "../lib/widget";
import { clock } from "../lib/words";
import type { RpcMessage } from "./state";

interface Props {
  server: string;
  tool: string;
  /** The messages are read again when it changes. */
  version: unknown;
}

/** The JSON-RPC messages about a tool, as they were sent. */
export function MessageList({ server, tool, version }: Props) {
  const bridge = useBridge();
  const [messages, setMessages] = useState<readonly RpcMessage[] | null>(null);
  // `version` tells that there are others
  useEffect(() => {
    let wanted = true;
    void bridge.call<RpcMessage[]>("selection.messages", { server, tool }).then((next) => wanted && setMessages(next ?? []));
    return () => {
      wanted = false;
    };
  }, [bridge, server, tool, version]);
  if (!messages) return null;
  return (
    <div class="cmn-messages" data-testid="messages">
      {messages.length ? null : <p class="cmn-quiet">No messages about this tool yet: run it.</p>}
      {messages.map((message, place) => (
        <details key={`${message.at}-${place}`}>
          <summary>
            <span class="cmn-quiet cmn-number">{clock(message.at)}</span> {message.direction === "sent" ? "→" : "←"}{" "}
            <code>{message.method}</code> <span class="cmn-quiet">{message.direction}</span>
          </summary>
          <pre>{indented(message.text)}</pre>
          <CopyButton testid="copy-message" text={() => message.text} />
        </details>
      ))}
    </div>
  );
}

/** JSON on several lines; what was cut is not JSON and stays as it is. */
function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
