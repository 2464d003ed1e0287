// The values of a form, as they are typed; Python checks and converts them.

import type { Field } from "./state";

export type Value = string | boolean | string[];

/** What the fields hold before anybody types: what the server suggests. */
export function atFirst(fields: readonly Field[]): Record<string, Value> {
  // No prototype: a server may name a field as it likes.
  const values: Record<string, Value> = Object.create(null);
  for (const field of fields) values[field.name] = suggested(field);
  return values;
}

function suggested({ kind, default: value }: Field): Value {
  if (kind === "boolean") return value === true;
  if (kind === "choices") return Array.isArray(value) ? value.map(String) : [];
  return value === undefined || value === null ? "" : String(value);
}

/** A list of choices with one of them added or removed, in the order in which the server lists them. */
export function toggled(field: Field, chosen: readonly string[], value: string, on: boolean): string[] {
  return field.choices.map(([each]) => each).filter((each) => (each === value ? on : chosen.includes(each)));
}

/** Inputs of the browser for the formats that they can express: theirs for a time has no offset. */
const INPUT_TYPES: Record<string, string> = { email: "email", uri: "url", date: "date" };

/** The attributes of an input for text or a number. */
export function inputProps(field: Field): Record<string, string | number> {
  if (field.kind === "text") return { type: INPUT_TYPES[field.format ?? ""] ?? "text" };
  const limits = {
    ...(field.minimum !== undefined && { min: field.minimum }),
    ...(field.maximum !== undefined && { max: field.maximum }),
  };
  return { type: "number", step: field.kind === "integer" ? "1" : "any", ...limits };
}
