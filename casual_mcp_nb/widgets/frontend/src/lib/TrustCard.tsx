import { Button, Verbatim } from "./controls";
import { useBridge } from "./widget";

/** What a config file would start that nobody has accepted yet. */
export interface Unaccepted {
  file: string;
  text: string;
}

interface Props {
  config: Unaccepted | undefined;
  /** The command that accepts it and starts its servers. */
  command: string;
}

/** Asks before the servers of a config file are started for the first time, or after it has changed. */
export function TrustCard({ config, command }: Props) {
  const bridge = useBridge();
  if (!config) return null;
  return (
    <section class="cmn-trust" aria-label="Config not accepted" data-testid="trust">
      <p>
        Nothing was started: you have not accepted <code>{config.file}</code>.
      </p>
      <Verbatim label="Its commands, and the addresses that get keys" testid="trust-text" text={config.text} />
      <Button testid="trust-accept" tone="primary" onClick={() => void bridge.call(command)}>
        Accept and start
      </Button>
    </section>
  );
}
