import { Idiomorph } from "idiomorph";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useUniqueId } from "./id";

interface Props {
  html: string;
  testid?: string;
  class?: string;
  /** Add buttons to what was drawn: each with `data-action`, by which `onAction` knows it, and a `data-key`. */
  decorate?(content: DocumentFragment): void;
  onAction?(button: HTMLButtonElement): void;
}

/** HTML that the package's display room drew, which escapes everything itself: the only HTML that goes in as HTML.
 *
 *  A change is morphed in: what a person unfolded stays open, what has the focus keeps it, what is scrolled stays. Elements
 *  with the same `data-key` represent the same thing.
 */
export function Drawn({ html, testid, decorate, onAction, ...rest }: Props) {
  const element = useRef<HTMLDivElement>(null);
  const id = useUniqueId();
  const heard = useRef(onAction);
  heard.current = onAction;
  useLayoutEffect(() => {
    const root = element.current;
    if (!root) return;
    const onClick = (event: MouseEvent) => {
      const target = event.target as Element;
      const button = target.closest<HTMLButtonElement>("button[data-action]");
      if (button) heard.current?.(button);
      else rememberFold(target);
    };
    root.addEventListener("click", onClick);
    return () => root.removeEventListener("click", onClick);
  }, []);
  useLayoutEffect(() => {
    const root = element.current;
    if (!root) return;
    Idiomorph.morph(root, [...parsed(html, id, decorate).childNodes], {
      morphStyle: "innerHTML",
      callbacks: { beforeAttributeUpdated: (name: string, node: Element) => !isOwn(name, node) },
    });
    reachable(root);
  }, [html, id, decorate]);
  return <div ref={element} data-testid={testid} {...rest} />;
}

/** Idiomorph knows an element again by its id, which has to be the only one on the page. */
function parsed(html: string, prefix: string, decorate?: (content: DocumentFragment) => void): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = html;
  decorate?.(template.content);
  for (const keyed of template.content.querySelectorAll<HTMLElement>("[data-key]")) keyed.id = `${prefix}-${keyed.dataset.key}`;
  return template.content;
}

/** Whether an attribute was set here and not drawn. */
function isOwn(name: string, node: Element): boolean {
  return (name === "open" && touched.has(node)) || (name === "tabindex" && node.tagName === "PRE") || name === "data-copied";
}

/** What a person folded or unfolded stays as they left it. */
const touched = new WeakSet<Element>();

function rememberFold(target: Element) {
  const details = target.closest("summary")?.parentElement;
  if (!details) return;
  touched.add(details);
  details.addEventListener("toggle", () => reachable(details), { once: true });
}

/** What scrolls is reached with the Tab key. */
function reachable(root: Element): void {
  for (const pre of root.querySelectorAll("pre")) if (pre.scrollHeight > pre.clientHeight) pre.tabIndex = 0;
}
