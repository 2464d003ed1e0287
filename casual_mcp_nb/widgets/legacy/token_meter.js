export default widget("Token meter", (parts) => {
  const chart = tokensChart();
  const all = h("span", { testid: "tokens-all" });
  const body = h("div", {}, h("div", { class: "cmn-row" }, h("strong", {}, "Tokens"), all, h("span", { class: "cmn-grow" }), parts.large), chart.element);
  const show = ({ tokens }) => {
    update(all, { text: tokensInWords(tokens) });
    chart.show(tokens);
  };
  return { body, show };
});
