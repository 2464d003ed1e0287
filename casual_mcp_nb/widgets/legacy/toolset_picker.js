export default explorerWidget("Toolset picker", (parts) => {
  const picker = toolsetPicker(parts);
  const show = ({ selection }) => picker.show(selection);
  return { body: h("div", {}, picker.element, picker.editor), show };
});
