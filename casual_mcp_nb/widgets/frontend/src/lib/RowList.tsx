import { elementScroll, observeElementOffset, observeElementRect, type Range, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX, Ref } from "preact";
import { useEffect, useImperativeHandle, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

export interface Row {
  /** The same for the same row, whatever is above it. */
  key: string;
}

/** What `drawRow` puts on the element of a row. */
export interface RowProps {
  tabIndex: number;
  style: JSX.IntrinsicElements["div"]["style"];
  "aria-rowindex": number;
  "data-key": string;
}

export interface RowListHandle {
  /** Focus the row with this key, or the active one, and scroll to it. */
  focus(key?: string): void;
  /** Scroll to the row with this key, where there is one. */
  reveal(key: string): void;
}

interface Props<R extends Row> {
  rows: readonly R[];
  label: string;
  testid: string;
  heightOf(row: R): number;
  /** Draw a row as one element with `role="row"` and these properties. */
  drawRow(row: R, props: RowProps): ComponentChildren;
  /** Called for keys that do not move between rows; returns whether it used the key. */
  onKey?(event: KeyboardEvent, row: R): boolean;
  /** Called when another row becomes the active one by the keyboard. */
  onMove?(row: R): void;
  handle?: Ref<RowListHandle> | undefined;
}

/** A list of any length of which only the rows in sight are elements: a treegrid in which arrow keys move. Heights are in pixels. */
export function RowList<R extends Row>({ rows, label, testid, heightOf, drawRow, onKey, onMove, handle }: Props<R>) {
  const element = useRef<HTMLDivElement>(null);
  const [activeKey, setActiveKey] = useState<string | undefined>(undefined);
  const wantsFocus = useRef(false);
  const active = Math.max(
    0,
    rows.findIndex((row) => row.key === activeKey),
  );
  const virtualizer = useVirtualizer(element, rows, heightOf, active);
  const page = () => Math.max(1, Math.floor((element.current?.clientHeight ?? 0) / (heightOf(rows[active] as R) || 1)) - 1);
  const reveal = (index: number) => virtualizer.scrollToIndex(index, { align: "auto" });

  const go = (index: number, moved = false) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (!row) return;
    wantsFocus.current = true;
    setActiveKey(row.key);
    reveal(rows.indexOf(row));
    if (moved) onMove?.(row);
  };

  useImperativeHandle(handle ?? null, () => ({
    focus: (key) => go(key === undefined ? active : rows.findIndex((row) => row.key === key)),
    reveal: (key) => {
      const index = rows.findIndex((row) => row.key === key);
      if (index >= 0) reveal(index);
    },
  }));

  // The row may be an element only now, after the list was scrolled to it.
  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    const row = element.current?.querySelector<HTMLElement>('[role="row"][tabindex="0"]');
    if (row?.dataset.key !== rows[active]?.key) return;
    wantsFocus.current = false;
    row?.focus({ preventScroll: true });
  });

  const moves: Record<string, () => number> = {
    ArrowDown: () => active + 1,
    ArrowUp: () => active - 1,
    PageDown: () => active + page(),
    PageUp: () => active - page(),
    Home: () => 0,
    End: () => rows.length - 1,
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const row = rows[active];
    const target = event.target as HTMLElement;
    if (!row || target.role !== "row" || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = moves[event.key];
    if (move) go(move(), true);
    else if (!onKey?.(event, row)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onFocusIn = (event: FocusEvent) => {
    const key = (event.target as HTMLElement).closest<HTMLElement>('[role="row"]')?.dataset.key;
    if (key !== undefined) setActiveKey(key);
  };

  return (
    <div
      ref={element}
      class="cmn-rows"
      role="treegrid"
      aria-label={label}
      aria-rowcount={rows.length}
      data-testid={testid}
      onKeyDown={onKeyDown}
      onFocusIn={onFocusIn}
    >
      <div class="cmn-rows-space" role="presentation" style={{ height: `${virtualizer.getTotalSize()}px` }}>
        {virtualizer.getVirtualItems().map(({ index, start, size }) => {
          const row = rows[index];
          return (
            row &&
            drawRow(row, {
              tabIndex: index === active ? 0 : -1,
              style: { transform: `translateY(${start}px)`, height: `${size}px` },
              "aria-rowindex": index + 1,
              "data-key": row.key,
            })
          );
        })}
      </div>
    </div>
  );
}

function useVirtualizer<R extends Row>(
  element: { current: HTMLDivElement | null },
  rows: readonly R[],
  heightOf: (row: R) => number,
  active: number,
) {
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0);
  const options = {
    count: rows.length,
    getScrollElement: () => element.current,
    estimateSize: (index: number) => heightOf(rows[index] as R),
    getItemKey: (index: number) => (rows[index] as R).key,
    overscan: 4,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => redraw(),
    // The active row stays an element, wherever the list is scrolled to, so that it keeps the focus.
    rangeExtractor: ({ startIndex, endIndex, overscan, count }: Range) => {
      const from = Math.max(0, startIndex - overscan);
      const to = Math.min(count - 1, endIndex + overscan);
      const indexes = Array.from({ length: Math.max(0, to - from + 1) }, (_, place) => from + place);
      if (active < from) indexes.unshift(active);
      else if (active > to && active < count) indexes.push(active);
      return indexes;
    },
  };
  const [virtualizer] = useState(() => new Virtualizer<HTMLDivElement, HTMLElement>(options));
  virtualizer.setOptions(options);
  // Heights depend on what a row is, so they are read again when the rows change.
  useLayoutEffect(() => virtualizer.measure(), [virtualizer, rows]);
  useEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => virtualizer._willUpdate());
  return virtualizer;
}
