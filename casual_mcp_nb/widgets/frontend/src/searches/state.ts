// The state behind the model's searches, as `casual_mcp_nb/widgets/searches.py` makes it.

import type { SearchSlide } from "../player/state";

export interface ModelSearch {
  turn: number;
  step: number;
  query: string;
  /** What it did, in words. */
  words: string;
  found: SearchSlide["rows"];
  /** How many tools after these are not shown. */
  more: number;
}

export interface SearchesState {
  /** By number, from 1. */
  rows: Record<string, ModelSearch>;
  /** How many searches before these are not shown. */
  earlier: number;
}
