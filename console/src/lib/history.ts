/** Figures over time, a column for each series. Times are in milliseconds, and grow. null is a gap. */
export interface History {
  step: number;
  times: number[];
  series: Record<string, (number | null)[]>;
}

/** How the API and the topic write figures: names of columns, the first `t_ms`, and rows. */
export interface Table {
  step_ms?: number;
  columns: string[];
  rows: (number | null)[][];
}

/** Reads a table. Rows come out in the order of their times; of equal times the last one counts. */
export function fromTable(table: Table): History {
  return merge({ step: table.step_ms ?? 2000, times: [], series: {} }, table, 0);
}

/**
 * Adds the rows of a table, and leaves out what is older than from. Rows of a time that is there already replace it:
 * the topic repeats its last points until they are final.
 */
export function merge(history: History, table: Table, from: number): History {
  const rows = new Map<number, (name: string) => number | null>();
  history.times.forEach((t, i) => {
    rows.set(t, (name) => history.series[name]?.[i] ?? null);
  });
  const at = new Map(table.columns.map((name, i) => [name, i]));
  for (const row of table.rows) {
    const t = row[at.get("t_ms") ?? 0];
    if (typeof t === "number") rows.set(t, (name) => row[at.get(name) ?? -1] ?? null);
  }
  const times = [...rows.keys()].filter((t) => t >= from).sort((a, b) => a - b);
  const names = new Set([...Object.keys(history.series), ...table.columns.filter((c) => c !== "t_ms")]);
  const series: History["series"] = {};
  for (const name of names) series[name] = times.map((t) => rows.get(t)?.(name) ?? null);
  return { step: history.step, times, series };
}

/**
 * The columns of a chart: times in seconds, then the series. Where points are missing for more than two steps a gap
 * is put in, so that a line never bridges what is not known.
 */
export function columns(history: History, names: string[], from: number, to: number): (number | null)[][] {
  const out: (number | null)[][] = [[], ...names.map(() => [])];
  const put = (t: number, value: (name: string) => number | null) => {
    out[0]?.push(t / 1000);
    names.forEach((name, i) => {
      out[i + 1]?.push(value(name));
    });
  };
  let last = 0;
  history.times.forEach((t, i) => {
    if (t < from || t > to) return;
    if (last && t - last > 2.5 * history.step) put(last + history.step, () => null);
    put(t, (name) => history.series[name]?.[i] ?? null);
    last = t;
  });
  return out;
}

/** The newest value of each series. One that is older than five steps is left out. */
export function newest(history: History): Record<string, number | null> {
  const n = history.times.length;
  const end = history.times[n - 1] ?? 0;
  const out: Record<string, number | null> = {};
  for (const [name, values] of Object.entries(history.series)) {
    for (let i = n - 1; i >= 0 && end - (history.times[i] ?? 0) <= 5 * history.step; i--) {
      const value = values[i];
      if (value === null || value === undefined) continue;
      out[name] = value;
      break;
    }
  }
  return out;
}
