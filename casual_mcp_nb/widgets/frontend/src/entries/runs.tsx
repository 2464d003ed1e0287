import { widget } from "../lib/widget";
import { Runs } from "../runs/Runs";

export default widget("Tool use", Runs, "cmn-workbench");
