// What a search returned, with the line below which the model sees nothing.

import { counted, number } from "../lib/words";
import type { Hit, Ranked } from "./state";

/** Return the hits that the model gets, and those after them. */
export function splitHits({ hits, cut }: Ranked): [returned: readonly Hit[], below: readonly Hit[]] {
  return [hits.slice(0, cut), hits.slice(cut)];
}

/** Say how many matches are shown, of how many tools, and by what they are ranked. */
export function summaryOf({ query, hits, searched, cut, ranked_by = "words", note = "" }: Ranked): string {
  if (!query.trim()) return "";
  const tools = counted(searched, "tool");
  if (!hits.length) return `No match among ${tools}. Use the words of the descriptions.`;
  const shown = counted(hits.length, "match").replace("matchs", "matches");
  const summary = `Showing ${shown} of ${tools}, ranked by ${ranked_by}. The model gets the top ${number.format(cut)}.`;
  return note ? `${summary} ${note}` : summary;
}

/** A score with one decimal at most. */
export function scoreText(score: number): string {
  return score.toFixed(1).replace(/\.0$/, "");
}
