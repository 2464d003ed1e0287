// The search as the model does it, at each key: ranks, scores, why, and where the cut falls.

const TERMS_AFTER = 250;

function searchPart(parts, { onOpen } = {}) {
  const query = h("input", { type: "search", class: "cmn-grow", placeholder: "What the model would look for …", "aria-label": "Search for tools", autocomplete: "off", testid: "query" });
  const scope = h("select", { "aria-label": "Search in", testid: "scope" });
  const found = h("p", { class: "cmn-quiet", testid: "found", role: "status" });
  const hits = h("ol", { class: "cmn-hits", testid: "hits" });
  const other = h("input", { type: "text", "aria-label": "Why was this tool found, or not?", placeholder: "Why not … (a tool)", autocomplete: "off", testid: "why-not-name" });
  const answer = h("div", { class: "cmn-why", testid: "why-not", hidden: true });
  const ask = h("form", { class: "cmn-row" }, other, h("button", { type: "submit", class: "cmn-button", testid: "why-not-ask" }, "Explain"));
  const part = folding("Search", "search", h("div", { class: "cmn-row" }, query, scope), found, hits, ask, answer);
  /** Where to look, once the person has said so; before that, where the model looks. */
  let chosen = null;
  let running = false;
  let asked = null;
  let timer = null;
  let basis = "";

  const whole = () => scope.value === "all";

  /** One search at a time; what was typed meanwhile is looked for next, and an answer to an older query is never shown. */
  async function search() {
    if (running) return;
    running = true;
    do {
      asked = `${query.value}\n${scope.value}`;
      const text = query.value;
      const result = text.trim() ? await parts.link.call("search.search", { query: text, whole: whole() }).catch(parts.fail) : { hits: [], query: text };
      if (result?.query === query.value.slice(0, 1000)) showHits(result);
    } while (asked !== `${query.value}\n${scope.value}`);
    running = false;
    clearTimeout(timer);
    if (query.value.trim()) timer = setTimeout(terms, TERMS_AFTER);
  }

  async function terms() {
    const result = await parts.link.call("search.terms", { query: query.value, whole: whole() }).catch(() => null);
    if (result?.query !== query.value) return;
    for (const hit of hits.children) if (hit._terms) showTerms(hit._terms, (result.terms[hit._name] ?? []).join(", "));
  }

  function showHits({ hits: rows, searched, cut }) {
    const items = rows.map((hit) => ({ ...hit, key: `h:${hit.wire_name}` }));
    if (cut !== undefined && items.length > cut) items.splice(cut, 0, { key: "cut", cut });
    keyed(hits, items, (item) => item.key, (item) => (item.key === "cut" ? cutLine() : hitRow(item)), (row, item) => row._show(item));
    const within = Math.min(rows.length, cut ?? 0);
    const words = rows.length ? `${counted(within, "tool")} of ${number.format(searched)}, the cut is at ${cut}` : `No tool of ${number.format(searched ?? 0)} matches. Ask in the language of the descriptions.`;
    update(found, { text: query.value.trim() ? words : "" });
    update(answer, { hidden: true });
  }

  function cutLine() {
    const row = h("li", { class: "cmn-cut", testid: "cut" });
    row._show = ({ cut }) => update(row, { text: `the cut: a search finds at most ${counted(cut, "tool")}` });
    return row;
  }

  function hitRow(item) {
    const rank = h("span", { class: "cmn-rank" });
    const name = onOpen
      ? h("button", { type: "button", class: "cmn-link cmn-clip", testid: "hit-name", onclick: () => onOpen(item.wire_name, () => name.focus()) })
      : h("span", { class: "cmn-mono cmn-clip", testid: "hit-name" });
    const bar = h("span", { class: "cmn-score-bar", "aria-hidden": "true" });
    const score = h("span", { class: "cmn-number", testid: "score" });
    const matched = h("span", { class: "cmn-quiet cmn-clip cmn-terms", testid: "terms" });
    const box = h("div", { class: "cmn-why", hidden: true });
    const explain = button("Why", "why-hit", async () => {
      const open = box.hidden;
      update(explain, { "aria-expanded": String(open) });
      update(box, { hidden: !open });
      if (open) drawExplanation(box, await parts.call("search.explain", { query: query.value, name: item.wire_name, whole: whole() }));
    }, { "aria-expanded": "false" });
    explain.setAttribute("aria-label", `Why ${item.name}`);
    const row = h("li", { testid: `hit-${item.wire_name}` }, h("div", { class: "cmn-hit" }, rank, h("span", { class: "cmn-hit-name" }, name, h("span", { class: "cmn-quiet cmn-clip" }, item.server)), matched, h("span", { class: "cmn-score-track" }, bar), score, explain), box);
    row._terms = matched;
    row._name = item.wire_name;
    row._show = (now) => {
      update(rank, { text: String(now.rank) });
      update(name, { text: now.name, title: now.summary });
      bar.style.width = `${(100 * now.share).toFixed(1)}%`;
      update(score, { text: now.score.toFixed(3) });
      update(box, { hidden: true });
      update(explain, { "aria-expanded": "false" });
    };
    return row;
  }

  async function why(name) {
    if (!query.value.trim()) {
      part.element.open = true;
      query.focus();
      parts.say("Write what the model would look for; then this tells why the tool is found, or not.");
      return;
    }
    other.value = name;
    // What stood here was said of another tool.
    update(answer, { hidden: true });
    const explanation = await parts.call("search.explain", { query: query.value, name, whole: whole() });
    if (!explanation || other.value !== name) return;
    drawExplanation(answer, explanation);
    update(answer, { hidden: false });
    answer.scrollIntoView?.({ block: "nearest" });
  }

  ask.addEventListener("submit", (event) => {
    event.preventDefault();
    if (other.value.trim()) why(other.value.trim());
  });
  query.addEventListener("input", search);
  scope.addEventListener("change", () => {
    chosen = scope.value;
    search();
  });
  return {
    element: part.element,
    why,
    show({ search: state }) {
      const deferred = [["deferred", `deferred (${number.format(state.deferred)})`]];
      options(scope, [...(state.deferred ? deferred : []), ["all", `all (${number.format(state.all)})`]]);
      update(scope, { value: state.deferred ? (chosen ?? "deferred") : "all" });
      const now = JSON.stringify(state);
      if (now !== basis && query.value.trim()) {
        asked = null;
        search();
      }
      basis = now;
    },
    close: () => clearTimeout(timer),
  };
}

function showTerms(element, text) {
  update(element, { text, title: text });
}

/** The parts of a score as a table. */
function drawExplanation(box, explanation) {
  if (!explanation) {
    box.replaceChildren();
    return;
  }
  const heads = ["Term", "Field", "Frequency", "idf", "Share"];
  const head = h("tr", {}, heads.map((text, place) => h("th", { scope: "col", class: place > 1 ? "cmn-number" : null }, text)));
  const rows = explanation.shares.map((share) =>
    h("tr", {}, h("th", { scope: "row" }, h("code", {}, share.term)), h("td", {}, share.field), h("td", { class: "cmn-number" }, String(share.frequency)), h("td", { class: "cmn-number" }, String(share.idf)), h("td", { class: "cmn-number" }, `${share.share.toFixed(3)} (${Math.round(100 * share.part)}%)`)),
  );
  const missing = explanation.missing.length ? h("p", { class: "cmn-quiet" }, `It does not have: ${explanation.missing.join(", ")}`) : null;
  const table = rows.length ? h("table", { class: "cmn-grid" }, h("thead", {}, head), h("tbody", {}, rows)) : null;
  box.replaceChildren(...[h("p", { class: "cmn-verdict" }, h("code", {}, explanation.tool), `: ${explanation.verdict} Score ${explanation.score.toFixed(3)}.`), table, missing].filter(Boolean));
}
