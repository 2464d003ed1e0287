// Shared by all widgets. Whatever comes from a server, a model or a person is text: it goes in by textContent, never as HTML.

/** A text that stays within a page: every child is text or an element. Properties: class, testid, data-*, aria-*, on* (functions), others as they are. */
function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) assign(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const AS_PROPERTY = new Set(["checked", "disabled", "hidden", "open", "required", "selected", "value", "indeterminate", "inert", "readOnly"]);

function assign(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "testid") element.dataset.testid = value;
  else if (AS_PROPERTY.has(name)) element[name] = value;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

/** Set properties of an element that is there, only where they differ, so that focus and selection stay. */
function update(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") {
      if (element.textContent !== value) element.textContent = value;
    } else if (AS_PROPERTY.has(name)) {
      if (element[name] !== value) element[name] = value;
    } else assign(element, name, value);
  }
  return element;
}

/** The only place where HTML goes in as HTML: what the package's display room drew, which escapes everything itself. */
function drawn(element, html) {
  element.innerHTML = html;
  return element;
}

/** Bring the children of an element in line with items, keeping the nodes of those that stay. */
function keyed(parent, items, keyOf, make, change) {
  const wanted = new Set(items.map(keyOf));
  // What goes, goes first: a node that is moved loses the focus, and the click that is under way.
  for (const child of [...parent.children]) if (!wanted.has(child._key)) child.remove();
  const there = new Map([...parent.children].map((child) => [child._key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = there.get(key);
    if (!child) {
      child = make(item);
      child._key = key;
    }
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    change?.(child, item);
  }
}

function mergePatch(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const merged = target !== null && typeof target === "object" && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (key === "__proto__") continue;
    if (value === null) delete merged[key];
    else merged[key] = mergePatch(merged[key], value);
  }
  return merged;
}

/** Once for each model: patches are merged into its state, whoever looks at it. */
function initialize({ model }) {
  const onMessage = (message) => {
    if (message?.patch) model.set("state", mergePatch(model.get("state"), message.patch));
  };
  model.on("msg:custom", onMessage);
  return () => model.off("msg:custom", onMessage);
}

const GONE = "The kernel restarted. Run the notebook from the top to reconnect.";

/** Once for each view: the present state, its changes, calls of commands, and whether anybody is there to answer them. */
function connect(model) {
  const waiting = new Map();
  const listeners = new Set();
  let onReach = () => {};
  const page = Math.random().toString(36).slice(2);
  let count = 0;
  const onMessage = (message) => {
    const promise = waiting.get(message?.id);
    if (!promise) return;
    waiting.delete(message.id);
    if (message.error !== undefined) promise.reject(new Error(message.error));
    else promise.resolve(message.result);
  };
  const onChange = () => listeners.forEach((listener) => listener(model.get("state")));
  /** Whether this could be sent: what stands for the kernel refuses it once the kernel that knew the widget is gone. */
  const send = (message) => {
    try {
      model.send(message);
      onReach(true);
      return true;
    } catch {
      onReach(false);
      return false;
    }
  };
  // The front end tells that something became of the connection, but not what; a message without a command changes nothing.
  const onLive = () => setTimeout(() => send({ id: null, call: "" }));
  model.on("msg:custom", onMessage);
  model.on("change:state", onChange);
  model.on("comm_live_update", onLive);
  return {
    get state() {
      return model.get("state");
    },
    /** Run a command of a state; rejected with an error whose message is for a person. */
    call(name, args) {
      const id = `${page}-${count++}`;
      return new Promise((resolve, reject) => {
        waiting.set(id, { resolve, reject });
        if (send({ id, call: name, args: args ?? {} })) return;
        waiting.delete(id);
        reject(new Error(GONE));
      });
    },
    /** Be told at each message whether it could be sent, and when the connection is lost. */
    onReach(listener) {
      onReach = listener;
    },
    onState(listener) {
      listeners.add(listener);
    },
    close() {
      model.off("msg:custom", onMessage);
      model.off("change:state", onChange);
      model.off("comm_live_update", onLive);
      onReach = () => {};
      listeners.clear();
    },
  };
}

/** What every widget has: a root with its name, a line for errors, a line that is read out, the switch for large text; and its connection.
 *  `build(parts)` returns the body and a function that takes each state. */
function widget(title, build) {
  return {
    initialize,
    render({ model, el }) {
      const link = connect(model);
      const alert = h("div", { class: "cmn-alert", role: "alert", testid: "alert", hidden: true });
      const status = h("div", { class: "cmn-status cmn-quiet", role: "status", testid: "status" });
      const gone = h("div", { class: "cmn-alert", role: "alert", testid: "gone", hidden: true });
      // Focusable, so that a click beside the controls gives the keys to the widget.
      const root = h("section", { class: "cmn cmn-widget", tabindex: "-1", "aria-label": title, testid: title.toLowerCase().replaceAll(" ", "-") });
      const fail = (error) => update(alert, { text: error ? `⚠ ${error.message ?? error}` : "", hidden: !error });
      const parts = {
        link,
        alert,
        root,
        fail,
        /** How many changes of this view are not answered yet. */
        choosing: 0,
        /** Show the present state, unless a change is under way. */
        refresh: () => safely(link.state),
        get state() {
          return link.state;
        },
        /** Run a command; an error shows in the widget and comes back as undefined. */
        call: (name, args) => link.call(name, args).then((result) => (fail(null), result), (error) => void fail(error)),
        say: (text) => update(status, { text }),
        large: largeText(root),
      };
      const { body, show, close } = build(parts);
      // A widget may have a place of its own for it, near to where the eye is.
      if (!body.contains(alert)) root.append(alert);
      root.append(gone, body, status);
      el.append(root);
      link.onReach((there) => {
        update(gone, { text: there ? "" : GONE, hidden: there });
        update(body, { inert: !there });
      });
      const picture = document.head.appendChild(h("style", {}, `.cmn-picture-${model.get("picture_key")} { display: none; }`));
      const safely = (state) => {
        if (parts.choosing) return;
        try {
          show(state);
        } catch (error) {
          fail(error);
        }
      };
      link.onState(safely);
      safely(link.state);
      const unshield = keepKeys(root);
      // JupyterLab takes the Enter key away from every input in a cell: no new line in a text, no form that is sent.
      root.addEventListener("beforeinput", (event) => event.stopPropagation(), true);
      return () => {
        unshield();
        close?.();
        link.close();
        picture.remove();
      };
    },
  };
}

const CONTROL = "a[href], button:enabled, input:enabled, select:enabled, textarea:enabled, summary, [tabindex]";

/** Keys that are pressed here mean nothing to the notebook, where a single letter can cut a cell; those with Ctrl or ⌘ do. */
function keepKeys(root) {
  const isForNotebook = (event) => event.ctrlKey || event.metaKey;
  // JupyterLab looks at the focused element before all that it stands in, so that element has to carry the mark.
  const shield = (event) => {
    if (root.contains(event.target)) event.target.toggleAttribute("data-lm-suppress-shortcuts", !isForNotebook(event));
  };
  // A click on a label or a headline would leave the focus with the notebook, and so the letters that come next.
  const takeFocus = (event) => {
    if (event.target.closest(CONTROL) === root) root.focus({ preventScroll: true });
  };
  window.addEventListener("keydown", shield, true);
  root.addEventListener("keydown", (event) => {
    if (!isForNotebook(event)) event.stopPropagation();
  });
  root.addEventListener("pointerdown", takeFocus);
  root.addEventListener("click", takeFocus);
  return () => window.removeEventListener("keydown", shield, true);
}

function largeText(root) {
  const button = h("button", { type: "button", class: "cmn-button", "aria-pressed": "false", testid: "large-text", title: "Large text, for a projector" }, "Aa");
  button.setAttribute("aria-label", "Large text");
  button.addEventListener("click", () => {
    const on = root.classList.toggle("cmn-large");
    button.setAttribute("aria-pressed", String(on));
  });
  return button;
}

const number = new Intl.NumberFormat("en-US");
