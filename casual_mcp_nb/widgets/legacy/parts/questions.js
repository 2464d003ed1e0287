/** What waits for the person: calls to approve, forms and links of servers, pauses of the step mode. `answer(question, answer, values)` gives an answer; `leave()` is where the focus goes when nothing waits any more. */
function questionCards(answer, leave) {
  const element = h("div", { class: "cmn-questions", testid: "questions" });
  const show = (questions) => {
    const items = Object.entries(questions).map(([id, question]) => ({ id, ...question }));
    items.sort((a, b) => a.order - b.order);
    const held = element.contains(document.activeElement);
    keyed(element, items, (question) => question.id, (question) => questionCard(question, answer));
    if (!held || element.contains(document.activeElement)) return;
    // Never a button: the next question must not be answered by a key that was meant for the last one.
    if (element.firstElementChild) element.firstElementChild.focus();
    else leave();
  };
  return { element, show };
}

const CARDS = { approval: approvalCard, form: formCard, link: linkCard, step: stepCard };

function questionCard(question, answer) {
  const { title, rest } = CARDS[question.kind](question, (what, values) => answer(question.id, what, values));
  const heading = h("div", { class: "cmn-question-title" }, title);
  const inCell = question.channel === "panel" ? null : h("p", { class: "cmn-quiet", testid: "asked-in-cell" }, "This is asked in the running cell, since a click would arrive only after it: answer in the box below the cell.");
  const shownParts = inCell ? rest.filter((part) => !part.classList.contains("cmn-controls")) : rest;
  if (inCell) for (const part of shownParts) for (const field of part.querySelectorAll?.("input, select, textarea") ?? []) field.disabled = true;
  return h("section", { class: "cmn-question", tabindex: "-1", testid: `question-${question.kind}`, "data-status": question.channel, "aria-label": heading.textContent }, heading, ...shownParts, inCell);
}

/** In words, for those who hear it. */
function questionInWords(question) {
  if (question.channel !== "panel") return "The running cell asks you something: answer in the box below it.";
  if (question.kind === "approval") return `Allow ${question.server} to run ${question.tool}? It waits for you.`;
  if (question.kind === "step") return `${question.message} It waits for you.`;
  return `Server ${question.server} asks: ${question.message}`;
}

function controls(...buttons) {
  return h("div", { class: "cmn-row cmn-controls" }, ...buttons);
}

function button(testid, text, onclick, more = {}) {
  return h("button", { type: "button", class: `cmn-button ${more.primary ? "cmn-primary" : ""}`, testid, onclick, title: more.title }, text);
}

function approvalCard(question, answer) {
  const claims = question.claims.map((claim) => h("span", { class: "cmn-claim", "data-badge": claim }, claim));
  const title = h("span", {}, "Allow ", h("code", { testid: "question-server" }, question.server), " to run ", h("code", { testid: "question-tool" }, question.tool), "?");
  const claimed = h("p", { class: "cmn-quiet" }, question.why, claims.length ? " The server itself says: " : " The server itself claims nothing about it.", ...claims);
  const all = h("pre", { class: "cmn-whole", tabindex: "0", role: "region", "aria-label": "Complete arguments", testid: "question-arguments" }, question.arguments);
  const difference = question.difference ? h("pre", { class: "cmn-whole", tabindex: "0", role: "region", "aria-label": "What has changed", testid: "question-difference" }, question.difference) : null;
  const buttons = question.choices.map(([what, text], place) => button(what.replaceAll("_", "-"), text, () => answer(what), { primary: place === 0 }));
  const rest = [
    claimed,
    difference && h("div", { class: "cmn-quiet" }, "What has changed:"),
    difference,
    h("div", { class: "cmn-quiet" }, "Complete arguments:"),
    all,
    controls(...buttons),
  ];
  return { title, rest: rest.filter(Boolean) };
}

function asks(question) {
  return [
    h("p", { class: "cmn-quiet" }, "The server asks this, neither the model nor this notebook: give it only what you would tell that server."),
    h("p", { class: "cmn-asked", testid: "question-message" }, question.message),
  ];
}

function titleOf(question, what) {
  return h("span", {}, "Server ", h("code", { testid: "question-server" }, question.server), what);
}

function linkCard(question, answer) {
  const address = h("pre", { class: "cmn-whole", tabindex: "0", role: "region", "aria-label": "Address", testid: "question-address" }, question.address);
  const buttons = controls(
    button("accept", "I have visited it", () => answer("accept"), { primary: true }),
    button("decline", "Decline", () => answer("decline")),
    button("cancel", "Cancel", () => answer("cancel")),
  );
  const note = h("p", { class: "cmn-quiet" }, "It is not opened from here. Look at the address before you copy it.");
  return { title: titleOf(question, " wants you to visit a page"), rest: [...asks(question), address, note, buttons] };
}

function formCard(question, answer) {
  const fields = question.fields.map(formField);
  const values = () => Object.fromEntries(fields.map((field) => [field.name, field.value()]));
  const form = h("form", { class: "cmn-form", testid: "question-form", novalidate: true }, ...fields.map((field) => field.element));
  const send = h("button", { type: "submit", class: "cmn-button cmn-primary", testid: "send-form" }, "Send to the server");
  form.append(controls(send, button("decline", "Decline", () => answer("decline")), button("cancel", "Cancel", () => answer("cancel"))));
  const submit = (event) => {
    event.preventDefault();
    answer("send", values());
  };
  form.addEventListener("submit", submit);
  // Notebooks take the Enter that would submit a form.
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input") && !event.isComposing) submit(event);
  });
  return { title: titleOf(question, " asks you"), rest: [...asks(question), form] };
}

function formField(field) {
  const optional = !field.required && field.kind !== "boolean";
  const label = h("span", { class: "cmn-field-title" }, field.title, optional ? h("span", { class: "cmn-quiet" }, " · may stay empty") : null);
  const note = field.description ? h("span", { class: "cmn-quiet cmn-field-note" }, field.description) : null;
  const props = { testid: `field-${field.name}`, required: field.required };
  if (field.kind === "choices") {
    const boxes = field.choices.map(([value, text]) => h("label", {}, h("input", { type: "checkbox", value, checked: (field.default ?? []).includes(value) }), text));
    const element = h("fieldset", { class: "cmn-field", testid: `field-${field.name}` }, h("legend", {}, label), ...boxes, note);
    return { name: field.name, element, value: () => [...element.querySelectorAll("input:checked")].map((box) => box.value) };
  }
  const input = inputOf(field, props);
  const value = () => (field.kind === "boolean" ? input.checked : input.value);
  const element = h("label", { class: "cmn-field" }, ...(field.kind === "boolean" ? [h("span", {}, input, label)] : [label, input]), note);
  return { name: field.name, element, value };
}

function inputOf(field, props) {
  if (field.kind === "boolean") return h("input", { type: "checkbox", ...props, required: false, checked: field.default === true });
  if (field.kind === "choice") {
    const empty = h("option", { value: "" }, "Choose …");
    const options = field.choices.map(([value, text]) => h("option", { value, selected: field.default === value }, text));
    return h("select", props, field.default === null || field.default === undefined ? empty : null, ...options);
  }
  const type = field.kind === "text" ? "text" : "number";
  const limits = field.kind === "text" ? {} : { min: field.minimum, max: field.maximum, step: field.kind === "integer" ? "1" : "any" };
  return h("input", { type, autocomplete: "off", ...props, ...limits, value: field.default === null || field.default === undefined ? "" : String(field.default) });
}

function stepCard(question, answer) {
  const boxes = question.texts.map(({ key, label, text }) => {
    const box = h("textarea", { class: "cmn-box", rows: String(Math.min(8, 1 + text.split("\n").length)), value: text, testid: `edit-${key || "message"}`, "aria-label": `Edit ${label}` });
    return { key, text, box, element: h("label", { class: "cmn-field" }, h("span", { class: "cmn-field-title" }, label), box) };
  });
  const changed = () => Object.fromEntries(boxes.filter(({ box, text }) => box.value !== text).map(({ key, box }) => [key, box.value]));
  const next = button("step-next", "Next", () => (Object.keys(changed()).length ? answer("edit", changed()) : answer("next")), { primary: true });
  for (const { box } of boxes) box.addEventListener("input", () => update(next, { text: Object.keys(changed()).length ? "Next, with the edit" : "Next" }));
  const edit = boxes.length ? h("details", { class: "cmn-edit", testid: "step-edit" }, h("summary", {}, "Edit what the model reads next"), ...boxes.map(({ element }) => element)) : null;
  const buttons = controls(next, button("step-run", "Run to the end", () => answer("run", changed())), button("step-stop", "Stop", () => answer("stop")));
  return { title: "Paused before a call of the model", rest: [h("p", { testid: "question-message" }, question.message), edit, buttons].filter(Boolean) };
}
