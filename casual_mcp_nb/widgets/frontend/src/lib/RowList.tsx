import { elementScroll, observeElementOffset, observeElementRect, type Range, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX, Ref } from "preact";
import {
  useCallback,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "preact/hooks";

export interface Row {
  /** The same for the same row, whatever is above it. */
  key: string;
  /** Rows of the same kind have the same elements, so that one can be drawn where another was. */
  kind: string;
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
  /** Draw a row as one element with `role="row"` and these properties. A row is drawn again when it, they or this function change. */
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
  const slots = useMemo(() => new Slots(), []);
  const [activeKey, setActiveKey] = useState<string | undefined>(undefined);
  const wantsFocus = useRef(false);
  const focusedKey = useRef<string | null>(null);
  const active = useMemo(() => Math.max(0, activeKey === undefined ? 0 : placeOf(rows, activeKey)), [rows, activeKey]);
  const virtualizer = useVirtualizer(element, rows, pixels, em, active);
  const page = () => Math.max(1, Math.floor((element.current?.clientHeight ?? 0) / (pixels(rows[active] as R) || 1)) - 1);
  const reveal = (index: number) => virtualizer.scrollToIndex(index, { align: "auto" });

  const go = (index: number, moved = false) => {
    const place = Math.max(0, Math.min(rows.length - 1, index));
    const row = rows[place];
    if (!row) return;
    wantsFocus.current = true;
    setActiveKey(row.key);
    reveal(place);
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
    focus: (key) => go(key === undefined ? active : placeOf(rows, key)),
    reveal: (key) => {
      const index = placeOf(rows, key);
      if (index >= 0) reveal(index);
    },
  }));

  // The row may be an element only now, after the list was scrolled to it.
  useLayoutEffect(focusActive);

  // A row that had the focus and is gone leaves it to the row that is active now.
  useLayoutEffect(() => {
    if (focusedKey.current === null || placeOf(rows, focusedKey.current) >= 0) return;
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

  const items = virtualizer.getVirtualItems().filter(({ index }) => index < rows.length);
  const inSight = slots.assign(
    rows,
    items.map(({ index }) => rows[index] as R),
    focusedKey.current,
  );

  // The rows that need further new elements are drawn in the next frame, after the first ones are on screen.
  const [, drawMore] = useReducer<number, void>((count) => count + 1, 0);
  const incomplete = inSight.includes(undefined);
  useEffect(() => {
    if (!incomplete) return;
    const frame = requestAnimationFrame(() => drawMore());
    return () => cancelAnimationFrame(frame);
  });

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
        {items.map(({ index, start, size }, place) =>
          inSight[place] === undefined ? null : (
            <Slot
              key={inSight[place]}
              row={rows[index] as R}
              drawRow={drawRow}
              index={index}
              tabIndex={index === active ? 0 : -1}
              start={start}
              size={size}
            />
          ),
        )}
      </div>
    </div>
  );
}

const placeOf = (rows: readonly Row[], key: string) => rows.findIndex((row) => row.key === key);

interface SlotProps<R extends Row> extends Pick<Props<R>, "drawRow"> {
  row: R;
  index: number;
  tabIndex: number;
  start: number;
  size: number;
}

/** The place of one row, which is drawn again only when something of it changes. */
function Slot<R extends Row>({ row, drawRow, index, tabIndex, start, size }: SlotProps<R>) {
  return useMemo(
    () =>
      drawRow(row, {
        tabIndex,
        style: { transform: `translateY(${start}px)`, height: `${size}px` },
        "aria-rowindex": index + 1,
        "data-key": row.key,
      }),
    [row, drawRow, index, tabIndex, start, size],
  );
}

/** How many new elements are made in one drawing: more of them than this would take longer than a frame. */
export const MAX_NEW = 12;

/** Which elements the rows in sight are drawn in. New elements cost more than anything else that a key in a filter leads to. */
export class Slots {
  #rows: readonly Row[] = [];
  /** The slot of each row that was in sight, from top to bottom. A slot is a kind and a number. */
  #slots = new Map<string, string>();
  #made = 0;

  /** Return a slot for each row in sight: one that another row of its kind has left, where there is one.
   *
   *  In a list that is scrolled, and in one with the focus, a row keeps its slot. In another list slots keep their order, which
   *  changes more texts and moves no element. Nothing else is ever drawn in the element that has the focus. Rows that would need
   *  more than `MAX_NEW` new elements get no slot yet.
   */
  assign(rows: readonly Row[], inSight: readonly Row[], focused: string | null): readonly (string | undefined)[] {
    const kept = new Map<string, string>();
    if (rows === this.#rows || focused !== null)
      for (const { key } of inSight) {
        const slot = this.#slots.get(key);
        if (slot) kept.set(key, slot);
      }
    const free = new Map<string, string[]>();
    for (const [key, slot] of this.#slots) {
      if (kept.has(key) || key === focused) continue;
      const kind = slot.slice(0, slot.indexOf(":"));
      free.set(kind, [...(free.get(kind) ?? []), slot]);
    }
    this.#rows = rows;
    const end = this.#made + MAX_NEW;
    this.#slots = new Map();
    return inSight.map(({ key, kind }) => {
      const slot = kept.get(key) ?? free.get(kind)?.shift() ?? (this.#made < end ? `${kind}:${this.#made++}` : undefined);
      if (slot !== undefined) this.#slots.set(key, slot);
      return slot;
    });
  }
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
  // A new function makes it place the rows again: heights depend on what a row is and on the size of the text.
  const getItemKey = useCallback((index: number) => index, [rows, em]);
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
