// Numbers and counts as people read them.

export const number = new Intl.NumberFormat("en-US");

/** "1 tool", "1,204 tools". */
export function counted(count: number, noun: string): string {
  return `${number.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** "≈ 824 tokens" for an estimate, "824 tokens" for what a provider reported. */
export function tokens(count: number, origin: "estimated" | "reported" = "estimated"): string {
  return `${origin === "estimated" ? "≈ " : ""}${counted(count, "token")}`;
}

/** A difference with its sign; a true minus. */
export function signed(difference: number): string {
  if (difference === 0) return "±0";
  return `${difference > 0 ? "+" : "−"}${number.format(Math.abs(difference))}`;
}

/** "87% less", "94% more", "the same". */
export function compared(now: number, before: number): string {
  const percent = before ? Math.round((100 * Math.abs(now - before)) / before) : 0;
  if (!percent) return "the same";
  return `${percent}% ${now < before ? "less" : "more"}`;
}

/** The time of day, from seconds since 1970. */
export function clock(seconds: number): string {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB");
}
