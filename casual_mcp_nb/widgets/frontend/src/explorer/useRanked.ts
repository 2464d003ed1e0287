import { useEffect, useRef, useState } from "preact/hooks";
import { useBridge } from "../lib/widget";
import type { Ranked } from "./state";

const TERMS_AFTER = 250;
const NOTHING: Ranked = { query: "", cut: 0, searched: 0, hits: [] };

type Terms = Record<string, readonly string[]>;

/** Rank the tools for a query, and later tell the words that matched each.
 *
 *  There is one search at a time; what was typed meanwhile is looked for next, and an answer to an older query is not shown.
 */
export function useRanked(query: string, whole: boolean, basis: string): { ranked: Ranked | null; terms: Terms } {
  const bridge = useBridge();
  const [ranked, setRanked] = useState<Ranked | null>(null);
  const [terms, setTerms] = useState<Terms>({});
  const wanted = useRef("");
  const running = useRef(false);
  const latest = useRef({ query, whole });
  latest.current = { query, whole };
  const key = JSON.stringify([query, whole, basis]);

  useEffect(() => {
    const search = async () => {
      if (running.current) return;
      running.current = true;
      let done: string;
      do {
        done = wanted.current;
        const { query, whole } = latest.current;
        const answer = query.trim() ? await bridge.call<Ranked>("search.search", { query, whole }) : NOTHING;
        if (answer && done === wanted.current) setRanked(answer);
      } while (done !== wanted.current);
      running.current = false;
    };
    wanted.current = key;
    void search();
    const explain = async () => {
      const { query, whole } = latest.current;
      if (!query.trim()) return;
      const answer = await bridge.request<{ terms: Terms }>("search.terms", { query, whole }).catch(() => null);
      if (answer && wanted.current === key) setTerms(answer.terms);
    };
    const timer = setTimeout(explain, TERMS_AFTER);
    return () => clearTimeout(timer);
  }, [bridge, key]);
  return { ranked, terms };
}
