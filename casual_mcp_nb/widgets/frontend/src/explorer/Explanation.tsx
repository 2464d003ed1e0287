import { useEffect, useState } from "preact/hooks";
import { Drawn } from "../lib/Drawn";
import { useBridge } from "../lib/widget";

const AFTER = 200;

interface Props {
  testid: string;
  query: string;
  name: string;
  whole: boolean;
  /** It is requested again when this changes. */
  basis: string;
}

/** Why a tool has its rank for a query, or none; it follows what is typed. */
export function Explanation({ testid, query, name, whole, basis }: Props) {
  const bridge = useBridge();
  const [html, setHtml] = useState<string | null>(null);
  // `basis` tells that the answer is another
  useEffect(() => {
    let wanted = true;
    const ask = async () => {
      const answer = await bridge.call<{ html: string }>("search.explain", { query, name, whole });
      if (wanted) setHtml(answer?.html ?? null);
    };
    const timer = setTimeout(ask, html === null ? 0 : AFTER);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [bridge, query, name, whole, basis]);
  return html === null ? null : <Drawn html={html} testid={testid} class="cmn-why" />;
}
