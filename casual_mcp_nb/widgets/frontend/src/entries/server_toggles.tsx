import { Discovery } from "../explorer/Discovery";
import "../explorer/parts.css";
import { ServerTable } from "../explorer/ServerTable";
import { widget } from "../lib/widget";

function ServerToggles() {
  return (
    <>
      <Discovery />
      <ServerTable />
    </>
  );
}

export default widget("Server toggles", ServerToggles);
