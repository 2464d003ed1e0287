// Buttons in what the package drew of a turn: they copy, or show a request.

type Action = "answer" | "python" | "arguments" | "result" | "call_python" | "request";

interface Spec {
  action: Action;
  text: string;
  label: string;
  call?: string | undefined;
  step?: string | undefined;
}

/** Add the buttons of a turn: beside its figures, in each step, and at each text of a call. */
export function addButtons(content: DocumentFragment, turn: number, finished: boolean): void {
  const figures = content.querySelector("[data-part=figures]") ?? content.firstElementChild;
  if (finished)
    figures?.append(
      buttons("turn", [
        { action: "answer", text: "Copy", label: `Copy the answer of turn ${turn}` },
        { action: "python", text: "Copy as Python", label: `Copy turn ${turn} as Python` },
        { action: "request", text: "Request", label: `Show the requests of turn ${turn}` },
      ]),
    );
  for (const step of content.querySelectorAll<HTMLElement>("details[data-step]")) {
    const number = step.dataset.step;
    const label = `Show the request of step ${number} of turn ${turn}`;
    const lines = step.querySelectorAll(":scope > .cmn-body > .cmn-line");
    const place = lines.item(lines.length - 1) ?? step.lastElementChild;
    place?.append(buttons(`step-${number}`, [{ action: "request", text: "Request", label, step: number }]));
  }
  for (const text of content.querySelectorAll<HTMLElement>("[data-call]:is([data-part=arguments], [data-part=result])")) {
    const { call, part } = text.dataset;
    const specs: Spec[] = [{ action: part as Action, text: "Copy", label: `Copy the ${part}`, call }];
    if (part === "arguments")
      specs.push({ action: "call_python", text: "Copy as Python", label: "Copy the call as Python", call });
    const before = text.previousElementSibling?.matches(".cmn-label") ? text.previousElementSibling : text;
    before.before(buttons(`${part}-${call}`, specs));
  }
}

function buttons(key: string, specs: readonly Spec[]): HTMLElement {
  const group = document.createElement("span");
  group.className = "cmn-actions";
  group.dataset.key = `actions-${key}`;
  group.append(...specs.map((spec) => button(key, spec)));
  return group;
}

function button(key: string, { action, text, label, call, step }: Spec): HTMLElement {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "cmn-button";
  element.textContent = text;
  element.setAttribute("aria-label", label);
  Object.assign(element.dataset, { tone: "quiet", action, key: `${action}-${key}`, testid: testidOf(action, step) });
  if (call !== undefined) element.dataset.call = call;
  if (step !== undefined) element.dataset.step = step;
  return element;
}

function testidOf(action: Action, step: string | undefined): string {
  return action === "request" ? `request-${step ?? "turn"}` : `copy-${action.replace("_", "-")}`;
}
