import { AppView } from "../app/AppView";
import type { AppsState } from "../app/state";
import { useWidgetState, widget } from "../lib/widget";

function Apps() {
  const { apps, seconds } = useWidgetState<AppsState>().apps;
  return (
    <>
      {Object.entries(apps).map(([id, row]) => (
        <AppView key={id} app={id} row={row} seconds={seconds} />
      ))}
    </>
  );
}

export default widget("App", Apps);
