import { Idiomorph } from "idiomorph";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";

/** HTML that the package's display room drew, which escapes everything itself: the only HTML that goes in as HTML.
 *
 *  A change is morphed in: what a person unfolded stays open, what has the focus keeps it, what is scrolled stays. Elements
 *  with the same `data-key` stand for the same thing.
 */
export function Drawn({ html, testid, ...rest }: { html: string; testid?: string; class?: string }) {
  const element = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => element.current?.addEventListener("click", rememberFold), []);
  useLayoutEffect(() => {
    const root = element.current;
    if (!root) return;
    Idiomorph.morph(root, [...parsed(html, id).childNodes], {
      morphStyle: "innerHTML",
      callbacks: { beforeAttributeUpdated: (name: string, node: Element) => !(name === "open" && touched.has(node)) },
    });
    reachable(root);
  }, [html, id]);
  return <div ref={element} data-testid={testid} {...rest} />;
}

/** Idiomorph knows an element again by its id, which has to be the only one on the page. */
function parsed(html: string, prefix: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const keyed of template.content.querySelectorAll<HTMLElement>("[data-key]")) keyed.id = `${prefix}-${keyed.dataset.key}`;
  return template.content;
}

/** What a person folded or unfolded stays as they left it. */
const touched = new WeakSet<Element>();

function rememberFold(event: MouseEvent) {
  const details = (event.target as Element).closest("summary")?.parentElement;
  if (!details) return;
  touched.add(details);
  details.addEventListener("toggle", () => reachable(details), { once: true });
}

/** What scrolls is reached with the Tab key. */
function reachable(root: Element): void {
  for (const pre of root.querySelectorAll("pre")) if (pre.scrollHeight > pre.clientHeight) pre.tabIndex = 0;
}
