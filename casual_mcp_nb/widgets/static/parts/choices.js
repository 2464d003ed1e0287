// Discovery and how much of it.

function choicesBar(parts) {
  const set = (command, read) => (event) => choose(parts, command, read(event.target));
  const discovery = h("input", { type: "checkbox", testid: "discovery", onchange: set("set_discovery", (box) => ({ on: box.checked })) });
  const deferAll = h("input", { type: "checkbox", testid: "defer-all", onchange: set("set_defer_all", (box) => ({ on: box.checked })) });
  const limit = h("input", { type: "number", min: "1", max: "999", step: "1", class: "cmn-short", testid: "limit" });
  limit.addEventListener("change", () => choose(parts, "set_limit", { tools: Math.trunc(Number(limit.value)) || 0 }));
  const strategy = h("select", { testid: "strategy", onchange: set("set_strategy", (select) => ({ strategy: select.value })) });
  options(strategy, [["search", "search"], ["browse", "browse"]]);
  const element = h(
    "div",
    { class: "cmn-row cmn-choices", role: "group", "aria-label": "Discovery", testid: "choices" },
    h("label", { title: "Deferred tools are hidden, and the model finds them itself" }, discovery, "Discovery"),
    h("label", { title: "Loaded servers count as deferred too" }, deferAll, "Defer all"),
    labelled("Strategy", strategy),
    labelled("Finds at most", limit),
  );
  return {
    element,
    show({ options: chosen }) {
      update(discovery, { checked: chosen.discovery });
      update(deferAll, { checked: chosen.defer_all, disabled: !chosen.discovery });
      update(strategy, { value: chosen.strategy, disabled: !chosen.discovery });
      update(limit, { disabled: !chosen.discovery });
      if (limit !== parts.focused()) update(limit, { value: String(chosen.max_search_results) });
    },
  };
}
