export default explorerWidget("Toolset picker", (parts) => {
  const picker = toolsetPicker(parts);
  const show = ({ selection }) => picker.show(selection);
  parts.refresh = () => show(parts.state);
  return { body: h("div", {}, picker.element, picker.editor), show };
});
