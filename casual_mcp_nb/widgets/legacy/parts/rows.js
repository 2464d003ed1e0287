// A list of any length of which only the rows in sight are elements. It is a treegrid: arrow keys move, the rest is up to `onKey`.

function rowList({ label, testid, heightOf, make, change, onKey }) {
  const space = h("div", { class: "cmn-space", role: "presentation" });
  const element = h("div", { class: "cmn-rows", role: "treegrid", "aria-label": label, testid }, space);
  let items = [];
  let tops = [0];
  let active = 0;

  function layout() {
    const em = parseFloat(getComputedStyle(element).fontSize) || 13;
    tops = [0];
    for (const item of items) tops.push(tops[tops.length - 1] + Math.round(heightOf(item) * em));
    space.style.height = `${tops[items.length]}px`;
    element.style.height = `min(${tops[items.length] + 2}px, var(--cmn-list-height))`;
    draw();
  }

  function at(offset) {
    let low = 0;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle + 1] <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function draw() {
    const from = Math.max(0, at(element.scrollTop) - 3);
    const to = Math.min(items.length, at(element.scrollTop + element.clientHeight) + 4);
    const shown = items.slice(from, to).map((item, place) => ({ item, index: from + place }));
    // The row that has the focus stays, wherever the list is scrolled to.
    if (active < from && items[active]) shown.unshift({ item: items[active], index: active });
    else if (active >= to && items[active]) shown.push({ item: items[active], index: active });
    keyed(space, shown, ({ item }) => item.key, ({ item }) => made(item), place);
  }

  function made(item) {
    const row = make(item);
    row.addEventListener("focusin", () => {
      if (active !== row._index) {
        active = row._index;
        draw();
      }
    });
    return row;
  }

  function place(row, { item, index }) {
    row._item = item;
    row._index = index;
    const style = `transform: translateY(${tops[index]}px); height: ${tops[index + 1] - tops[index]}px`;
    if (row.getAttribute("style") !== style) row.setAttribute("style", style);
    update(row, { tabindex: index === active ? "0" : "-1", "aria-rowindex": String(index + 1) });
    change(row, item);
  }

  function reveal(index) {
    if (tops[index] < element.scrollTop) element.scrollTop = tops[index];
    else if (tops[index + 1] > element.scrollTop + element.clientHeight) element.scrollTop = tops[index + 1] - element.clientHeight;
  }

  function go(index) {
    active = Math.max(0, Math.min(items.length - 1, index));
    reveal(active);
    draw();
    [...space.children].find((row) => row._index === active)?.focus({ preventScroll: true });
  }

  const MOVES = {
    ArrowDown: () => active + 1,
    ArrowUp: () => active - 1,
    PageDown: () => Math.max(active + 1, at(tops[active] + element.clientHeight) - 1),
    PageUp: () => Math.min(active - 1, at(tops[active] - element.clientHeight) + 1),
    Home: () => 0,
    End: () => items.length - 1,
  };

  element.addEventListener("keydown", (event) => {
    if (!event.target._item || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = MOVES[event.key];
    if (move) go(move());
    else if (!onKey(event, event.target._item)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  element.addEventListener("scroll", draw, { passive: true });
  const watcher = new ResizeObserver(layout);
  watcher.observe(element);

  return {
    element,
    /** Show these items; the one with the focus keeps it, as long as it is among them. */
    set(next) {
      const key = items[active]?.key;
      const held = space.contains(document.activeElement) || space.contains(element.getRootNode().activeElement);
      items = next;
      const found = items.findIndex((item) => item.key === key);
      if (found >= 0) active = found;
      else active = Math.max(0, Math.min(active, items.length - 1));
      update(element, { "aria-rowcount": String(items.length) });
      layout();
      if (held && found < 0 && items.length) go(active);
    },
    /** Focus the row with this key, or the one that can be focused. */
    focus(key) {
      const found = items.findIndex((item) => item.key === key);
      go(found < 0 ? active : found);
    },
    /** Scroll to the row with this key, where there is one. */
    reveal(key) {
      const found = items.findIndex((item) => item.key === key);
      if (found >= 0) reveal(found);
    },
    close: () => watcher.disconnect(),
  };
}
