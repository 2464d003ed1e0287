import { FieldInput } from "./FieldInput";
import type { Field } from "./state";

interface Props {
  fields: readonly Field[];
  values: Record<string, string>;
  onWrite(name: string, text: string): void;
}

/** The parameters of a tool, each with a field to fill in. */
export function ParameterTable({ fields, values, onWrite }: Props) {
  if (!fields.length) return <p class="cmn-quiet">It takes no parameters.</p>;
  return (
    <table class="cmn-table cmn-parameters" data-testid="parameters">
      <thead>
        <tr>
          <th scope="col">Parameter</th>
          <th scope="col">Value</th>
        </tr>
      </thead>
      <tbody>
        {fields.map((field) => (
          <tr key={field.name}>
            <th scope="row">
              <code>{field.name}</code>
              {field.required && (
                <span class="cmn-required" title="required">
                  *
                </span>
              )}{" "}
              <span class="cmn-quiet">{field.type}</span>
              {field.description && <div class="cmn-quiet cmn-said">{field.description}</div>}
            </th>
            <td>
              <FieldInput field={field} value={values[field.name] ?? ""} onWrite={(text) => onWrite(field.name, text)} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
