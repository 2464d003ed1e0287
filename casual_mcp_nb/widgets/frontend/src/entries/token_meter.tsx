import { widget } from "../lib/widget";
import { TokenMeter } from "../tokens/TokenMeter";

export default widget("Token meter", TokenMeter);
