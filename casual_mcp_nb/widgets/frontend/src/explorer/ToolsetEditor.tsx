import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "../lib/controls";
import { useBridge, useWidgetState } from "../lib/widget";
import { RuleRow } from "./RuleRow";
import { formOf, type RuleForm, rulesOf } from "./rules";
import type { ExplorerState, ToolSet } from "./state";

/** A form that makes a toolset of what the selection includes, uses it and saves it. */
export function ToolsetEditor({ onClose }: { onClose(): void }) {
  const bridge = useBridge<ExplorerState>();
  const { order, tool_sets: sets } = useWidgetState<ExplorerState>().selection;
  const [name, setName] = useState(sets.selected ?? "");
  const [description, setDescription] = useState("");
  // Nothing can be changed or saved before it is filled: that would save an empty toolset.
  const [forms, setForms] = useState<Record<string, RuleForm> | null>(null);
  const [note, setNote] = useState("");
  const [question, setQuestion] = useState("");
  const heading = useRef<HTMLHeadingElement>(null);
  const save = useRef<HTMLButtonElement>(null);
  const unsaved = useId();

  const fill = async () => {
    const draft = await bridge.call<ToolSet>("selection.draft");
    if (!draft) return;
    setDescription(draft.description ?? "");
    setForms(Object.fromEntries(order.map((server) => [server, formOf(draft.servers[server])])));
    setNote("");
    setQuestion("");
  };
  // It is filled when it opens, and when a person asks for that
  useEffect(() => {
    heading.current?.focus();
    void fill();
  }, []);

  const toolSet = () => ({ servers: rulesOf(forms ?? {}), description });
  const use = async () => {
    setNote("");
    if ((await bridge.call("selection.edit_tool_set", toolSet())) === null) setNote("✓ In use, not saved.");
  };
  const store = async (overwrite: boolean) => {
    setQuestion("");
    setNote("");
    const answer = await bridge.call<{ saved?: string; question?: string }>("selection.save_tool_set", {
      name: name.trim(),
      overwrite,
      ...toolSet(),
    });
    if (answer?.question) setQuestion(answer.question);
    else if (answer?.saved) {
      setNote(`✓ Saved to ${answer.saved}.`);
      save.current?.focus();
    }
  };
  const cancel = () => {
    setQuestion("");
    save.current?.focus();
  };
  const close = () => {
    bridge.error.value = null;
    onClose();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };

  return (
    <section
      class="cmn-task"
      aria-label="Toolset editor"
      data-testid="editor"
      onKeyDown={onKeyDown}
      onInput={() => setNote("")}
    >
      <div class="cmn-row">
        <h3 tabIndex={-1} ref={heading} class="cmn-grow">
          Edit toolset
        </h3>
        <Button testid="take-ticked" tone="quiet" onClick={fill}>
          Use current ticks
        </Button>
        <Button testid="close-editor" onClick={close}>
          Close
        </Button>
      </div>
      <div class="cmn-row">
        <label class="cmn-field">
          <span class="cmn-quiet">Name</span>
          <input
            type="text"
            autocomplete="off"
            data-testid="tool-set-name"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <label class="cmn-field cmn-grow">
          <span class="cmn-quiet">Description</span>
          <input
            type="text"
            autocomplete="off"
            data-testid="tool-set-description"
            value={description}
            onInput={(event) => setDescription(event.currentTarget.value)}
          />
        </label>
      </div>
      <table class="cmn-table cmn-rules">
        <thead>
          <tr>
            <th scope="col">Server</th>
            <th scope="col">Include</th>
            <th scope="col">Tools, with commas between</th>
          </tr>
        </thead>
        <tbody>
          {(forms ? order : []).map((server) => (
            <RuleRow
              key={server}
              server={server}
              form={forms?.[server] ?? { kind: "none", names: "" }}
              onChange={(form) => setForms((before) => ({ ...before, [server]: form }))}
            />
          ))}
        </tbody>
      </table>
      <div class="cmn-row">
        <Button testid="use-tool-set" disabled={!forms} onClick={use}>
          Use it
        </Button>
        <Button
          testid="save-tool-set"
          tone="primary"
          disabled={!sets.file || !forms}
          aria-describedby={sets.file ? undefined : unsaved}
          ref={save}
          onClick={() => store(false)}
        >
          {sets.file ? `Save to ${sets.file}` : "Save to the config file"}
        </Button>
        <span class="cmn-quiet" role="status" data-testid="saved">
          {note}
        </span>
      </div>
      <p class="cmn-quiet" id={unsaved} hidden={Boolean(sets.file)} data-testid="cannot-save">
        This session was not started from a config file, so there is nowhere to save it.
      </p>
      {question && <Replace question={question} onReplace={() => store(true)} onCancel={cancel} />}
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
        Cancel
      </Button>
    </div>
  );
}
