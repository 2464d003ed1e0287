import type { Field } from "./state";

interface Props {
  field: Field;
  value: string;
  onWrite(text: string): void;
}

/** The control for one parameter. Enter in a text of one line runs the tool. */
export function FieldInput({ field, value, onWrite }: Props) {
  const common = {
    "aria-label": field.name,
    "aria-required": field.required,
    "data-testid": `field-${field.name}`,
    value,
  };
  const placeholder = field.default ?? "";
  const onInput = (event: { currentTarget: { value: string } }) => onWrite(event.currentTarget.value);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    (event.currentTarget as HTMLTextAreaElement).form?.requestSubmit();
  };
  switch (field.kind) {
    case "choice":
    case "boolean":
      return (
        <select {...common} onChange={onInput}>
          <option value="">{field.default ? `${field.default} (default)` : "not given"}</option>
          {(field.kind === "boolean" ? ["true", "false"] : (field.choices ?? [])).map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      );
    case "integer":
    case "number":
      return (
        <input
          type="text"
          inputMode={field.kind === "integer" ? "numeric" : "decimal"}
          autocomplete="off"
          placeholder={placeholder}
          {...common}
          onInput={onInput}
        />
      );
    case "json":
      return (
        <textarea
          rows={2}
          spellcheck={false}
          class="cmn-mono"
          placeholder={placeholder || "JSON"}
          {...common}
          onInput={onInput}
        />
      );
    default:
      return <textarea rows={1} placeholder={placeholder} {...common} onInput={onInput} onKeyDown={onKeyDown} />;
  }
}
