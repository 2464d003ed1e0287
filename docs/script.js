// What the theme lacks for readers with a keyboard or a screen reader. It adds copy buttons and wraps tables after the page has loaded.
function repair() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const buttons of document.querySelectorAll(".md-code__nav")) buttons.role = "none";
  for (const region of document.querySelectorAll(".output, .md-typeset__scrollwrap")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
  }
}
new MutationObserver(repair).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", repair);
repair();
