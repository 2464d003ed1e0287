/** A widget that looks as the explorer does: the class keeps that look away from other widgets on the page. */
function explorerWidget(title, build) {
  return widget(title, (parts) => {
    parts.root.classList.add("cmn-look");
    return build(parts);
  });
}
