// All that is known of one tool, and a form to try it.

function toolCard(parts, { onOpen, why }) {
  const element = h("section", { class: "cmn-card", testid: "card", hidden: true, "aria-label": "Tool" });
  let wanted = null;
  let back = null;

  function close() {
    if (element.hidden) return;
    wanted = null;
    update(element, { hidden: true });
    element.replaceChildren();
    back?.();
  }

  async function open(name, whence) {
    wanted = name;
    back = whence;
    const card = await parts.call("selection.tool", { name });
    if (!card || wanted !== name) return;
    element.replaceChildren(...cardContent(parts, card, { close, why, again: () => open(name, whence) }));
    update(element, { hidden: false, "data-tool": card.wire_name });
    onOpen?.(card.wire_name);
    element.querySelector("h3").focus();
    element.scrollIntoView?.({ block: "nearest" });
  }

  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  return { element, open, close };
}

function cardContent(parts, card, { close, why, again }) {
  const claims = card.badges.map((claim) => h("span", { class: "cmn-badge", "data-badge": claim }, claim));
  return [
    h("div", { class: "cmn-row" }, h("h3", { tabindex: "-1", class: "cmn-grow" }, h("code", {}, card.name)), button("Close", "close-card", close, { "aria-keyshortcuts": "Escape" })),
    h("p", { class: "cmn-quiet" }, `${card.title && card.title !== card.name ? `${card.title} · ` : ""}${card.server} · `, h("code", {}, card.wire_name), ` · ${tokens(card.tokens)} (estimated) `, claims),
    card.change ? changeBox(parts, card, again) : null,
    h("p", { class: "cmn-said", testid: "description" }, card.description || "The server gives no description."),
    parameterTable(card.fields),
    why ? button("Why is it found, or not?", "why", () => why(card.wire_name)) : null,
    tryForm(parts, card),
    codeBlock("Schema", card.schema, "schema"),
    card.result_schema ? codeBlock("Result schema", card.result_schema, "result-schema") : null,
  ].filter(Boolean);
}

function changeBox(parts, { wire_name, change }, again) {
  const accept = button("Accept the change", "accept", () => parts.call("selection.accept_change", { name: wire_name }).then(again));
  const text = change.blocked ? "Its server has changed it, and it is not offered until you accept that." : "Its server has changed it.";
  return h("div", { class: "cmn-changed", testid: "change" }, h("div", { class: "cmn-row" }, h("span", { class: "cmn-grow" }, text), accept), codeBlock("What changed", change.diff, "diff"));
}

function codeBlock(title, text, testid) {
  return h("details", { testid }, h("summary", {}, title), h("pre", { tabindex: "0", role: "region", "aria-label": title }, text));
}

function parameterTable(fields) {
  if (!fields.length) return h("p", { class: "cmn-quiet" }, "It takes no parameters.");
  const heads = ["Parameter", "Type", "Required", "Description"].map((text) => h("th", { scope: "col" }, text));
  const rows = fields.map((field) =>
    h("tr", {}, h("th", { scope: "row" }, h("code", {}, field.name)), h("td", {}, field.type), h("td", {}, field.required ? "required" : "optional"), h("td", { class: "cmn-said" }, field.description)),
  );
  return h("table", { class: "cmn-grid cmn-parameters", testid: "parameters" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
}

function tryForm(parts, card) {
  const controls = card.fields.map((field) => ({ field, control: fieldControl(field) }));
  const result = h("div", { class: "cmn-result", testid: "result", role: "region", "aria-label": "Result", hidden: true });
  const run = h("button", { type: "submit", class: "cmn-button cmn-primary", testid: "call" }, "Call it");
  const form = h(
    "form",
    { class: "cmn-form", testid: "try", novalidate: true },
    h("h4", {}, "Try it"),
    controls.map(({ field, control }) => h("label", { class: "cmn-field" }, h("span", { class: "cmn-field-name" }, h("code", {}, field.name), field.required ? " (required)" : "", h("span", { class: "cmn-quiet" }, ` ${field.type}`)), control)),
    h("div", { class: "cmn-row" }, run, card.destructive ? h("span", { class: "cmn-quiet" }, "It may destroy something; it is called as soon as you press the button.") : null),
    result,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const missing = controls.find(({ field, control }) => field.required && !control.value && field.kind !== "string");
    if (missing) {
      parts.fail(`${missing.field.name} is required.`);
      missing.control.focus();
      return;
    }
    update(run, { disabled: true, text: "Calling …" });
    const filled = Object.fromEntries(controls.map(({ field, control }) => [field.name, control.value]));
    const answer = await parts.call("selection.try_tool", { name: card.wire_name, filled });
    update(run, { disabled: false, text: "Call it" });
    if (!answer) return;
    drawn(result, answer.html);
    update(result, { hidden: false, "data-status": answer.status });
    parts.say(`${card.name}: ${answer.status}`);
  });
  return form;
}

function fieldControl(field) {
  const common = { testid: `field-${field.name}`, "aria-required": String(field.required), placeholder: field.default ? `default: ${field.default}` : null };
  switch (field.kind) {
    case "choice":
    case "boolean": {
      const select = h("select", common);
      const choices = field.kind === "boolean" ? ["true", "false"] : field.choices;
      options(select, [["", field.default ? `(default: ${field.default})` : "(not given)"], ...choices.map((choice) => [choice, choice])]);
      return select;
    }
    case "integer":
    case "number":
      return h("input", { type: "text", inputmode: field.kind === "integer" ? "numeric" : "decimal", autocomplete: "off", ...common });
    case "json":
      return h("textarea", { rows: "2", spellcheck: "false", class: "cmn-mono", ...common, placeholder: common.placeholder ?? "JSON" });
    default:
      return h("textarea", { rows: "1", ...common });
  }
}
