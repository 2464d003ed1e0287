export default explorerWidget("Manifest", () => {
  const manifest = manifestPart();
  return { body: manifest.element, show: ({ selection }) => manifest.show(selection) };
});
