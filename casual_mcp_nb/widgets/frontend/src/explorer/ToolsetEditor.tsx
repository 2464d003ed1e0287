import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useUniqueId } from "../lib/id";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, number, tokens } from "../lib/words";
import { sumOf, type ToolsetDraft, tickable } from "./draft";
import type { ExplorerState } from "./state";
import type { Workbench } from "./workbench";

/** The bar above the list while its ticks are those of a toolset: its name, its size and price, Save and Cancel. */
export function ToolsetEditor({ bench, draft }: { bench: Workbench; draft: ToolsetDraft }) {
  const bridge = useBridge<ExplorerState>();
  const { order, tools, fates, tool_sets: sets } = useWidgetState<ExplorerState>().selection;
  const [question, setQuestion] = useState("");
  const name = useRef<HTMLInputElement>(null);
  const save = useRef<HTMLButtonElement>(null);
  const unsaved = useUniqueId();
  useEffect(() => name.current?.select(), []);

  const offered = order.flatMap((server) => tickable({ tools, fates }, server));
  const sum = sumOf(offered, draft.ticked.value);
  const end = () => {
    bridge.error.value = null;
    bench.endEdit();
  };
  const use = async () => {
    if ((await bridge.call("selection.edit_tool_set", { ...draft.arguments(tools) })) !== null) return;
    end();
    bridge.say("Custom toolset in use, not saved");
  };
  const store = async (overwrite: boolean) => {
    setQuestion("");
    const chosen = draft.name.value.trim();
    const answer = await bridge.call<{ saved?: string; question?: string }>("selection.save_tool_set", {
      name: chosen,
      // A person who edits a toolset and keeps its name wants it replaced.
      overwrite: overwrite || chosen === draft.original,
      ...draft.arguments(tools),
    });
    if (answer?.question) setQuestion(answer.question);
    else if (answer?.saved) {
      end();
      bridge.say(`Toolset ${chosen} saved to ${answer.saved}`);
    }
  };
  const tickAll = (on: boolean) => {
    for (const server of order) {
      const wires = tickable({ tools, fates }, server).map(([, wire]) => wire);
      if (wires.length) draft.tick(server, wires, on);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    end();
  };

  return (
    <section
      class="cmn-editor"
      aria-label={draft.original ? `Edit toolset ${draft.original}` : "New toolset"}
      data-testid="editor"
      onKeyDown={onKeyDown}
    >
      <form
        class="cmn-row cmn-low"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (sets.file) void store(false);
        }}
      >
        <label class="cmn-field">
          <span class="cmn-quiet">{draft.original ? "Toolset" : "Name of the new toolset"}</span>
          <input
            ref={name}
            type="text"
            autocomplete="off"
            data-testid="tool-set-name"
            value={draft.name.value}
            onInput={(event) => (draft.name.value = event.currentTarget.value)}
          />
        </label>
        <label class="cmn-field cmn-grow">
          <span class="cmn-quiet">Description</span>
          <input
            type="text"
            autocomplete="off"
            data-testid="tool-set-description"
            value={draft.description.value}
            onInput={(event) => (draft.description.value = event.currentTarget.value)}
          />
        </label>
        <Button
          testid="save-tool-set"
          tone="primary"
          type="submit"
          disabled={!sets.file}
          aria-describedby={sets.file ? undefined : unsaved}
          ref={save}
        >
          {sets.file ? `Save to ${sets.file}` : "Save to the config file"}
        </Button>
        <Button testid="use-tool-set" title="Use it in this session, without saving it" onClick={use}>
          Use unsaved
        </Button>
        <Button testid="cancel-edit" onClick={end}>
          Cancel
        </Button>
      </form>
      <div class="cmn-row">
        <span role="status" data-testid="edit-sum">
          <strong>{number.format(sum.count)}</strong> of {counted(offered.length, "tool")} ticked, {tokens(sum.tokens)}
        </span>
        <Button testid="tick-all" tone="quiet" onClick={() => tickAll(true)}>
          Tick all
        </Button>
        <Button testid="tick-none" tone="quiet" onClick={() => tickAll(false)}>
          Untick all
        </Button>
        <span class="cmn-quiet" id={unsaved} hidden={Boolean(sets.file)} data-testid="cannot-save">
          This session was not started from a config file, so there is nowhere to save it.
        </span>
      </div>
      {question && (
        <Replace
          question={question}
          onReplace={() => store(true)}
          onCancel={() => {
            setQuestion("");
            save.current?.focus();
          }}
        />
      )}
    </section>
  );
}

interface ReplaceProps {
  question: string;
  onReplace(): void;
  onCancel(): void;
}

function Replace({ question, onReplace, onCancel }: ReplaceProps) {
  const cancel = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => cancel.current?.focus(), []);
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be a line of controls
    <div class="cmn-row cmn-question" role="group" aria-label="Replace the toolset?" data-testid="question">
      <span class="cmn-grow">{question}</span>
      <Button testid="replace" tone="danger" onClick={onReplace}>
        Replace
      </Button>
      <Button testid="keep" onClick={onCancel} ref={cancel}>
        Keep it
      </Button>
    </div>
  );
}
