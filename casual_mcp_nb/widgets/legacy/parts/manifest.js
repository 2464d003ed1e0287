// What the model reads about the deferred tools, to the letter.

function manifestPart() {
  const text = h("pre", { class: "cmn-manifest", tabindex: "0", role: "region", "aria-label": "The manifest as the model reads it", testid: "manifest-text" });
  const part = folding("Manifest", "manifest", text);
  return {
    element: part.element,
    show({ manifest }) {
      update(text, { text: manifest.text || "Nothing is deferred, so there is no manifest." });
      text.classList.toggle("cmn-quiet", !manifest.text);
      part.note(manifest.text ? `${tokens(manifest.tokens)} (estimated) for ${counted(manifest.tools, "deferred tool")}` : "");
    },
  };
}
