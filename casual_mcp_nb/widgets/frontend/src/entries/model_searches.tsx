import "../explorer/parts.css";
import { widget } from "../lib/widget";
import { ModelSearches } from "../searches/ModelSearches";

export default widget("Model searches", ModelSearches);
