export default explorerWidget("Search box", (parts) => {
  const search = searchPart(parts);
  return { body: search.element, show: search.show, close: search.close };
});
