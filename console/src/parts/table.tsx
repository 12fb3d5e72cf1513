import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { pushKeys } from "../lib/keys.ts";
import { go } from "../lib/route.ts";
import { narrow } from "../lib/screen.ts";

export interface Column<R> {
  name: string;
  /** A track of a CSS grid, such as `8rem` or `minmax(6rem, 1fr)`. */
  width: string;
  cell: (row: R) => ComponentChildren;
  /** What the column sorts by; without it the column does not sort. */
  sort?: (row: R) => string | number;
  /** Left out on narrow screens. */
  wide?: boolean;
  end?: boolean;
}

const rowHeight = 36;
const spare = 8;

/**
 * Rows of which only the visible ones are in the document. `j` and `k` move through them, Enter opens one. The first
 * cell holds the row's link.
 */
export function Table<R>({
  label,
  columns,
  rows,
  id,
  to,
  more,
  foot,
}: {
  label: string;
  columns: Column<R>[];
  rows: R[];
  id: (row: R) => string;
  to?: (row: R) => string;
  /** Called when the end comes into sight. */
  more?: (() => void) | undefined;
  foot?: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [at, setAt] = useState(-1);
  // The same at once: keys come faster than the page is drawn.
  const cursor = useRef(-1);
  const place = (row: number) => {
    cursor.current = row;
    setAt(row);
  };
  const [by, setBy] = useState<{ name: string; down: boolean }>();
  const shown = columns.filter((c) => !(c.wide && narrow.value));
  const sorting = columns.find((c) => c.name === by?.name)?.sort;
  // Columns may be made anew each time; they sort by the same.
  const sorted = useMemo(() => sortRows(rows, sorting, by?.down ?? false), [rows, by, sorting === undefined]);
  const first = Math.max(0, Math.floor(top / rowHeight) - spare);
  const last = Math.min(sorted.length, Math.ceil((top + height) / rowHeight) + spare);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (more && last >= sorted.length) more();
  }, [last, sorted.length, more]);
  useEffect(() => {
    const move = (by: number) => {
      const next = Math.min(sorted.length - 1, Math.max(0, cursor.current + by));
      place(next);
      reveal(box.current, next);
      focusRow(box.current, next);
    };
    return pushKeys({
      j: () => move(1),
      k: () => move(-1),
      Enter: () => {
        const row = sorted[cursor.current];
        if (row !== undefined && to) go(to(row));
      },
    });
  });
  useEffect(() => {
    focusRow(box.current, cursor.current);
  }, [at, first]);

  const grid = { gridTemplateColumns: shown.map((c) => c.width).join(" ") };
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={sorted.length + 1}>
      <div
        class="rows"
        role="presentation"
        ref={box}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onFocusIn={(event) => {
          const row = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
          if (row) place(Number(row.dataset.row));
        }}
      >
        <div class="heads" role="rowgroup">
          <div class="row head" role="row" aria-rowindex={1} style={grid}>
            {shown.map((c) => (
              <Head key={c.name} column={c} by={by} setBy={setBy} />
            ))}
          </div>
        </div>
        <div class="canvas" role="rowgroup" style={{ height: `${sorted.length * rowHeight}px` }}>
          {sorted.slice(first, last).map((row, i) => (
            <div
              key={id(row)}
              class={first + i === at ? "row at" : "row"}
              role="row"
              aria-rowindex={first + i + 2}
              data-row={first + i}
              style={{ ...grid, transform: `translateY(${(first + i) * rowHeight}px)` }}
            >
              {shown.map((c, n) => (
                <div key={c.name} class={c.end ? "cell end" : "cell"} role="cell">
                  {n === 0 && to ? <a href={to(row)}>{c.cell(row)}</a> : c.cell(row)}
                </div>
              ))}
            </div>
          ))}
        </div>
        {foot && (
          <div class="foot" role="presentation">
            {foot}
          </div>
        )}
      </div>
    </div>
  );
}

function Head<R>({
  column,
  by,
  setBy,
}: {
  column: Column<R>;
  by: { name: string; down: boolean } | undefined;
  setBy: (by: { name: string; down: boolean }) => void;
}) {
  const down = by?.name === column.name && by.down;
  const up = by?.name === column.name && !by.down;
  return (
    <div
      class={column.end ? "cell end" : "cell"}
      role="columnheader"
      aria-sort={up ? "ascending" : down ? "descending" : undefined}
    >
      {column.sort ? (
        <button type="button" class="plain" onClick={() => setBy({ name: column.name, down: up })}>
          {column.name}
          {(up || down) && <span aria-hidden="true">{up ? "↑" : "↓"}</span>}
        </button>
      ) : (
        column.name
      )}
    </div>
  );
}

/** Rows in order of a value. Equal ones stay as they come. */
export function sortRows<R>(rows: R[], by: ((row: R) => string | number) | undefined, down: boolean): R[] {
  if (!by) return rows;
  const sign = down ? -1 : 1;
  return rows
    .map((row) => ({ row, value: by(row) }))
    .sort((a, b) => sign * (a.value < b.value ? -1 : a.value > b.value ? 1 : 0))
    .map((r) => r.row);
}

/** Focuses the link of a row, if it is drawn. */
function focusRow(box: HTMLElement | null, row: number): void {
  box?.querySelector<HTMLElement>(`[data-row="${row}"] a`)?.focus({ preventScroll: true });
}

function reveal(box: HTMLElement | null, row: number): void {
  if (!box) return;
  const from = row * rowHeight;
  if (from < box.scrollTop) box.scrollTop = from;
  // The heads stay on top, and take a row.
  const room = box.clientHeight - rowHeight;
  if (from + rowHeight > box.scrollTop + room) box.scrollTop = from + rowHeight - room;
}
