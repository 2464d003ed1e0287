// Discovery and how much of it.

function choicesBar(parts) {
  const set = (command, read) => (event) => choose(parts, command, read(event.target));
  const discovery = h("input", { type: "checkbox", testid: "discovery", onchange: set("set_discovery", (box) => ({ on: box.checked })) });
  const deferAll = h("input", { type: "checkbox", testid: "defer-all", onchange: set("set_option", (box) => ({ name: "defer_all", value: box.checked })) });
  const limits = h("span", { class: "cmn-row" });
  const limitInput = (name) => {
    const input = h("input", { type: "number", min: "1", step: "1", class: "cmn-short", testid: name });
    input.addEventListener("change", () => choose(parts, "set_option", { name, value: Math.trunc(Number(input.value)) || 0 }));
    return input;
  };
  const inputs = new Map();
  const strategy = h("select", { testid: "strategy", onchange: set("set_option", (select) => ({ name: "strategy", value: select.value })) });
  options(strategy, [["search", "search"], ["browse", "browse"]]);
  const element = h(
    "div",
    { class: "cmn-row cmn-choices", role: "group", "aria-label": "Discovery", testid: "choices" },
    h("label", { title: "Deferred tools are hidden, and the model finds them itself" }, discovery, "Discovery"),
    h("label", { title: "Loaded servers count as deferred too" }, deferAll, "Defer all"),
    labelled("Strategy", strategy),
    limits,
  );
  return {
    element,
    show({ options: chosen, limits: texts }) {
      update(discovery, { checked: chosen.discovery });
      update(deferAll, { checked: chosen.defer_all, disabled: !chosen.discovery });
      update(strategy, { value: chosen.strategy, disabled: !chosen.discovery });
      for (const [name, { label, help }] of Object.entries(texts)) {
        if (!inputs.has(name)) {
          inputs.set(name, limitInput(name));
          const field = labelled(label, inputs.get(name));
          update(field, { title: help });
          limits.append(field);
        }
        const input = inputs.get(name);
        update(input, { disabled: !chosen.discovery });
        if (input !== parts.focused()) update(input, { value: String(chosen[name]) });
      }
    },
  };
}
