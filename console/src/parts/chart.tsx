import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { theme, zone } from "../lib/prefs.ts";
import { systemDark } from "../lib/screen.ts";
import { figure } from "../lib/text.ts";
import { full, moment } from "../lib/time.ts";
import { Icon } from "./icon.tsx";

/** One line of a chart. colour is 1 to 6, a token of the style sheet; dashes tell lines apart without colour. */
export interface Line {
  name: string;
  label: string;
  colour: number;
  dash?: number[];
}

type Data = (number | null)[][];

/** Where an axis may have its ticks, other than at decimal steps. */
export type Ticks = "whole" | "binary";

const steps: Record<Ticks, number[]> = {
  whole: Array.from({ length: 10 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat(),
  binary: Array.from({ length: 50 }, (_, i) => 2 ** i),
};

const height = 148;
const format = figure;

/** Lines over time. All charts of the page share one cursor. A toggle shows the figures as a table. */
export function Chart({
  title,
  unit,
  lines,
  data,
  from,
  to,
  show = format,
  ticks,
}: {
  title: string;
  unit: string;
  lines: Line[];
  /** Times in seconds, then a column for each line. */
  data: Data;
  from: number;
  to: number;
  show?: (value: number) => string;
  ticks?: Ticks;
}) {
  const table = useSignal(false);
  const at = useSignal<number | null>(null);
  const last = lastIndex(data);
  const index = at.value ?? last;
  const value = (i: number) => data[i + 1]?.[index];
  return (
    <figure class="chart">
      <figcaption>
        <h3>
          {title} <small>{unit}</small>
        </h3>
        <button
          type="button"
          class="plain"
          aria-pressed={table.value}
          aria-label={`${title} as a table`}
          title="As a table"
          onClick={() => {
            table.value = !table.value;
          }}
        >
          <Icon name="list" />
        </button>
      </figcaption>
      <ul class="legend">
        {lines.map((line, i) => (
          <li key={line.name}>
            <svg class={`swatch c${line.colour}`} viewBox="0 0 16 4" aria-hidden="true">
              <path d="M0 2h16" stroke-dasharray={line.dash?.map((d) => d / 1.5).join(" ")} />
            </svg>
            {line.label} <b>{present(value(i), show)}</b>
          </li>
        ))}
      </ul>
      {table.value ? (
        <Figures lines={lines} data={data} show={show} title={title} />
      ) : (
        <Plot
          label={summary(title, unit, lines, data, last, show)}
          {...{ lines, data, from, to, show, ticks }}
          onCursor={(i) => {
            at.value = i;
          }}
        />
      )}
    </figure>
  );
}

function present(value: number | null | undefined, show: (value: number) => string): string {
  return value === null || value === undefined ? "–" : show(value);
}

function summary(title: string, unit: string, lines: Line[], data: Data, i: number, show: (v: number) => string) {
  return `${title}${unit && `, ${unit}`}: ${lines.map((l, n) => `${l.label} ${present(data[n + 1]?.[i], show)}`).join(", ")}`;
}

function lastIndex(data: Data): number {
  for (let i = (data[0]?.length ?? 0) - 1; i >= 0; i--) {
    if (data.some((column, n) => n > 0 && column[i] !== null)) return i;
  }
  return -1;
}

function Plot({
  label,
  lines,
  data,
  from,
  to,
  show,
  ticks,
  onCursor,
}: {
  label: string;
  lines: Line[];
  data: Data;
  from: number;
  to: number;
  show: (value: number) => string;
  ticks: Ticks | undefined;
  onCursor: (index: number | null) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const range = useRef([from, to] as [number, number]);
  range.current = [from / 1000, to / 1000];
  // Colours, zone and lines are read when a chart is made. A replica of another release may have other lines.
  const look = `${theme.value} ${systemDark.value} ${zone.value} ${lines.map((l) => l.name)}`;
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(options(element, lines, range, show, ticks, onCursor), data as uPlot.AlignedData, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [look]);
  useLayoutEffect(() => {
    plot.current?.setData(data as uPlot.AlignedData);
  }, [data]);
  const empty = lastIndex(data) < 0;
  return (
    <div
      class="plot"
      role="img"
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the cursor that all charts share
      tabIndex={0}
      onKeyDown={(event) => step(event, plot.current)}
      onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })}
    >
      <div ref={box} />
      {empty && <span class="none">No figures in this range</span>}
    </div>
  );
}

function step(event: KeyboardEvent, plot: uPlot | undefined): void {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!plot || !by) return;
  event.preventDefault();
  const n = plot.data[0].length;
  const now = plot.cursor.idx ?? n - 1;
  const next = plot.data[0][Math.min(n - 1, Math.max(0, now + by))];
  if (next !== undefined) plot.setCursor({ left: plot.valToPos(next, "x"), top: 10 });
}

function options(
  element: HTMLElement,
  lines: Line[],
  range: { current: [number, number] },
  show: (value: number) => string,
  ticks: Ticks | undefined,
  onCursor: (index: number | null) => void,
): uPlot.Options {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: token("--faint"), font, ticks: { show: false }, grid: { stroke: token("--rule"), width: 1 } };
  return {
    width: element.clientWidth || 300,
    height,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "time" } },
    scales: {
      x: { time: true, range: () => range.current },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.12 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 24,
        gap: 4,
        space: 52,
        values: (_, at, __, ___, step) => at.map((t) => tick(t, step)),
      },
      {
        ...axis,
        size: (_, at) => Math.max(40, ...(at ?? []).map((v) => 7 * v.length + 12)),
        gap: 4,
        space: 36,
        ...(ticks ? { incrs: steps[ticks] } : {}),
        values: (_, at) => at.map((v) => show(v)),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        stroke: token(`--c${line.colour}`),
        width: 1.75,
        ...(line.dash ? { dash: line.dash } : {}),
        ...(lines.length === 1 ? { fill: `color-mix(in srgb, ${token(`--c${line.colour}`)} 14%, transparent)` } : {}),
        points: { size: 3 },
      })),
    ],
    hooks: {
      setCursor: [(u) => onCursor(u.cursor.left !== undefined && u.cursor.left >= 0 ? (u.cursor.idx ?? null) : null)],
    },
  };
}

function tick(seconds: number, step: number): string {
  const text = moment(seconds * 1000, zone.peek(), seconds * 1000);
  return step >= 60 ? text.slice(0, 5) : text;
}

const tableRows = 60;

function Figures({
  lines,
  data,
  show,
  title,
}: {
  lines: Line[];
  data: Data;
  show: (value: number) => string;
  title: string;
}) {
  const times = data[0] ?? [];
  const every = Math.max(1, Math.ceil(times.length / tableRows));
  const picked = times.map((_, i) => i).filter((i) => (times.length - 1 - i) % every === 0);
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section class="figures" aria-label={`${title}, figures`} tabIndex={0} ref={box}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((l) => (
              <th key={l.name} scope="col">
                {l.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {picked.reverse().map((i) => (
            <tr key={times[i]}>
              <th scope="row" title={full((times[i] ?? 0) * 1000)}>
                {moment((times[i] ?? 0) * 1000)}
              </th>
              {lines.map((l, n) => (
                <td key={l.name}>{present(data[n + 1]?.[i], show)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
