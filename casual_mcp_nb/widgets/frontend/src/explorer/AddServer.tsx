import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useUniqueId } from "../lib/id";
import { useBridge, useWidgetState } from "../lib/widget";
import type { ExplorerState } from "./state";
import type { Workbench } from "./workbench";

export function AddServerButton({ bench }: { bench: Workbench }) {
  return (
    <Button testid="add-server" onClick={(event) => bench.begin("add server", event.currentTarget)}>
      Add server
    </Button>
  );
}

/** A form for a server: a command line, an address, or one that ships with the package. */
export function AddServer({ bench }: { bench: Workbench }) {
  const bridge = useBridge<ExplorerState>();
  const { order, bundled_names: bundled = {} } = useWidgetState<ExplorerState>().selection;
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  /** The servers that were there when it was sent; null before. */
  const [before, setBefore] = useState<readonly string[] | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const id = useUniqueId();
  // Before the next key arrives.
  useLayoutEffect(() => input.current?.focus(), []);

  // It is in the list as soon as it starts: its row and its card show the rest.
  const added = before && order.find((server) => !before.includes(server));
  useEffect(() => {
    if (added) bench.added(added);
  }, [bench, added]);

  const add = async (what: string) => {
    if (before) return;
    setProblem("");
    setBefore(order);
    try {
      const { server } = await bridge.request<{ server: string }>("selection.add_server", {
        text: what,
        name: name.trim() || null,
      });
      bench.added(server);
    } catch (error) {
      setProblem((error as Error).message);
      setBefore(null);
      input.current?.focus();
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    bench.endTask();
  };

  return (
    <section class="cmn-task" aria-label="Add a server" data-testid="add-server-form" onKeyDown={onKeyDown}>
      <div class="cmn-row">
        <h3 class="cmn-grow">Add a server</h3>
        <Button testid="add-cancel" onClick={() => bench.endTask()}>
          Close
        </Button>
      </div>
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void add(text.trim());
        }}
      >
        <label class="cmn-field">
          <span>Command line or address</span>
          <input
            ref={input}
            type="text"
            class="cmn-mono"
            autocomplete="off"
            spellcheck={false}
            placeholder="npx -y @modelcontextprotocol/server-filesystem docs"
            aria-describedby={`${id}-help ${id}-problem`}
            aria-invalid={Boolean(problem)}
            data-testid="server-text"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <p class="cmn-quiet" id={`${id}-help`}>
          A command runs on this computer with your rights. An address begins with http:// or https://.
        </p>
        <label class="cmn-field">
          <span>
            Name <span class="cmn-quiet">(optional)</span>
          </span>
          <input
            type="text"
            autocomplete="off"
            data-testid="server-name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <div class="cmn-bad" role="alert" id={`${id}-problem`} data-testid="add-problem">
          {problem}
        </div>
        <Button testid="add-submit" tone="primary" type="submit" aria-disabled={Boolean(before) || !text.trim()}>
          {before ? "Adding …" : "Add"}
        </Button>
      </form>
      {Object.keys(bundled).length > 0 && (
        <>
          <h4>Or one that ships with the package</h4>
          <ul class="cmn-bundled" data-testid="bundled">
            {Object.entries(bundled).map(([server, summary]) => (
              <li key={server}>
                <Button testid={`bundled-${server}`} aria-describedby={`${id}-${server}`} onClick={() => add(server)}>
                  {server}
                </Button>
                <span class="cmn-quiet" id={`${id}-${server}`}>
                  {summary}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
