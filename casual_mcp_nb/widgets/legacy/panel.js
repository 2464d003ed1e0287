export default widget("Chat panel", (parts) => {
  const { call, say, root } = parts;
  // JupyterLab's keys for cells stay outside: a letter typed here is a letter.
  root.dataset.lmSuppressShortcuts = "true";
  root.classList.add("cmn-panel");

  const toTheEnd = () => (transcript.scrollTop = transcript.scrollHeight);
  const composer = messageBox(parts, () => (pickers.closeConfirm(), toTheEnd()));
  const pickers = panelHead(parts, composer.offer);
  const turns = turnList({ call, busy: () => Boolean(parts.state.conversation.busy), onSent: () => composer.offer("") });
  const empty = h("div", { class: "cmn-empty cmn-quiet", testid: "empty" }, "Nothing has been said yet. Write a message below; what the model does shows here as it happens.");
  const earlier = h("div", { class: "cmn-quiet", testid: "earlier" });
  const pending = h("div", { class: "cmn-prompt cmn-pending", testid: "pending" });
  const newest = h("button", { type: "button", class: "cmn-button", testid: "newest", onclick: () => (toTheEnd(), transcript.focus()) }, "↓ Newest");
  const below = h("div", { class: "cmn-below", hidden: true }, newest);
  const transcript = h("div", { class: "cmn-transcript-box", tabindex: "0", role: "region", "aria-label": "Transcript", testid: "transcript" }, empty, earlier, turns.element, pending, below);
  const isAtEnd = () => transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < 40;
  const offerEnd = () => update(below, { hidden: isAtEnd() });
  transcript.addEventListener("scroll", offerEnd, { passive: true });
  transcript.addEventListener("toggle", offerEnd, true);
  const cards = questionCards((question, answer, values) => call("conversation.answer", { question, answer, values }), () => composer.offer(""));
  const chart = tokensChart();
  const sum = h("span", { class: "cmn-quiet", testid: "tokens-all" });
  const tokens = h("details", { class: "cmn-part", testid: "tokens-part" }, h("summary", {}, h("strong", {}, "Tokens"), " ", sum), chart.element);

  let heard = { said: undefined, questions: new Set() };
  const announce = ({ said, questions }) => {
    const fresh = Object.keys(questions).filter((id) => !heard.questions.has(id));
    if (fresh.length) say(questionInWords(questions[fresh[fresh.length - 1]]));
    else if (heard.said !== undefined && said !== heard.said) say(said);
    heard = { said, questions: new Set(Object.keys(questions)) };
  };

  call("conversation.seen");
  const show = ({ conversation, tokens: counts }) => {
    const atEnd = isAtEnd();
    const count = Object.keys(conversation.turns).length;
    pickers.show(conversation, count);
    turns.show(conversation.turns);
    update(empty, { hidden: count > 0 || Boolean(conversation.pending) });
    update(earlier, { text: `${conversation.earlier} earlier turns are not shown; they are part of the conversation.`, hidden: !conversation.earlier });
    update(pending, { text: conversation.pending ?? "", hidden: !conversation.pending });
    cards.show(conversation.questions);
    composer.show(conversation);
    update(sum, { text: tokensInWords(counts) });
    chart.show(counts);
    announce(conversation);
    if (atEnd) toTheEnd();
    offerEnd();
  };
  return { body: h("div", { class: "cmn-panel-body" }, pickers.element, transcript, cards.element, parts.alert, composer.element, tokens), show };
});

/** The row above: model, toolset, step mode, going back, beginning anew. */
function panelHead({ call, large }, onUndone) {
  const model = h("select", { testid: "model", "aria-label": "Model", onchange: () => call("conversation.set_model", { name: model.value }) });
  const toolSet = h("select", { testid: "tool-set", "aria-label": "Toolset", onchange: () => call("conversation.set_tool_set", { name: toolSet.value || null }) });
  const step = h("input", { type: "checkbox", testid: "step-mode", onchange: () => call("conversation.set_step_mode", { on: step.checked }) });
  const stepLabel = h("label", { class: "cmn-labelled", title: "Pause before each call of the model" }, step, "Step by step");
  const undo = h("button", { type: "button", class: "cmn-button", testid: "undo", title: "Take back the last turn" }, "Undo");
  const clear = h("button", { type: "button", class: "cmn-button", testid: "clear", "aria-expanded": "false" }, "New conversation");
  const question = h("span");
  const yes = h("button", { type: "button", class: "cmn-button cmn-primary", testid: "clear-yes" }, "Begin anew");
  const no = h("button", { type: "button", class: "cmn-button", testid: "clear-no" }, "Keep it");
  const confirm = h("div", { class: "cmn-row cmn-confirm", role: "group", "aria-label": "New conversation", testid: "clear-confirm", hidden: true }, question, yes, no);
  const labelled = (text, control) => h("label", { class: "cmn-labelled" }, h("span", { class: "cmn-quiet" }, text), control);
  const row = h("div", { class: "cmn-row cmn-panel-head" }, labelled("Model", model), labelled("Toolset", toolSet), stepLabel, h("span", { class: "cmn-grow" }), h("div", { class: "cmn-row" }, undo, clear, large));

  let turns = 0;
  const ask = (open) => {
    confirm.hidden = !open;
    clear.setAttribute("aria-expanded", String(open));
    if (open) no.focus();
  };
  undo.addEventListener("click", () => call("conversation.undo").then((prompt) => prompt !== undefined && onUndone(prompt)));
  clear.addEventListener("click", () => (turns ? ask(confirm.hidden) : call("conversation.clear")));
  yes.addEventListener("click", () => call("conversation.clear").then(() => (ask(false), clear.focus())));
  no.addEventListener("click", () => (ask(false), clear.focus()));

  const options = (select, pairs, chosen) => {
    keyed(select, pairs, ([value]) => value, ([value, text]) => h("option", { value }, text));
    if (document.activeElement !== select || select.value !== chosen) update(select, { value: chosen });
  };
  const show = (conversation, count) => {
    turns = count + conversation.earlier;
    options(model, conversation.models.map((name) => [name, name]), conversation.model ?? "");
    const custom = conversation.custom ? [["\u0000", "one of its own"]] : [];
    options(toolSet, [["", "all tools"], ...custom, ...conversation.tool_sets.map((name) => [name, name])], conversation.custom ? "\u0000" : (conversation.tool_set ?? ""));
    update(model, { disabled: !conversation.models.length });
    update(step, { checked: conversation.step_mode });
    update(undo, { disabled: conversation.busy || !turns });
    update(clear, { disabled: conversation.busy });
    update(question, { text: `Forget ${turns} ${turns === 1 ? "turn" : "turns"} and the tools that they discovered?` });
    if (!turns || conversation.busy) ask(false);
  };
  return { element: h("div", {}, row, confirm), show, closeConfirm: () => ask(false) };
}

/** The row below: the message, and Send or Stop. */
function messageBox(parts, onSend) {
  const { call, say } = parts;
  const box = h("textarea", { class: "cmn-box", rows: "2", "aria-label": "Message", placeholder: "Write a message", testid: "message" });
  const send = h("button", { type: "button", class: "cmn-button cmn-primary", testid: "send" }, "Send");
  const stop = h("button", { type: "button", class: "cmn-button cmn-stop", testid: "stop", hidden: true }, "■ Stop");
  const doing = h("span", { class: "cmn-quiet", testid: "doing" });
  const keys = h("span", { class: "cmn-quiet cmn-keys" }, h("kbd", {}, "Enter"), " sends, ", h("kbd", {}, "Shift"), "+", h("kbd", {}, "Enter"), " begins a new line");
  let busy = false;
  const submit = () => {
    if (busy) return say("A turn is running: wait for its end, or stop it.");
    const prompt = box.value;
    if (!prompt.trim()) return box.focus();
    onSend();
    busy = true;
    box.value = "";
    call("conversation.send", { prompt }).then((result) => {
      if (result !== undefined) return;
      // What was not sent is still there to be sent.
      if (!box.value) box.value = prompt;
      busy = Boolean(parts.state.conversation.busy);
    });
  };
  send.addEventListener("click", () => (submit(), box.focus()));
  stop.addEventListener("click", () => (call("conversation.stop"), box.focus()));
  sendsWithEnter(box, submit);
  const show = (conversation) => {
    busy = Boolean(conversation.busy);
    const waiting = Object.keys(conversation.questions).length;
    update(send, { hidden: busy, disabled: !busy && Boolean(conversation.pending) });
    update(stop, { hidden: !busy });
    const now = waiting ? "Waits for your answer." : conversation.doing || "Starting …";
    update(doing, { text: !busy ? (conversation.pending ? "Starting …" : "") : conversation.in_cell ? `${now} A cell runs this turn: ■ in the toolbar stops it at once.` : now });
    update(keys, { hidden: busy || Boolean(conversation.pending) });
  };
  const offer = (text) => {
    if (!box.value.trim()) box.value = text;
    box.focus();
  };
  return { element: h("div", { class: "cmn-composer" }, box, h("div", { class: "cmn-row" }, send, stop, doing, keys)), show, offer };
}
