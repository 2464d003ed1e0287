import { elementScroll, observeElementOffset, observeElementRect, type Range, Virtualizer } from "@tanstack/virtual-core";
import { type ComponentChildren, Fragment, type JSX, type Ref } from "preact";
import { useCallback, useEffect, useImperativeHandle, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

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

/** A list of any length of which only the rows in sight are elements: a treegrid in which arrow keys move. Heights are in em. */
export function RowList<R extends Row>({ rows, label, testid, heightOf, drawRow, onKey, onMove, handle }: Props<R>) {
  const element = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const em = useEm(probe);
  const pixels = (row: R) => Math.round(heightOf(row) * em);
  const [activeKey, setActiveKey] = useState<string | undefined>(undefined);
  const wantsFocus = useRef(false);
  const focusedKey = useRef<string | null>(null);
  const active = Math.max(
    0,
    rows.findIndex((row) => row.key === activeKey),
  );
  const virtualizer = useVirtualizer(element, rows, pixels, em, active);
  const page = () => Math.max(1, Math.floor((element.current?.clientHeight ?? 0) / (pixels(rows[active] as R) || 1)) - 1);
  const reveal = (index: number) => virtualizer.scrollToIndex(index, { align: "auto" });

  const go = (index: number, moved = false) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (!row) return;
    wantsFocus.current = true;
    setActiveKey(row.key);
    reveal(rows.indexOf(row));
    if (row.key === rows[active]?.key) focusActive();
    if (moved) onMove?.(row);
  };
  const focusActive = () => {
    if (!wantsFocus.current) return;
    const row = element.current?.querySelector<HTMLElement>('[role="row"][tabindex="0"]');
    if (row?.dataset.key !== rows[active]?.key) return;
    wantsFocus.current = false;
    row?.focus({ preventScroll: true });
  };

  useImperativeHandle(handle ?? null, () => ({
    focus: (key) => go(key === undefined ? active : rows.findIndex((row) => row.key === key)),
    reveal: (key) => {
      const index = rows.findIndex((row) => row.key === key);
      if (index >= 0) reveal(index);
    },
  }));

  // The row may be an element only now, after the list was scrolled to it.
  useLayoutEffect(focusActive);

  // A row that had the focus and is gone leaves it to the row that is active now.
  useLayoutEffect(() => {
    if (focusedKey.current === null || rows.some((row) => row.key === focusedKey.current)) return;
    focusedKey.current = null;
    const focused = (element.current?.getRootNode() as Document | ShadowRoot | undefined)?.activeElement;
    if (!focused || focused === document.body) go(active);
  }, [rows]);

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
    if (key === undefined) return;
    focusedKey.current = key;
    setActiveKey(key);
  };
  const onFocusOut = (event: FocusEvent) => {
    if (event.relatedTarget && !element.current?.contains(event.relatedTarget as Node)) focusedKey.current = null;
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
      onFocusOut={onFocusOut}
    >
      <span ref={probe} class="cmn-em" aria-hidden="true" />
      <div class="cmn-rows-space" role="presentation" style={{ height: `${virtualizer.getTotalSize()}px` }}>
        {virtualizer.getVirtualItems().map(({ index, start, size }) => {
          const row = rows[index];
          return (
            row && (
              <Fragment key={row.key}>
                {drawRow(row, {
                  tabIndex: index === active ? 0 : -1,
                  style: { transform: `translateY(${start}px)`, height: `${size}px` },
                  "aria-rowindex": index + 1,
                  "data-key": row.key,
                })}
              </Fragment>
            )
          );
        })}
      </div>
    </div>
  );
}

/** The size of one em in pixels; it changes with large text. */
function useEm(probe: { current: HTMLElement | null }): number {
  const [em, setEm] = useState(13);
  useLayoutEffect(() => {
    const measure = () => setEm((before) => probe.current?.getBoundingClientRect().width || before);
    measure();
    const observer = new ResizeObserver(measure);
    if (probe.current) observer.observe(probe.current);
    return () => observer.disconnect();
  }, [probe]);
  return em;
}

function useVirtualizer<R extends Row>(
  element: { current: HTMLDivElement | null },
  rows: readonly R[],
  pixels: (row: R) => number,
  em: number,
  active: number,
) {
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0);
  // A new function makes it measure again: heights depend on what a row is and on the size of the text.
  const getItemKey = useCallback((index: number) => (rows[index] as R).key, [rows, em]);
  const options = {
    count: rows.length,
    getScrollElement: () => element.current,
    estimateSize: (index: number) => pixels(rows[index] as R),
    getItemKey,
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
  useEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => virtualizer._willUpdate());
  return virtualizer;
}
