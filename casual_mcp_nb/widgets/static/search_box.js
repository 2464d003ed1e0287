export default widget("Search box", (parts) => {
  const search = searchPart(parts);
  return { body: search.element, show: search.show, close: search.close };
});
