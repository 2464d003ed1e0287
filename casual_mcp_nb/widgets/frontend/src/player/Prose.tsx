import { createElement, type VNode } from "preact";
import type { ProseNode } from "./state";

const TAGS = new Set("p h4 strong em s code pre ul ol li blockquote table thead tbody tr th td br hr".split(" "));

/** A model's Markdown, which the package took apart: elements of these tags and texts, and nothing else. */
export function Prose({ nodes }: { nodes: readonly ProseNode[] }) {
  return <div class="cmn-prose">{nodes.map(drawn)}</div>;
}

function drawn(node: ProseNode): VNode | string {
  if (typeof node === "string") return node;
  const [tag, ...inside] = node;
  return createElement(typeof tag === "string" && TAGS.has(tag) ? tag : "span", null, ...inside.map(drawn));
}
