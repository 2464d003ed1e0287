import { inputProps, toggled, type Value } from "./form";
import type { Field } from "./state";

interface Props {
  field: Field;
  value: Value | undefined;
  onChange(value: Value): void;
}

/** One field of a server's form, by its kind. */
export function FormField({ field, value, onChange }: Props) {
  const testid = `field-${field.name}`;
  const note = field.description && <span class="cmn-quiet cmn-field-note">{field.description}</span>;
  if (field.kind === "choices") {
    const chosen = Array.isArray(value) ? value : [];
    return (
      <fieldset class="cmn-field" data-testid={testid}>
        <legend>
          <Title field={field} />
        </legend>
        {field.choices.map(([each, text]) => (
          <label key={each} class="cmn-labelled">
            <input
              type="checkbox"
              checked={chosen.includes(each)}
              onChange={(event) => onChange(toggled(field, chosen, each, event.currentTarget.checked))}
            />
            {text}
          </label>
        ))}
        {note}
      </fieldset>
    );
  }
  if (field.kind === "boolean")
    return (
      <label class="cmn-field">
        <span class="cmn-labelled">
          <input
            type="checkbox"
            data-testid={testid}
            checked={value === true}
            onChange={(event) => onChange(event.currentTarget.checked)}
          />
          <Title field={field} />
        </span>
        {note}
      </label>
    );
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is one of the two below
    <label class="cmn-field">
      <Title field={field} />
      {field.kind === "choice" ? (
        <select data-testid={testid} value={String(value ?? "")} onChange={(event) => onChange(event.currentTarget.value)}>
          {(field.default === undefined || field.default === null) && <option value="">Choose …</option>}
          {field.choices.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      ) : (
        <input
          {...inputProps(field)}
          data-testid={testid}
          autocomplete="off"
          required={field.required}
          value={String(value ?? "")}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
      {note}
    </label>
  );
}

function Title({ field }: { field: Field }) {
  const optional = !field.required && field.kind !== "boolean";
  return (
    <span class="cmn-field-title">
      {field.title}
      {optional && <span class="cmn-quiet"> · optional</span>}
    </span>
  );
}
