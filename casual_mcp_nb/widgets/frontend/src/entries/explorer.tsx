import { Explorer } from "../explorer/Explorer";
import { widget } from "../lib/widget";

export default widget("Explorer", Explorer, "cmn-workbench");
