export default explorerWidget("Server toggles", (parts) => {
  const choices = choicesBar(parts);
  const table = serverTable(parts);
  const price = h("span", { class: "cmn-quiet", role: "status", testid: "price-line" });
  const show = ({ selection }) => {
    choices.show(selection);
    table.show(selection);
    update(price, { text: `${tokens(selection.budget.now.total)} in the first call (estimated)` });
  };
  parts.focused = () => parts.root.getRootNode().activeElement;
  return { body: h("div", {}, choices.element, h("div", { class: "cmn-scroll" }, table.element), price), show };
});
