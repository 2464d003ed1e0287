import { widget } from "../lib/widget";
import { Panel } from "../panel/Panel";

export default widget("Chat panel", Panel, "cmn-panel", true);
