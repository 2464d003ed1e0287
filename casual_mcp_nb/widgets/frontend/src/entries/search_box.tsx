import { useMemo } from "preact/hooks";
import "../explorer/parts.css";
import { SearchPane } from "../explorer/SearchPane";
import { SearchRequest } from "../explorer/workbench";
import { widget } from "../lib/widget";

function SearchBox() {
  const request = useMemo(() => new SearchRequest(), []);
  return <SearchPane request={request} />;
}

export default widget("Search box", SearchBox);
