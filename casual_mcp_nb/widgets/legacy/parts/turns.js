/** The turns of the conversation: what was asked, as text, and what followed, as the display room draws it. */
function turnList({ call, busy, onSent }) {
  const element = h("div", { class: "cmn-turns", testid: "turns" });
  rememberFolds(element);
  const show = (turns) => {
    const items = Object.entries(turns).map(([key, row]) => ({ key, row }));
    items.sort((a, b) => a.row.number - b.row.number);
    const last = items.length ? items[items.length - 1].row.number : 0;
    keyed(element, items, (item) => item.key, (item) => turnArticle(item.key, call, onSent), (article, { row }) => article._show(row, last, busy()));
  };
  return { element, show };
}

function turnArticle(key, call, onSent) {
  const prompt = h("div", { testid: "prompt" });
  const edit = h("button", { type: "button", class: "cmn-button", testid: "edit" }, "Edit");
  const again = h("button", { type: "button", class: "cmn-button", testid: "ask-again" }, "Ask again");
  const tools = h("div", { class: "cmn-row cmn-turn-tools" }, edit, again);
  const before = h("div", { class: "cmn-quiet cmn-before", testid: "prompt-before", hidden: true });
  const bubble = h("div", { class: "cmn-prompt" }, h("div", { class: "cmn-prompt-text" }, prompt, before), tools);
  const rerun = (more) => {
    onSent();
    return call("conversation.rerun", { turn: key, ...more });
  };
  const editor = promptEditor(
    (text) => {
      close();
      // What was not asked is still there to be asked.
      rerun({ prompt: text }).then((result) => result === undefined && open(text));
    },
    () => close(),
  );
  const body = h("div", { class: "cmn-turn-body", testid: "turn-body" });
  const requests = requestsPart((step) => call("conversation.request", { turn: key, step }));
  const article = h("article", { class: "cmn-turn" }, bubble, editor.element, body, requests.element);
  let row = null;
  const close = () => {
    editor.element.hidden = true;
    bubble.hidden = false;
    edit.focus();
  };
  const open = (text) => {
    bubble.hidden = true;
    editor.open(text, lost());
  };
  const lost = () => (article._last > row.number ? `This turn and the ${article._last - row.number} after it leave the conversation.` : "This turn leaves the conversation; the new one takes its place.");
  edit.addEventListener("click", () => open(row.prompt));
  again.addEventListener("click", () => (article._last > row.number ? open(row.prompt) : rerun({})));
  article._show = (next, last, busy) => {
    article._last = last;
    update(edit, { disabled: busy });
    update(again, { disabled: busy });
    if (next === row) return;
    if (next.prompt !== row?.prompt) update(prompt, { text: next.prompt || "(no text)" });
    update(before, { text: `Edited by hand; before: ${next.before}`, hidden: next.before === undefined });
    update(article, { "aria-label": `Turn ${next.number}`, "data-status": next.status, testid: `turn-${next.number}`, "aria-busy": next.status === "running" ? "true" : null });
    update(edit, { "aria-label": `Edit turn ${next.number}` });
    update(again, { "aria-label": `Ask turn ${next.number} again` });
    if (next.html !== row?.html) redraw(body, next.html);
    requests.show(next.steps);
    row = next;
  };
  return article;
}

/** What each step sent to the model, fetched when somebody wants to see it. */
function requestsPart(fetched) {
  const buttons = h("div", { class: "cmn-row", role: "group", "aria-label": "Steps" });
  const content = h("div", { testid: "request" });
  const element = h("details", { class: "cmn-requests", testid: "requests", hidden: true }, h("summary", {}, "What was sent"), buttons, content);
  const open = async (step) => {
    for (const button of buttons.children) update(button, { "aria-pressed": String(button._key === step) });
    const html = await fetched(step);
    if (html !== undefined) reachable(drawn(content, html));
  };
  const make = (step) => h("button", { type: "button", class: "cmn-button", "aria-pressed": "false", testid: `request-${step}`, onclick: () => open(step) }, `Step ${step}`);
  element.addEventListener("toggle", () => element.open && !content.firstChild && buttons.lastElementChild && open(buttons.lastElementChild._key));
  const show = (steps) => {
    update(element, { hidden: !steps });
    keyed(buttons, Array.from({ length: steps }, (_, place) => place + 1), (step) => step, make);
  };
  return { element, show };
}

function promptEditor(onSend, onClose) {
  const box = h("textarea", { class: "cmn-box", rows: "3", "aria-label": "Another text for this turn", testid: "edit-box" });
  const note = h("div", { class: "cmn-quiet" });
  const send = h("button", { type: "button", class: "cmn-button cmn-primary", testid: "edit-send", onclick: () => onSend(box.value) }, "Ask this instead");
  const leave = h("button", { type: "button", class: "cmn-button", testid: "edit-cancel", onclick: onClose }, "Cancel");
  const element = h("div", { class: "cmn-editor", hidden: true }, box, note, h("div", { class: "cmn-row" }, send, leave));
  sendsWithEnter(box, () => onSend(box.value));
  box.addEventListener("keydown", (event) => event.key === "Escape" && onClose());
  const open = (text, words) => {
    box.value = text;
    update(note, { text: words });
    element.hidden = false;
    box.focus();
  };
  return { element, open };
}

/** Enter sends, Shift+Enter begins a new line; an Enter that ends the input of a character is neither. */
function sendsWithEnter(box, send) {
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
}
