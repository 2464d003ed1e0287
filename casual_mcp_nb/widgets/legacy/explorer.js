// The explorer: what there is on the left, what it comes to on the right.

export default explorerWidget("Explorer", (parts) => {
  const headline = h("span", { class: "cmn-headline", role: "status", testid: "headline" });
  const choices = choicesBar(parts);
  const picker = toolsetPicker(parts);
  const search = searchPart(parts, { onOpen: (name, back) => card.open(name, back) });
  const card = toolCard(parts, { onOpen: (name) => list.reveal(name), why: search.why });
  const list = toolList(parts, { onOpen: card.open });
  const budget = budgetPart();
  const manifest = manifestPart();

  const body = h(
    "div",
    { class: "cmn-explorer" },
    h("header", { class: "cmn-row cmn-header" }, h("strong", {}, "Explorer"), headline, parts.large),
    h("div", { class: "cmn-row cmn-settings" }, picker.element, choices.element),
    picker.editor,
    h("div", { class: "cmn-columns" }, h("div", { class: "cmn-left" }, list.element, card.element), h("div", { class: "cmn-right" }, budget.element, manifest.element, search.element)),
  );

  parts.root.addEventListener("keydown", (event) => {
    if (event.key === "/" && !isWriting(event.target)) {
      event.preventDefault();
      list.filter.focus();
    }
  });

  function show(state) {
    const { selection } = state;
    update(headline, { text: headlineOf(selection) });
    for (const part of [choices, picker, budget, manifest]) part.show(selection);
    list.show();
    search.show(state);
  }
  parts.focused = () => parts.root.getRootNode().activeElement;
  return {
    body,
    show,
    close() {
      list.close();
      search.close();
    },
  };
});

function headlineOf({ budget, deferral, manifest, fates, order, servers }) {
  const offered = Object.values(fates).reduce((sum, letters) => sum + [...letters].filter((letter) => letter === "l").length, 0);
  const first = `${tokens(budget.now.total)} in the first call (estimated)`;
  const change = budget.before && budget.before.total !== budget.now.total ? `, ${signed(budget.now.total - budget.before.total)}` : "";
  const found = manifest.tools ? `, ${number.format(manifest.tools)} to be found` : "";
  const failed = order.filter((name) => servers[name].state === "failed");
  const lacking = failed.length ? ` · ✗ ${counted(failed.length, "server")} failed` : "";
  return `${first}${change} · ${counted(offered, "tool")} at once${found}${deferral.worse || manifest.tools ? ` · ${deferral.text}` : ""}${lacking}`;
}
