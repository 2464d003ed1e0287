// Prices, states and fates in words, with a colour that only adds to them.

const PALETTE = ["#4a7fc1", "#c9822b", "#5b9a5b", "#a566b0", "#c4575f", "#3f9a9a", "#8a7a4a", "#7d7fd0"];
const STATES = { ready: "✓ ready", starting: "… starting", failed: "✗ failed", closed: "○ closed" };
const FATES = {
  l: ["loaded", "The model sees it at once"],
  d: ["deferred", "The model finds it by search"],
  o: ["out", "Taken out by hand"],
  t: ["not in toolset", "The toolset leaves it out; tick it to add it"],
  c: ["changed", "Its server has changed it: open its card to accept the change"],
  s: ["server off", "Its server is off: have it loaded or deferred"],
  a: ["app only", "Its server keeps it for its own app; the model is never offered it"],
  k: ["task only", "It runs only as a task, which is not supported; the model is never offered it"],
  x: ["excluded", "The config leaves it out: include_tools or exclude_tools"],
};

const counted = (count, noun) => `${number.format(count)} ${noun}${count === 1 ? "" : "s"}`;
const tokens = (count) => counted(count, "token");
const signed = (count) => (count === 0 ? "±0" : `${count > 0 ? "+" : "−"}${number.format(Math.abs(count))}`);
const colourOf = (position) => PALETTE[position % PALETTE.length];

/** Whether a tool with this fate is ticked. */
const isIn = (fate) => "ld".includes(fate);
/** Fates that a tick would not change: the server is off, its change is not accepted, or no model is ever offered it. */
const FIXED = new Set("scakx");

function stateMark() {
  const element = h("span", { class: "cmn-state", testid: "state" });
  return { element, show: (state) => update(element, { text: STATES[state] ?? state, "data-status": state }) };
}

/** A part of a widget with a heading that folds it. */
function folding(title, testid, ...children) {
  const note = h("span", { class: "cmn-quiet cmn-note" });
  const element = h("details", { class: "cmn-part", open: true, testid }, h("summary", {}, h("strong", {}, title), " ", note), ...children);
  return { element, note: (text) => update(note, { text }) };
}

function labelled(text, control) {
  return h("label", { class: "cmn-labelled" }, h("span", {}, text), control);
}

function button(text, testid, onclick, more) {
  return h("button", { type: "button", class: "cmn-button", testid, onclick, ...more }, text);
}

function options(select, entries) {
  keyed(select, entries, ([value]) => value, ([value]) => h("option", { value }), (option, [, text]) => update(option, { text }));
}

/** Change the selection. Until the answer is there, what arrives may be older than the click: the controls keep what was chosen.
 *  Then, also when it was refused, they show what holds. */
async function choose(parts, command, args) {
  parts.choosing += 1;
  await parts.call(`selection.${command}`, args);
  parts.choosing -= 1;
  parts.refresh();
}

/** Whether a key that is pressed here belongs to a text that is being written. */
const isWriting = (target) => target.matches?.("input:not([type=checkbox]):not([type=radio]), textarea, select");
