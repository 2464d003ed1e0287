import { Segments } from "../lib/controls";
import type { RowProps } from "../lib/RowList";
import { useBridge, useWidgetState } from "../lib/widget";
import { counted, number, tokens } from "../lib/words";
import { sumOf, tickable } from "./draft";
import { Cell, Line } from "./Line";
import type { ServerEntry } from "./rows";
import type { ExplorerState, Mode } from "./state";
import { isBroken, MODES, modeHelp, STATES } from "./statuses";
import type { Workbench } from "./workbench";

interface Props {
  bench: Workbench;
  entry: ServerEntry;
  chosen: boolean;
  props: RowProps;
}

export function ServerRow({ bench, entry: { server, shown, all, open }, chosen, props }: Props) {
  const { servers, tools, fates } = useWidgetState<ExplorerState>().selection;
  const info = servers[server];
  if (!info) return null;
  const draft = bench.draft.value;
  const offered = draft ? tickable({ tools, fates }, server) : [];
  const ticked = draft && sumOf(offered, draft.ticked.value);
  const choose = () => {
    bench.choose({ kind: "server", server });
    if (!open) bench.setOpen([server], true);
  };
  const counts = [
    shown === all ? counted(all, "tool") : `${number.format(shown)} of ${counted(all, "tool")}`,
    ticked
      ? `${number.format(ticked.count)} ticked`
      : info.mode !== "off" && info.inside < all && `${number.format(info.inside)} included`,
  ].filter(Boolean);
  const label = [
    `${server}, ${STATES[info.state]}, ${counted(all, "tool")}`,
    ticked ? `${ticked.count} in the toolset, ${tokens(ticked.tokens)}` : `${tokens(info.tokens)}, ${info.effective}`,
  ].join(", ");
  return (
    <Line
      class="cmn-entry cmn-server"
      aria-level={1}
      aria-expanded={open}
      aria-selected={chosen}
      aria-label={label}
      data-testid={`server-${server}`}
      data-status={info.state}
      data-mode={info.mode}
      data-effective={info.effective}
      onClick={choose}
      {...props}
    >
      <Cell
        class="cmn-sign"
        data-testid="fold"
        onClick={(event) => {
          event.stopPropagation();
          bench.setOpen([server], !open);
        }}
      >
        <span aria-hidden="true">{open ? "▾" : "▸"}</span>
      </Cell>
      <Cell class="cmn-server-title">
        <strong class="cmn-clip" data-testid="name">
          {server}
        </strong>
        {!isBroken(info) && <span class="cmn-quiet cmn-clip">{all ? counts.join(" · ") : ""}</span>}
        <span class="cmn-tags">
          {info.state !== "ready" && (
            <span class="cmn-tag" data-testid="state" data-tone={isBroken(info) ? "bad" : "busy"}>
              {STATES[info.state].toLowerCase()}
            </span>
          )}
          {info.mode !== info.effective && (
            <span class="cmn-tag" title={modeHelp(info)}>
              now {info.effective}
            </span>
          )}
        </span>
      </Cell>
      <Cell>
        {draft ? (
          <label class="cmn-labelled">
            <input
              type="checkbox"
              tabIndex={props.tabIndex}
              aria-label={`Every tool of ${server}`}
              data-testid="in-all"
              checked={ticked?.count === offered.length && offered.length > 0}
              indeterminate={Boolean(ticked?.count) && ticked?.count !== offered.length}
              disabled={!offered.length}
              onClick={(event) => event.stopPropagation()}
              onChange={({ currentTarget: { checked } }) =>
                draft.tick(
                  server,
                  offered.map(([, wire]) => wire),
                  checked,
                )
              }
            />
            every tool
          </label>
        ) : (
          <ModeSegments server={server} tabIndex={props.tabIndex} />
        )}
      </Cell>
      <Cell class="cmn-number cmn-price" title={ticked ? `${tokens(ticked.tokens)} for its ticked tools` : priceHelp(info)}>
        {ticked ? number.format(ticked.tokens) : info.mode === "off" ? "—" : all ? number.format(info.tokens) : ""}
      </Cell>
    </Line>
  );
}

const priceHelp = ({ tokens: included, all_tokens: every }: { tokens: number; all_tokens: number }) =>
  `${tokens(included)} for its tools that are included${included === every ? "" : `, ${number.format(every)} for all`}`;

/** The one control of a server. */
export function ModeSegments({ server, tabIndex = 0 }: { server: string; tabIndex?: number }) {
  const bridge = useBridge<ExplorerState>();
  const { servers, options } = bridge.state.value.selection;
  const info = servers[server];
  if (!info) return null;
  // With every server deferred, Loaded has no effect: the title says how to undo that.
  const overruled = Boolean(options.discovery) && options.defer_all && info.effective !== "loaded";
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: it only keeps clicks from the row
    // biome-ignore lint/a11y/noStaticElementInteractions: it only keeps clicks from the row
    <span onClick={(event) => event.stopPropagation()}>
      <Segments<Mode>
        testid="mode"
        label={`${server}: mode`}
        value={overruled ? info.effective : info.mode}
        options={MODES}
        title={modeHelp(info)}
        {...(overruled && { disabled: "loaded" as Mode })}
        tabIndex={tabIndex}
        onChoose={(mode) => bridge.call("selection.set_mode", { server, mode })}
      />
    </span>
  );
}
