// The colours of the notebook, for an app: light or dark, and the variables that MCP Apps names.

/** Each variable of MCP Apps with what all widgets have for it, see `lib/base.css`. */
const COLOURS: Record<string, string> = {
  "--color-background-primary": "--cmn-page",
  "--color-background-secondary": "--cmn-raised",
  "--color-background-tertiary": "--cmn-back",
  "--color-background-inverse": "--cmn-text",
  "--color-background-info": "--cmn-chosen",
  "--color-text-primary": "--cmn-text",
  "--color-text-secondary": "--cmn-soft",
  "--color-text-tertiary": "--cmn-soft",
  "--color-text-inverse": "--cmn-page",
  "--color-text-info": "--cmn-accent",
  "--color-text-danger": "--cmn-bad",
  "--color-text-success": "--cmn-good",
  "--color-text-warning": "--cmn-busy",
  "--color-border-primary": "--cmn-edge",
  "--color-border-secondary": "--cmn-line",
  "--color-border-tertiary": "--cmn-line",
  "--color-ring-primary": "--cmn-accent",
};

export function themeOf(element: Element | null): "light" | "dark" {
  const scheme = element ? getComputedStyle(element).colorScheme : "light";
  return scheme.includes("dark") && !scheme.includes("light") ? "dark" : "light";
}

/** The values as plain colours: the page of an app knows no variables of this one. */
export function variablesOf(element: HTMLElement | null): Record<string, string> {
  if (!element) return {};
  const probe = document.createElement("span");
  element.append(probe);
  const variables: Record<string, string> = {};
  for (const [name, ours] of Object.entries(COLOURS)) {
    probe.style.color = `var(${ours})`;
    variables[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return { ...variables, "--font-sans": getComputedStyle(element).fontFamily, "--border-radius-md": "6px" };
}

/** Call a function when the notebook's theme changes. */
export function followTheme(element: Element | null, changed: () => void): () => void {
  let theme = themeOf(element);
  const observer = new MutationObserver(() => {
    const now = themeOf(element);
    if (now !== theme) {
      theme = now;
      changed();
    }
  });
  for (const root of [document.documentElement, document.body]) {
    observer.observe(root, {
      attributes: true,
      attributeFilter: ["class", "data-jp-theme-light", "data-theme", "theme", "data-jp-theme-name"],
    });
  }
  return () => observer.disconnect();
}
