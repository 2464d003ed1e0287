// Which toolset is in force, and making one of what is ticked.

const RULES = [["all", "all tools"], ["only", "only"], ["but", "all but"], ["none", "none"]];

function toolsetPicker(parts) {
  const select = h("select", { testid: "tool-set" });
  const about = h("span", { class: "cmn-quiet cmn-clip cmn-about-set", testid: "tool-set-about" });
  const edit = button("Edit …", "edit-tool-set", () => editor.open());
  const editor = toolsetEditor(parts, () => edit.focus());
  select.addEventListener("change", () => {
    if (select.value !== "own") choose(parts, "set_tool_set", { name: select.value === "all" ? null : select.value.slice(2) });
  });
  const element = h("div", { class: "cmn-row cmn-picker", role: "group", "aria-label": "Toolset" }, labelled("Toolset", select), edit, about);
  return {
    element,
    editor: editor.element,
    show({ tool_sets: sets, problem }) {
      const entries = [["all", "all tools"], ...sets.order.map((name) => [`n:${name}`, `${name} (${number.format(sets.known[name].size)})`])];
      if (sets.own) entries.push(["own", "of its own, not saved"]);
      const unknown = sets.selected !== undefined && !sets.known[sets.selected];
      if (unknown) entries.push([`n:${sets.selected}`, `${sets.selected}: there is none`]);
      options(select, entries);
      update(select, { value: sets.own ? "own" : sets.selected === undefined ? "all" : `n:${sets.selected}` });
      update(about, { text: problem ? `⚠ ${problem}` : (sets.known[sets.selected]?.description ?? "") });
      editor.show(sets);
    },
  };
}

function toolsetEditor(parts, back) {
  const name = h("input", { type: "text", autocomplete: "off", testid: "tool-set-name" });
  const description = h("input", { type: "text", class: "cmn-grow", autocomplete: "off", testid: "tool-set-description" });
  const body = h("tbody", {});
  const head = h("tr", {}, ["Server", "Lets through", "Tools, with commas between"].map((text) => h("th", { scope: "col" }, text)));
  const question = h("div", { class: "cmn-question cmn-row", role: "group", "aria-label": "Replace the toolset?", testid: "question", hidden: true });
  const save = button("Save", "save-tool-set", () => store(false));
  const unsaved = h("span", { id: `cmn-unsaved-${Math.random().toString(36).slice(2)}`, class: "cmn-quiet", testid: "cannot-save" }, "This session was not started from a config file, so there is nowhere to save it.");
  const done = h("span", { class: "cmn-quiet", role: "status", testid: "saved" });
  const element = h(
    "section",
    { class: "cmn-editor", "aria-label": "Toolset editor", testid: "editor", hidden: true },
    h("div", { class: "cmn-row" }, h("h3", { tabindex: "-1", class: "cmn-grow" }, "Toolset"), button("Take what is ticked", "take-ticked", () => fill()), button("Close", "close-editor", close)),
    h("div", { class: "cmn-row" }, labelled("Name", name), h("label", { class: "cmn-labelled cmn-grow" }, h("span", {}, "Description"), description)),
    h("table", { class: "cmn-grid" }, h("thead", {}, head), body),
    h("div", { class: "cmn-row" }, button("Use it", "use-tool-set", use), save, unsaved, done),
    question,
  );

  async function open() {
    if (!(await fill())) return;
    const { selected } = parts.state.selection.tool_sets;
    name.value = selected ?? name.value;
    update(element, { hidden: false });
    element.querySelector("h3").focus();
  }

  /** Put into the form what the selection lets through now. */
  async function fill() {
    const draft = await parts.call("selection.draft");
    if (!draft) return false;
    description.value = draft.description ?? "";
    body.replaceChildren(...parts.state.selection.order.map((server) => ruleRow(server, draft.servers[server])));
    update(question, { hidden: true });
    update(done, { text: "" });
    return true;
  }

  function close() {
    update(element, { hidden: true });
    parts.fail(null);
    back();
  }

  const written = () => ({ servers: Object.fromEntries([...body.children].map((row) => row._rule()).filter(Boolean)), description: description.value });

  async function use() {
    update(done, { text: "" });
    if ((await parts.call("selection.edit_tool_set", written())) === null) update(done, { text: "✓ It is in force, and not saved." });
  }

  async function store(overwrite) {
    update(question, { hidden: true });
    update(done, { text: "" });
    const answer = await parts.call("selection.save_tool_set", { name: name.value.trim(), overwrite, ...written() });
    if (answer?.question) ask(answer.question);
    else if (answer) {
      update(done, { text: `✓ Saved to ${answer.saved}.` });
      save.focus();
    }
  }

  function ask(text) {
    const keep = button("Keep the old one", "keep", () => {
      update(question, { hidden: true });
      save.focus();
    });
    question.replaceChildren(h("span", { class: "cmn-grow" }, text), button("Replace it", "replace", () => store(true)), keep);
    update(question, { hidden: false });
    keep.focus();
  }

  element.addEventListener("input", () => update(done, { text: "" }));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  return {
    element,
    open,
    show({ file }) {
      update(save, { text: file ? `Save to ${file}` : "Save to the config file", disabled: !file, "aria-describedby": file ? null : unsaved.id });
      update(unsaved, { hidden: Boolean(file) });
    },
  };
}

function ruleRow(server, rule) {
  const kind = h("select", { "aria-label": `${server}: lets through`, testid: "rule" });
  options(kind, RULES);
  const names = h("input", { type: "text", class: "cmn-wide cmn-mono", "aria-label": `${server}: tools`, autocomplete: "off", testid: "rule-tools" });
  const row = h("tr", { testid: `rule-${server}` }, h("th", { scope: "row" }, h("code", {}, server)), h("td", {}, kind), h("td", {}, names));
  const listed = Array.isArray(rule) ? rule : rule?.exclude;
  kind.value = rule === true ? "all" : Array.isArray(rule) ? "only" : rule?.exclude ? "but" : "none";
  names.value = (listed ?? []).join(", ");
  const match = () => update(names, { disabled: kind.value === "all" || kind.value === "none" });
  kind.addEventListener("change", match);
  match();
  row._rule = () => {
    const tools = names.value.split(",").map((text) => text.trim()).filter(Boolean);
    if (kind.value === "none") return null;
    return [server, kind.value === "all" ? true : kind.value === "only" ? tools : { exclude: tools }];
  };
  return row;
}
