// The document of an app's frame. It has an opaque origin, and so has the frame inside it, in which the page of the server runs.
//
// One frame is not enough: a policy in the page cannot keep it from going elsewhere, and an address can carry data away. What
// encloses it can, by `frame-src`. The outer document has only the code below. It passes messages on, and counts them, so that
// a page that sends very many never reaches the notebook.

/** How many messages of an app are passed on in a second. */
export const MESSAGES_A_SECOND = 200;
/** An app that sends more than this in a second is stopped. */
export const FLOOD = 1000;

const SANDBOX = "allow-scripts allow-forms";

const GUARD = `((page, most, flood) => {
  const host = parent;
  const tell = (event, data) => host.postMessage({ cmn: "guard", event, data }, "*");
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "${SANDBOX}");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.title = "App";
  frame.srcdoc = page;
  let loads = 0, count = 0, second = 0;
  frame.onload = () => tell("load", ++loads);
  addEventListener("message", (event) => {
    if (event.source === host) {
      if (event.data.stop) frame.remove();
      else if (event.data.scheme) document.documentElement.style.colorScheme = event.data.scheme;
      else frame.contentWindow?.postMessage(event.data.message, "*");
      return;
    }
    if (event.source !== frame.contentWindow) return;
    const now = Math.floor(performance.now() / 1000);
    if (now !== second) {
      if (count > most) tell("dropped", count - most);
      second = now;
      count = 0;
    }
    if (++count > flood) {
      frame.remove();
      tell("flood");
    } else if (count <= most) tell("message", event.data);
  });
  document.body.append(frame);
})`;

/** What runs in the page first: it reports what the policy blocked and errors, and draws the page when it is asked to. */
const PRELUDE = `(() => {
  const host = parent, most = 30;
  const reported = new Set();
  const say = (event, text) => host.postMessage({ cmn: "page", event, text: String(text) }, "*");
  const report = (event, text) => {
    text = String(text).slice(0, 300);
    // The policy is inherited and declared, so it speaks twice.
    if (reported.size < most && !reported.has(event + text)) say(event, text);
    reported.add(event + text);
  };
  addEventListener("securitypolicyviolation", (event) => report("blocked", event.effectiveDirective + " " + event.blockedURI));
  addEventListener("error", (event) => {
    const { src, href } = event.target;
    if (event.message) report("error", event.message);
    else if (src || href) report("not loaded", src || href);
  }, true);
  addEventListener("unhandledrejection", (event) => report("error", event.reason?.message ?? event.reason));
  // A key that is pressed in a page stays in it.
  addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && say("escape", ""));
  const draw = async () => {
    const root = document.documentElement, width = Math.max(1, innerWidth), height = Math.max(1, innerHeight);
    const copy = root.cloneNode(true);
    const drawn = root.querySelectorAll("canvas");
    copy.querySelectorAll("canvas").forEach((canvas, index) => {
      const image = document.createElement("img");
      try { image.src = drawn[index].toDataURL(); } catch { return; }
      image.className = canvas.className;
      image.setAttribute("style", (canvas.getAttribute("style") ?? "") + ";width:" + drawn[index].clientWidth + "px;height:"
        + drawn[index].clientHeight + "px");
      canvas.replaceWith(image);
    });
    const fields = root.querySelectorAll("input, textarea, option");
    copy.querySelectorAll("input, textarea, option").forEach((field, index) => {
      const from = fields[index];
      if (from.tagName === "OPTION") field.toggleAttribute("selected", from.selected);
      else if (from.tagName === "TEXTAREA") field.textContent = from.value;
      else if (from.type !== "password") {
        field.setAttribute("value", from.value);
        field.toggleAttribute("checked", from.checked);
      }
    });
    for (const part of copy.querySelectorAll("script, iframe, object, embed, link, meta, noscript")) part.remove();
    const sheets = document.createElement("style");
    sheets.textContent = [...document.adoptedStyleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("");
    (copy.querySelector("head") ?? copy).append(sheets);
    const text = new XMLSerializer().serializeToString(copy);
    const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="' + width + '" height="' + height
      + '"><foreignObject x="0" y="0" width="100%" height="100%">' + text + "</foreignObject></svg>";
    const image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
    await image.decode();
    const scale = Math.min(1, 900 / width);
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const brush = canvas.getContext("2d");
    const dark = getComputedStyle(root).colorScheme.includes("dark") && !getComputedStyle(root).colorScheme.includes("light");
    brush.fillStyle = dark ? "#111" : "#fff";
    brush.fillRect(0, 0, canvas.width, canvas.height);
    brush.drawImage(image, 0, 0, canvas.width, canvas.height);
    say("picture", canvas.toDataURL("image/jpeg", 0.75));
  };
  addEventListener("message", (event) => {
    if (event.source !== host || event.data?.cmn !== "draw") return;
    event.stopImmediatePropagation();
    draw().catch((error) => say("undrawn", error?.message ?? error));
  });
})()`;

/**
 * The document of the frame. The policy comes before everything else in both documents; nothing of the page moves it.
 * The page's `prefers-color-scheme` is the scheme of the document around it.
 */
export function guardPage(html: string, policy: string, scheme: "light" | "dark"): string {
  const meta = `<meta http-equiv="Content-Security-Policy" content="${attribute(policy)}">`;
  // Whatever the page begins with, a parser that has seen these elements is in its head.
  const page = `<!DOCTYPE html><html><head>${meta}<meta charset="utf-8"><script>${PRELUDE}</script>${html}`;
  const argument = JSON.stringify(page)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  const style = `html{color-scheme:${scheme}}html,body,iframe{margin:0;padding:0;border:0;width:100%;height:100%;display:block;overflow:hidden}`;
  return (
    `<!DOCTYPE html><html><head>${meta}<meta charset="utf-8"><title>App</title>` +
    `<style>${style}</style></head><body>` +
    `<script>${GUARD}(${argument}, ${MESSAGES_A_SECOND}, ${FLOOD})</script></body></html>`
  );
}

/** A frame for that document, which reaches nothing of this page. */
export function guardFrame(document: string, title: string): HTMLIFrameElement {
  const frame = window.document.createElement("iframe");
  frame.setAttribute("sandbox", SANDBOX);
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.title = title;
  frame.srcdoc = document;
  return frame;
}

function attribute(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
