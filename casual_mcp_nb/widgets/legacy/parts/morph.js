const BLOCKS = new Set(["DIV", "DETAILS", "TABLE", "THEAD", "TBODY", "TR", "UL", "OL", "BLOCKQUOTE"]);

/** Bring an element in line with HTML of the display room, node by node: what the person opened stays open, what has the focus keeps it, what is scrolled stays. */
function redraw(element, html) {
  bringInLine(element, drawn(h("div"), html));
  reachable(element);
}

/** What scrolls is reached with the Tab key. */
function reachable(element) {
  for (const pre of element.querySelectorAll("pre")) if (pre.scrollHeight > pre.clientHeight) pre.tabIndex = 0;
}

function bringInLine(old, fresh) {
  let there = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    if (isFiller(next)) continue;
    const found = matching(there, next);
    if (!found) {
      if (next.nodeType === Node.ELEMENT_NODE) dropFillers(next);
      old.insertBefore(next, there);
      continue;
    }
    while (there !== found) there = dropped(there);
    change(found, next);
    there = found.nextSibling;
  }
  while (there) there = dropped(there);
}

function matching(there, next) {
  if (next.nodeType !== Node.ELEMENT_NODE) return there?.nodeType === next.nodeType ? there : null;
  const name = nameOf(next);
  let found = there;
  while (found && nameOf(found) !== name) found = found.nextSibling;
  return found;
}

function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const title = node.classList.contains("cmn-section") ? node.querySelector("strong")?.textContent : "";
  return `${node.nodeName} ${node.className} ${title}`;
}

function change(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (name !== "open" && name !== "tabindex" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.nodeName === "DETAILS" && !old._touched) old.open = fresh.open;
  bringInLine(old, fresh);
}

function dropped(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

/** Line ends between blocks are no content; between words they are. */
function isFiller(node) {
  return node.nodeType === Node.TEXT_NODE && node.data.includes("\n") && !node.data.trim() && BLOCKS.has(node.parentNode.nodeName);
}

function dropFillers(element) {
  for (const node of [...element.childNodes]) {
    if (isFiller(node)) node.remove();
    else if (node.nodeType === Node.ELEMENT_NODE) dropFillers(node);
  }
}

/** From now on, what a person folds or unfolds in this element stays as they left it. */
function rememberFolds(element) {
  element.addEventListener("click", (event) => {
    const summary = event.target.closest("summary");
    if (summary) summary.parentElement._touched = true;
  });
  element.addEventListener("toggle", (event) => reachable(event.target), true);
}
