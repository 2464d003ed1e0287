import { RULE_KINDS, type RuleForm, type RuleKind, takesNames } from "./rules";

interface Props {
  server: string;
  form: RuleForm;
  onChange(form: RuleForm): void;
}

/** What a toolset includes of one server. */
export function RuleRow({ server, form, onChange }: Props) {
  return (
    <tr data-testid={`rule-${server}`}>
      <th scope="row">
        <code>{server}</code>
      </th>
      <td>
        <select
          aria-label={`${server}: include`}
          data-testid="rule"
          value={form.kind}
          onChange={(event) => onChange({ ...form, kind: event.currentTarget.value as RuleKind })}
        >
          {RULE_KINDS.map(([kind, text]) => (
            <option key={kind} value={kind}>
              {text}
            </option>
          ))}
        </select>
      </td>
      <td>
        <input
          type="text"
          class="cmn-mono cmn-wide"
          aria-label={`${server}: tools`}
          autocomplete="off"
          data-testid="rule-tools"
          disabled={!takesNames(form.kind)}
          value={form.names}
          onInput={(event) => onChange({ ...form, names: event.currentTarget.value })}
        />
      </td>
    </tr>
  );
}
