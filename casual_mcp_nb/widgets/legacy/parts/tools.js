// All servers and tools as one list, with filter, order and keyboard.

const FEW_TOOLS = 100;
const SERVER_ROW = 2.9;
const TROUBLE_ROW = 4.9;
const TOOL_ROW = 2.1;
/** The claims that stand in the list; the others stand on the tool's card. */
const IN_THE_LIST = new Set(["read-only", "destructive"]);

/** The texts that the filter looks through, made once for each list of rows. */
const haystacks = new WeakMap();

function haystackOf(rows) {
  if (!haystacks.has(rows)) haystacks.set(rows, rows.map(([name, wire, , badges = "", summary = ""]) => `${name} ${wire} ${badges} ${summary}`.toLowerCase()));
  return haystacks.get(rows);
}

/** What stands in the list. */
function itemsOf({ order, servers, tools, fates }, { filter, sort, isOpen }) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  const groups = [];
  for (const server of order) {
    const rows = tools[server] ?? [];
    const texts = words.length ? haystackOf(rows) : [];
    const name = server.toLowerCase();
    const matched = [];
    rows.forEach((row, place) => {
      if (words.every((word) => texts[place].includes(word) || name.includes(word))) {
        matched.push({ kind: "tool", key: `t:${row[1]}`, row, server, fate: fates[server]?.[place] ?? "l", flat: sort !== "server" });
      }
    });
    found.push(...matched);
    if (words.length && !matched.length && !words.every((word) => name.includes(word))) continue;
    groups.push({ kind: "server", key: `s:${server}`, server, shown: matched.length, all: rows.length, open: words.length > 0 || isOpen(server) });
    if (servers[server].error) groups.push({ kind: "trouble", key: `x:${server}`, server });
    if (words.length || isOpen(server)) groups.push(...matched);
  }
  if (sort === "server") return { items: groups, count: found.length };
  const compare = sort === "price" ? (one, other) => other.row[2] - one.row[2] : (one, other) => (one.row[0] < other.row[0] ? -1 : one.row[0] > other.row[0] ? 1 : 0);
  return { items: found.sort(compare), count: found.length };
}

function toolList(parts, { onOpen }) {
  const chosen = new Map();
  const filter = h("input", { type: "search", class: "cmn-grow", placeholder: "Filter tools  ( / )", "aria-label": "Filter tools", autocomplete: "off", testid: "filter" });
  const sort = h("select", { "aria-label": "Order", testid: "sort" });
  options(sort, [["server", "by server"], ["price", "by price"], ["name", "by name"]]);
  const fold = button("Fold all", "fold-all", () => foldAll());
  const count = h("span", { class: "cmn-quiet cmn-nowrap", testid: "count" });
  const list = rowList({
    label: "Servers and tools",
    testid: "tools",
    heightOf: ({ kind }) => (kind === "server" ? SERVER_ROW : kind === "trouble" ? TROUBLE_ROW : TOOL_ROW),
    make: (item) => (item.kind === "server" ? serverRow(parts, item, flip) : item.kind === "trouble" ? troubleRow(parts, item) : toolRow(parts, item, onOpen)),
    change: (row, item) => row._show(item, parts.state.selection),
    onKey,
  });
  const element = h("div", { class: "cmn-tools" }, h("div", { class: "cmn-row cmn-bar-top" }, filter, sort, fold, count), list.element);

  const total = () => Object.values(parts.state.selection.tools).reduce((sum, rows) => sum + rows.length, 0);
  const isOpen = (server) => chosen.get(server) ?? total() <= FEW_TOOLS;

  function flip(server, open = !isOpen(server)) {
    chosen.set(server, open);
    show();
  }

  function foldAll() {
    const open = !parts.state.selection.order.some(isOpen);
    for (const server of parts.state.selection.order) chosen.set(server, open);
    show();
  }

  function onKey(event, item) {
    if (item.kind === "trouble") return false;
    const { server } = item;
    switch (event.key) {
      case "Enter":
        if (item.kind === "server") flip(server);
        else onOpen(item.row[1], () => list.focus(item.key));
        return true;
      case " ":
        event.target.querySelector("input[type=checkbox]").click();
        return true;
      case "ArrowRight":
        if (item.kind === "server") flip(server, true);
        return true;
      case "ArrowLeft":
        if (item.kind === "server") flip(server, false);
        else if (!item.flat) list.focus(`s:${server}`);
        return true;
      default:
        return false;
    }
  }

  function show() {
    const { selection } = parts.state;
    const { items, count: found } = itemsOf(selection, { filter: filter.value, sort: sort.value, isOpen });
    list.set(items);
    const all = total();
    update(count, { text: found === all ? counted(all, "tool") : `${number.format(found)} of ${counted(all, "tool")}` });
    update(fold, { text: selection.order.some(isOpen) ? "Fold all" : "Unfold all", disabled: sort.value !== "server" });
  }

  filter.addEventListener("input", () => show());
  filter.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") list.focus();
    else if (event.key === "Escape" && filter.value) {
      filter.value = "";
      show();
      event.stopPropagation();
    } else return;
    event.preventDefault();
  });
  sort.addEventListener("change", () => show());
  return { element, show, filter, reveal: (name) => list.reveal(`t:${name}`), close: list.close };
}

function cell(className, ...children) {
  return h("div", { role: "gridcell", class: `cmn-cell ${className}` }, ...children);
}

function serverRow(parts, item, flip) {
  const { server } = item;
  const box = h("input", { type: "checkbox", tabindex: "-1", "aria-label": `All tools of ${server}`, testid: "all" });
  const sign = h("span", { class: "cmn-sign", "aria-hidden": "true" });
  const name = h("strong", { class: "cmn-clip", testid: "name" }, server);
  const state = stateMark();
  const about = h("span", { class: "cmn-quiet cmn-clip" });
  const price = cell("cmn-number cmn-price");
  const mode = modeControl(parts, server);
  const row = h(
    "div",
    { role: "row", class: "cmn-line cmn-server", "aria-level": "1", testid: `server-${server}` },
    cell("cmn-check", box),
    cell("cmn-title", sign, name, state.element, about),
    cell("cmn-mode-cell", mode.element),
    price,
  );
  box.addEventListener("change", () => choose(parts, "set_tools", { server, on: box.checked }));
  row.querySelector(".cmn-title").addEventListener("click", () => flip(server));
  row._show = (now, selection) => {
    const info = selection.servers[server];
    const letters = [...(selection.fates[server] ?? "")];
    const inside = letters.filter(isIn).length;
    update(row, { "aria-expanded": String(now.open), "data-status": info.state, "data-mode": info.mode, "data-effective": info.effective });
    update(row, { "aria-label": `${server}, ${info.state}, ${counted(now.all, "tool")}, ${tokens(info.tokens)}, ${info.mode}` });
    update(sign, { text: now.open ? "▾" : "▸" });
    update(box, { checked: inside > 0 && inside === letters.length, indeterminate: inside > 0 && inside < letters.length, disabled: !letters.length || info.mode === "off" });
    state.show(info.state);
    const shown = now.shown === now.all ? counted(now.all, "tool") : `${now.shown} of ${counted(now.all, "tool")}`;
    const differs = info.mode !== info.effective && `now ${info.effective}`;
    update(about, { text: info.state === "ready" || now.all ? [differs, inside < now.all ? `${inside} in, ${shown}` : shown, info.seconds].filter(Boolean).join(" · ") : "" });
    const whole = info.all_tokens === info.tokens ? "" : `; ${number.format(info.all_tokens)} for all of its tools`;
    update(price, { text: now.all ? number.format(info.tokens) : "", title: `${tokens(info.tokens)} (estimated) for those of its tools that are in${whole}` });
    mode.show(info);
  };
  return row;
}

function troubleRow(parts, item) {
  const box = troubleBox(parts, item.server);
  const row = h("div", { role: "row", class: "cmn-line cmn-trouble-line", "aria-level": "2", testid: `trouble-${item.server}` }, cell("", box.element));
  row._show = (now, selection) => box.show(selection.servers[item.server] ?? {});
  return row;
}

function toolRow(parts, item, onOpen) {
  const box = h("input", { type: "checkbox", tabindex: "-1", testid: "in" });
  const name = h("button", { type: "button", tabindex: "-1", class: "cmn-link cmn-mono cmn-clip", testid: "open" });
  const owner = h("span", { class: "cmn-quiet cmn-clip cmn-owner" });
  const summary = h("span", { class: "cmn-quiet cmn-clip cmn-summary" });
  const badges = h("span", { class: "cmn-badges" });
  const fate = cell("cmn-fate");
  const price = cell("cmn-number cmn-price");
  const row = h(
    "div",
    { role: "row", class: "cmn-line cmn-tool", "aria-level": "2" },
    cell("cmn-check", box),
    cell("cmn-title", name, owner, badges, summary),
    fate,
    price,
  );
  box.addEventListener("change", () => choose(parts, "set_tool", { name: row._item.row[1], on: box.checked }));
  name.addEventListener("click", () => onOpen(row._item.row[1], () => row.focus()));
  row._show = (now, selection) => {
    const [title, wire, cost, claims = "", said = ""] = now.row;
    const [word, why] = FATES[now.fate];
    update(row, { testid: `tool-${wire}`, "data-status": word, "aria-label": `${title}, ${word}, ${tokens(cost)}. ${said}` });
    row.classList.toggle("cmn-flat", now.flat);
    update(box, { checked: isIn(now.fate), disabled: FIXED.has(now.fate) || selection.servers[now.server].mode === "off", "aria-label": `${title} in or out` });
    update(name, { text: title, title: wire });
    update(owner, { text: now.flat ? now.server : "" });
    keyed(badges, claims.split(" ").filter((claim) => IN_THE_LIST.has(claim)), (claim) => claim, (claim) => h("span", { class: "cmn-badge", "data-badge": claim }, claim));
    update(summary, { text: said, title: said });
    update(fate, { text: word, title: why });
    update(price, { text: number.format(cost) });
  };
  return row;
}
