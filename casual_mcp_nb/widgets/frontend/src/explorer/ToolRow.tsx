import { useChoice } from "../lib/choice";
import type { RowProps } from "../lib/RowList";
import { useBridge } from "../lib/widget";
import { number, tokens } from "../lib/words";
import { Cell, Line } from "./Line";
import type { ToolRowEntry } from "./rows";
import type { ExplorerState } from "./state";
import { statusOf } from "./statuses";
import type { Workbench } from "./workbench";

interface Props {
  bench: Workbench;
  entry: ToolRowEntry;
  chosen: boolean;
  props: RowProps;
}

export function ToolRow({ bench, entry: { server, tool, status: letter, grouped }, chosen, props }: Props) {
  const bridge = useBridge<ExplorerState>();
  const [name, wire, cost, claims = "", summary = ""] = tool;
  const status = statusOf(letter);
  const [included, include] = useChoice(status.included, (on) => bridge.call("selection.set_tool", { name: wire, on }), wire);
  const draft = bench.draft.value;
  const ticked = draft ? draft.ticked.value.has(wire) : included;
  const word = draft ? (ticked ? "in the toolset" : "not in the toolset") : status.word;
  const why = draft && !status.barred ? "" : ` ${status.why}`;
  const title = grouped ? name : `${server}:${name}`;
  const destructive = claims.split(" ").includes("destructive");
  return (
    <Line
      class="cmn-entry cmn-tool"
      aria-level={2}
      aria-selected={chosen}
      aria-label={`${title}, ${word}, ${tokens(cost)}. ${summary}`}
      data-testid={`tool-${wire}`}
      data-status={status.word}
      data-included={ticked}
      data-edited={draft !== null}
      onClick={() => bench.choose({ kind: "tool", server, name: wire })}
      {...props}
    >
      <Cell class="cmn-check">
        <input
          type="checkbox"
          tabIndex={props.tabIndex}
          aria-label={`Include ${name}`}
          title={`${word[0]?.toUpperCase()}${word.slice(1)}.${why}`}
          data-testid="in"
          checked={ticked}
          disabled={(draft ? status.barred : status.fixed) ?? false}
          onClick={(event) => event.stopPropagation()}
          onChange={({ currentTarget: { checked } }) => (draft ? draft.tick(server, [wire], checked) : include(checked))}
        />
      </Cell>
      <Cell class="cmn-mono cmn-tool-name cmn-clip" data-testid="open" title={`${server}:${name}`}>
        {title}
      </Cell>
      <Cell class="cmn-quiet cmn-clip cmn-summary" title={summary}>
        {summary}
      </Cell>
      <Cell class="cmn-tags">
        {claims.split(" ").includes("app") && (
          <span class="cmn-tag" title="Its server shows its results in an app: session.tools.app(…)" data-testid="has-app">
            app
          </span>
        )}
        {destructive && (
          <span class="cmn-tag" data-tone="bad">
            destructive
          </span>
        )}
        {status.tag && (
          <span class="cmn-tag" data-tone="busy" title={status.why}>
            {status.word}
          </span>
        )}
      </Cell>
      <Cell class="cmn-number cmn-quiet cmn-price">{number.format(cost)}</Cell>
    </Line>
  );
}
