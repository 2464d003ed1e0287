// What is done with one server: loaded, deferred or off; connect it anew.

function modeControl(parts, server) {
  const name = `cmn-mode-${Math.random().toString(36).slice(2)}`;
  const radios = ["loaded", "deferred", "off"].map((mode) => {
    const radio = h("input", { type: "radio", name, value: mode, testid: `mode-${mode}` });
    radio.addEventListener("change", () => choose(parts, "set_mode", { server, mode }));
    return { mode, radio, label: h("label", { class: "cmn-mode" }, radio, h("span", {}, mode)) };
  });
  const element = h("span", { class: "cmn-modes", role: "radiogroup", "aria-label": `${server}: what the model sees`, testid: "modes" });
  element.append(...radios.map(({ label }) => label));
  return {
    element,
    show(info) {
      for (const { mode, radio } of radios) update(radio, { checked: info.mode === mode });
      const different = info.mode === info.effective ? "" : ` Now ${info.effective}: ${info.effective === "deferred" ? "all are deferred" : "discovery is off"}.`;
      update(element, { "data-mode": info.mode, title: `The model sees its tools at once, finds them by search, or never sees them.${different}` });
    },
  };
}

function reconnectButton(parts, server) {
  const element = button("Reconnect", "reconnect", async () => {
    update(element, { disabled: true, text: "Connecting …" });
    await parts.call("selection.reconnect", { server });
    update(element, { disabled: false, text: "Reconnect" });
  });
  element.setAttribute("aria-label", `Reconnect ${server}`);
  return element;
}

/** Why a server failed, with the end of what it wrote. */
function troubleBox(parts, server) {
  const reason = h("div", { class: "cmn-reason" });
  const tail = h("code", { class: "cmn-clip cmn-tail" });
  const words = h("div", { class: "cmn-grow", testid: "reason" }, reason, tail);
  const element = h("div", { class: "cmn-trouble", testid: "trouble" }, words, reconnectButton(parts, server));
  return {
    element,
    show(info) {
      update(words, { title: [info.error, info.tail].filter(Boolean).join("\n\n") });
      update(reason, { text: `✗ ${info.error ?? "No reason is known."}` });
      update(tail, { text: (info.tail ?? "").trim().split("\n").pop() });
    },
  };
}

/** All servers as a table, without their tools. */
function serverTable(parts) {
  const body = h("tbody", {});
  const heads = ["Server", "State", "Tools", "Tokens (estimated)", "The model sees it"];
  const head = h("tr", {}, heads.map((text, place) => h("th", { scope: "col", class: place === 2 || place === 3 ? "cmn-number" : null }, text)));
  const element = h("table", { class: "cmn-grid", testid: "servers" }, h("thead", {}, head), body);

  function make(name) {
    const state = stateMark();
    const tools = h("td", { class: "cmn-number" });
    const price = h("td", { class: "cmn-number", testid: "price" });
    const mode = modeControl(parts, name);
    const trouble = troubleBox(parts, name);
    const row = h("tr", { testid: `server-${name}` }, h("th", { scope: "row" }, h("code", {}, name)), h("td", {}, state.element, trouble.element), tools, price, h("td", {}, mode.element));
    row._show = (info) => {
      update(row, { "data-status": info.state, "data-mode": info.mode });
      state.show(info.state);
      update(tools, { text: info.inside === info.tools ? number.format(info.tools) : `${number.format(info.inside)} of ${number.format(info.tools)}` });
      update(price, { text: number.format(info.tokens) });
      update(trouble.element, { hidden: !info.error });
      trouble.show(info);
      mode.show(info);
    };
    return row;
  }

  return {
    element,
    show: ({ order, servers }) => keyed(body, order, (name) => name, make, (row, name) => row._show(servers[name])),
  };
}
