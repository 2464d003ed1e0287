// The rules of a toolset, as a person fills them in.

import type { Rule } from "./state";

export type RuleKind = "all" | "only" | "but" | "none";

export const RULE_KINDS: readonly (readonly [RuleKind, string])[] = [
  ["all", "all tools"],
  ["only", "only"],
  ["but", "all but"],
  ["none", "none"],
];

export interface RuleForm {
  kind: RuleKind;
  /** Names of tools with commas between. */
  names: string;
}

export const takesNames = (kind: RuleKind) => kind === "only" || kind === "but";

export function formOf(rule: Rule | undefined): RuleForm {
  if (rule === undefined) return { kind: "none", names: "" };
  if (rule === true) return { kind: "all", names: "" };
  return "exclude" in rule ? { kind: "but", names: rule.exclude.join(", ") } : { kind: "only", names: rule.join(", ") };
}

export function ruleOf({ kind, names }: RuleForm): Rule | undefined {
  const tools = names
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  switch (kind) {
    case "all":
      return true;
    case "only":
      return tools;
    case "but":
      return { exclude: tools };
    case "none":
      return undefined;
  }
}

/** Return the rules of a toolset; a server without a rule has none of its tools in it. */
export function rulesOf(forms: Record<string, RuleForm>): Record<string, Rule> {
  const rules = Object.entries(forms).map(([server, form]) => [server, ruleOf(form)] as const);
  return Object.fromEntries(rules.filter((entry): entry is [string, Rule] => entry[1] !== undefined));
}
