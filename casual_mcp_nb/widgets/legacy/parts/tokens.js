/** Tokens of each step as bars with their numbers, turn by turn. */
function tokensChart() {
  const legend = h("div", { class: "cmn-legend", testid: "tokens-legend" });
  const table = h("table", { class: "cmn-meter", testid: "tokens-table" }, h("caption", { class: "cmn-out" }, "Tokens of each request and answer"));
  table.append(h("thead", {}, h("tr", {}, ...["Step", "Request", "Sent", "Answer"].map((title) => h("th", { scope: "col" }, title)))));
  const nothing = h("div", { class: "cmn-quiet" }, "Nothing was sent yet.");
  const earlier = h("div", { class: "cmn-quiet" });
  const element = h("div", { class: "cmn-tokens", testid: "tokens" }, nothing, legend, earlier, h("div", { class: "cmn-meter-box", tabindex: "0", role: "region", "aria-label": "Tokens per step" }, table));
  const show = ({ parts, rows, turns, earlier: left }) => {
    const steps = Object.values(rows).sort((a, b) => a.turn - b.turn || a.step - b.step);
    const most = Math.max(1, ...steps.map((step) => step.sent));
    update(nothing, { hidden: steps.length > 0 });
    update(element.lastChild, { hidden: steps.length === 0 });
    update(earlier, { text: `${number.format(left)} earlier steps are not shown.`, hidden: !left });
    keyed(legend, steps.length ? parts.map((name, index) => ({ name, index })) : [], (part) => part.name, ({ name, index }) => h("span", {}, h("i", { class: `cmn-swatch cmn-part-${index}` }), name));
    const groups = Object.entries(turns).map(([turn, sum]) => ({ turn: Number(turn), sum, steps: steps.filter((step) => step.turn === Number(turn)) }));
    const bodies = groups.filter((group) => group.steps.length).sort((a, b) => a.turn - b.turn);
    const box = table.parentElement;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 20;
    showTurns(table, bodies, parts, most);
    if (atEnd) box.scrollTop = box.scrollHeight;
  };
  return { element, show };
}

function showTurns(table, groups, parts, most) {
  const known = new Map([...table.tBodies].map((body) => [body._key, body]));
  for (const { turn, sum, steps } of groups) {
    let body = known.get(turn);
    known.delete(turn);
    if (!body) {
      body = h("tbody", { testid: `tokens-turn-${turn}` }, h("tr", { class: "cmn-meter-turn" }, h("th", { scope: "rowgroup", colspan: "4" })));
      body._key = turn;
    }
    table.append(body);
    const told = `${sum.steps} ${sum.steps === 1 ? "step" : "steps"}, ${number.format(sum.sent)} sent (${sum.origin}), ${answered(sum)}`;
    update(body.rows[0].firstChild, { text: `Turn ${turn}: ${told}` });
    while (body.rows.length > steps.length + 1) body.lastChild.remove();
    steps.forEach((step, index) => {
      const fresh = stepRow(step, parts, most);
      const old = body.rows[index + 1];
      if (!old) body.append(fresh);
      else if (!old.isEqualNode(fresh)) old.replaceWith(fresh);
    });
  }
  for (const body of known.values()) body.remove();
}

function stepRow(step, parts, most) {
  const bar = h("div", { class: "cmn-stack", "aria-hidden": "true" });
  step.parts.forEach((value, index) => {
    if (value > 0) bar.append(h("i", { class: `cmn-part-${index}`, style: `width:${((100 * value) / most).toFixed(2)}%`, title: `${parts[index]}: ${number.format(value)}` }));
  });
  const told = parts.map((name, index) => `${name} ${number.format(step.parts[index])}`).join(", ");
  const known = step.answer !== undefined && step.answer !== null;
  return h(
    "tr",
    { testid: `tokens-${step.turn}-${step.step}` },
    h("th", { scope: "row" }, String(step.step)),
    h("td", { class: "cmn-stack-cell" }, bar, h("span", { class: "cmn-out" }, told)),
    h("td", { class: "cmn-count" }, number.format(step.sent), h("span", { class: "cmn-quiet" }, ` ${step.origin}`)),
    h("td", { class: "cmn-count" }, known ? number.format(step.answer) : "unknown", known && h("span", { class: "cmn-quiet" }, ` ${step.answer_origin}`)),
  );
}

function answered(sum) {
  return sum.answer === undefined || sum.answer === null ? "answers not known" : `${number.format(sum.answer)} answered (${sum.answer_origin})`;
}

/** All tokens in a few words, for a summary. */
function tokensInWords({ all }) {
  return all.steps ? `${number.format(all.sent)} sent (${all.origin}), ${answered(all)}` : "nothing sent yet";
}
