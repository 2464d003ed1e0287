import { ManifestPane } from "../explorer/ManifestPane";
import { widget } from "../lib/widget";

export default widget("Manifest", ManifestPane);
