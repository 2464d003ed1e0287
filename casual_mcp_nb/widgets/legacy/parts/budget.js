// What the first call costs: now, before the last change, and with nothing deferred, each with the part of every server.

const MOST_PARTS = 12;

function budgetPart() {
  const verdict = h("p", { class: "cmn-verdict", testid: "verdict" });
  const bars = h("div", { class: "cmn-bars", "aria-hidden": "true" });
  const body = h("tbody", {});
  const heads = ["Part", "Now", "Before", "Change", "Nothing deferred"];
  const head = h("tr", {}, heads.map((text, place) => h("th", { scope: "col", class: place ? "cmn-number" : null }, text)));
  const caption = h("caption", { class: "cmn-out" }, "The first call in estimated tokens");
  const table = h("table", { class: "cmn-grid cmn-budget", testid: "budget-table" }, caption, h("thead", {}, head), body);
  const part = folding("Budget", "budget", bars, verdict, table);

  function show({ budget, deferral, order }) {
    const before = budget.before ?? budget.now;
    const most = Math.max(budget.now.total, before.total, budget.undeferred.total, 1);
    const rows = partsOf(budget, before, order);
    table.classList.toggle("cmn-changed-once", Boolean(budget.before));
    part.note("first call, before anything is said; estimated tokens");
    const kinds = [["now", "Now", budget.now], ["before", "Before", budget.before], ["undeferred", "Nothing deferred", budget.undeferred]];
    keyed(bars, kinds.filter(([, , what]) => what), ([key]) => key, makeBar, (bar, [key, , what]) => showBar(bar, key, what, rows, most));
    update(verdict, { text: deferral.worse ? `⚠ ${deferral.text}` : deferral.text, "data-status": deferral.worse ? "worse" : "fine" });
    const total = { key: "", label: "All", now: budget.now.total, before: before.total, undeferred: budget.undeferred.total };
    keyed(body, [...rows, total], (row) => row.key, makeRow, (element, row) => showRow(element, row, Boolean(budget.before)));
  }

  return { element: part.element, show };
}

/** The parts that cost anything in one of the three; of many the largest, and the rest together. */
function partsOf(budget, before, order) {
  const all = order.map((name, place) => ({
    key: `s:${name}`,
    label: name,
    colour: colourOf(place),
    now: budget.now.servers[name] ?? 0,
    before: before.servers[name] ?? 0,
    undeferred: budget.undeferred.servers[name] ?? 0,
  }));
  const sent = (row) => Math.max(row.now, row.before);
  const used = all.filter((row) => sent(row) || row.undeferred).sort((one, other) => sent(other) - sent(one) || other.undeferred - one.undeferred);
  const rest = used.splice(MOST_PARTS);
  const sum = (field) => rest.reduce((total, row) => total + row[field], 0);
  if (rest.length) used.push({ key: "rest", label: `${rest.length} more servers`, colour: "#8a8a8a", now: sum("now"), before: sum("before"), undeferred: sum("undeferred") });
  const own = [["finder", "search tool", "#9a9a9a"], ["manifest", "manifest", "#6f6f6f"]];
  for (const [key, label, colour] of own) {
    if (budget.now[key] || before[key]) used.push({ key, label, colour, now: budget.now[key], before: before[key], undeferred: 0 });
  }
  return used;
}

function makeBar([key, label]) {
  const total = h("span", { class: "cmn-number", testid: `total-${key}` });
  const track = h("span", { class: "cmn-track" });
  const bar = h("div", { class: "cmn-bar-row", "data-kind": key }, h("span", { class: "cmn-bar-name" }, label), track, total);
  bar._parts = { track, total };
  return bar;
}

function showBar(bar, key, what, rows, most) {
  const { track, total } = bar._parts;
  update(total, { text: number.format(what.total) });
  const make = () => h("span", { class: "cmn-piece" });
  keyed(track, rows, (row) => row.key, make, (piece, row) => {
    const style = `width: ${((100 * row[key]) / most).toFixed(2)}%; background-color: ${row.colour}`;
    if (piece.getAttribute("style") !== style) piece.setAttribute("style", style);
    update(piece, { title: `${row.label}: ${tokens(row[key])}` });
  });
}

function makeRow(row) {
  const cells = ["now", "before", "change", "undeferred"].map((field) => h("td", { class: "cmn-number", testid: `${field}-${row.key || "all"}` }));
  const swatch = row.colour ? h("span", { class: "cmn-swatch", style: `background-color: ${row.colour}` }) : null;
  const element = h("tr", { class: row.key ? null : "cmn-total" }, h("th", { scope: "row" }, swatch, h("span", { class: "cmn-part-name" }, row.label)), cells);
  element._cells = cells;
  return element;
}

function showRow(element, row, changed) {
  const [now, before, change, undeferred] = element._cells;
  const difference = row.now - row.before;
  update(now, { text: number.format(row.now) });
  now.classList.toggle("cmn-zero", row.now === 0);
  before.classList.toggle("cmn-zero", row.before === 0);
  update(before, { text: changed ? number.format(row.before) : "" });
  update(change, { text: changed && difference ? signed(difference) : "", "data-status": difference < 0 ? "less" : difference > 0 ? "more" : "same" });
  update(undeferred, { text: row.undeferred ? number.format(row.undeferred) : "" });
  const name = element.querySelector(".cmn-part-name");
  if (name) update(name, { text: row.label });
}
