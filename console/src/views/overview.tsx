import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ApiError, get } from "../lib/api.ts";
import { columns, fromTable, type History, merge, newest, type Table } from "../lib/history.ts";
import { type TopicState, useTopic } from "../lib/live.ts";
import { route, setQuery } from "../lib/route.ts";
import { session } from "../lib/session.ts";
import { bytes, count, figure, plural, schedctl } from "../lib/text.ts";
import { clock, moment, now, ranges, span } from "../lib/time.ts";
import { Chart, type Line, type Ticks } from "../parts/chart.tsx";
import { Icon } from "../parts/icon.tsx";
import { Age, Command, Empty, Failed, Loading, Stale, State, Text } from "../parts/small.tsx";

interface Finding {
  id: string;
  severity: string;
  since_ms: number;
  text: string;
  next: string;
  names?: string[];
  link?: string;
}

interface OverviewData {
  /** null until the replica has looked for the first time. */
  findings: { at_ms: number; items: Finding[] | null; unknown?: string[] } | null;
  now?: Record<string, number | null>;
  nodes: Record<string, number> | null;
  replicas: { name: string; build?: string; ready: boolean }[] | null;
  cells: Cell[] | null;
}

interface Cell {
  cell: number;
  ok: boolean;
  /** When a cell that does not answer answered last. */
  since_ms?: number;
}

/** What is wrong now, and how things went. */
export function Overview() {
  const topic = useTopic<OverviewData>("overview");
  const state = topic.value;
  const range = useRange();
  const figures = useHistory(range);
  return (
    <div class="view">
      <h1 class="hidden">Overview</h1>
      {state.data && <Cells cells={state.data.cells ?? []} />}
      <Findings state={state} />
      {state.data && <Now data={state.data} history={figures.history} />}
      <Charts range={range} figures={figures} />
      <div class="commands">
        <Command line="schedctl status" />
        <Command line={schedctl(["history"], { since: range })} />
      </div>
    </div>
  );
}

function Findings({ state }: { state: TopicState<OverviewData> }) {
  const { data, error } = state;
  if (!data?.findings) return error ? <Stale since={state.good} why={error.message} /> : <Loading rows={1} />;
  const found = data.findings.items ?? [];
  const unknown = data.findings.unknown ?? [];
  return (
    <section class="findings" aria-label="Findings">
      {error && <Stale since={state.good} why={error.message} />}
      {found.length === 0 && unknown.length === 0 ? (
        <p class={error ? "well old" : "well"}>
          <Icon name="check" />
          <strong>All is well</strong>
          <span class="faint">looked {<Age at={data.findings.at_ms} />}</span>
        </p>
      ) : (
        <>
          <h2>
            {found.length > 0 ? plural(found.length, "finding") : "Nothing found, but not all could be looked at"}{" "}
            <small class="faint">looked {<Age at={data.findings.at_ms} />}</small>
          </h2>
          <ul>
            {found.map((f) => (
              <FindingRow key={f.id} finding={f} />
            ))}
          </ul>
          {unknown.length > 0 && (
            <p class="unknown">
              <State value="unknown" /> These parts could not say in time: <Text value={unknown.join(", ")} />
            </p>
          )}
        </>
      )}
    </section>
  );
}

function FindingRow({ finding: f }: { finding: Finding }) {
  return (
    <li class={`finding ${f.severity}`}>
      <State value={f.severity} />
      <div>
        <p>
          <strong>
            <Text value={f.text} max={400} />
          </strong>
        </p>
        <p class="next">
          <Text value={f.next} max={400} />
        </p>
      </div>
      <span class="since">
        {f.since_ms > 0 && <span title={moment(f.since_ms)}>for {span(Math.max(1000, clock.value - f.since_ms))}</span>}
        {f.link && (
          <a class="button" href={f.link} aria-label={`Show: ${f.id}`}>
            Show
          </a>
        )}
      </span>
    </li>
  );
}

function Cells({ cells }: { cells: Cell[] }) {
  const away = cells.filter((c) => !c.ok);
  if (away.length === 0) return null;
  return (
    <div class="notice stale" role="status">
      <strong>
        {cells.length === 1 ? "Redis does not answer" : `${away.length} of ${cells.length} cells do not answer`}
      </strong>
      <p>
        {away.map((c) => (
          <span key={c.cell}>
            {cells.length > 1 ? `Cell ${c.cell} answered` : "It answered"} last{" "}
            {c.since_ms ? (
              <>
                at {moment(c.since_ms)}, <Age at={c.since_ms} />
              </>
            ) : (
              "before this replica began"
            )}
            .{" "}
          </span>
        ))}
        Figures from there are from before. Jobs that run go on; the replica connects again by itself.
      </p>
    </div>
  );
}

function Now({ data, history }: { data: OverviewData; history: History | undefined }) {
  const n = data.now ?? (history ? newest(history) : {});
  const sum = (...names: string[]) =>
    names.every((name) => n[name] === null || n[name] === undefined)
      ? null
      : names.reduce((total, name) => total + (n[name] ?? 0), 0);
  const used = n.slots_used ?? null;
  const total = n.slots_total ?? null;
  const nodes = data.nodes ?? {};
  const others = Object.entries(nodes).filter(([name, k]) => name !== "online" && k > 0);
  const replicas = data.replicas ?? [];
  const ready = replicas.filter((r) => r.ready).length;
  return (
    <dl class="now">
      <Tile name="Arrivals" value={show(sum("arrivals_placed", "arrivals_queued", "arrivals_refused"))} unit="jobs/s" />
      <Tile
        name="Ends"
        value={show(n.ends ?? sum("ends_succeeded", "ends_failed", "ends_cancelled", "ends_expired"))}
        unit="jobs/s"
      />
      <Tile name="Time to assign, p99" value={ms(n.assign_p99_ms)} />
      <Tile
        name="Waiting"
        value={show(n.waiting, count)}
        unit={n.oldest_wait_ms ? `oldest ${span(n.oldest_wait_ms)}` : ""}
      />
      <Tile name="Slots used" value={show(used, count)} unit={total ? `of ${count(total)}` : ""} />
      <Tile
        name="Nodes online"
        value={show(nodes.online ?? 0, count)}
        unit={others.map(([name, k]) => `${count(k)} ${name}`).join(", ")}
      />
      <Tile
        name="Replicas ready"
        value={show(ready, count)}
        unit={ready < replicas.length ? `of ${replicas.length}` : ""}
      />
    </dl>
  );
}

function Tile({ name, value, unit }: { name: string; value: string; unit?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value} {unit && <small>{unit}</small>}
      </dd>
    </div>
  );
}

function show(n: number | null | undefined, how = figure): string {
  return n === null || n === undefined ? "–" : how(n);
}

function ms(n: number | null | undefined): string {
  return show(n, (v) => (v < 10 ? `${figure(v)} ms` : span(v)));
}

const axisMS = (v: number) => (v > 0 && v < 10 ? `${figure(v)} ms` : span(v));

interface ChartSpec {
  ticks?: Ticks;
  title: string;
  unit: string;
  lines: Line[];
  show?: (v: number) => string;
}

const dash = [6, 4];
const dots = [2, 3];

const charts: ChartSpec[] = [
  {
    title: "Arrivals by outcome",
    unit: "jobs/s",
    lines: [
      { name: "arrivals_placed", label: "placed", colour: 1 },
      { name: "arrivals_queued", label: "queued", colour: 2, dash },
      { name: "arrivals_refused", label: "refused", colour: 3, dash: dots },
    ],
  },
  {
    title: "Ends by state",
    unit: "jobs/s",
    lines: [
      { name: "ends", label: "all", colour: 6 },
      { name: "ends_succeeded", label: "succeeded", colour: 1 },
      { name: "ends_failed", label: "failed", colour: 3, dash: dots },
      { name: "ends_dead", label: "dead", colour: 3 },
      { name: "ends_cancelled", label: "cancelled", colour: 4, dash },
      { name: "ends_expired", label: "expired", colour: 2, dash: [8, 3, 2, 3] },
      { name: "retries", label: "retries", colour: 5, dash: [3, 3] },
    ],
  },
  {
    title: "Time to assign",
    unit: "",
    show: axisMS,
    lines: [
      { name: "assign_p50_ms", label: "p50", colour: 1 },
      { name: "assign_p99_ms", label: "p99", colour: 2, dash },
    ],
  },
  {
    title: "Waiting and held",
    unit: "jobs",
    ticks: "whole",
    show: figure,
    lines: [
      { name: "waiting", label: "waiting", colour: 1 },
      { name: "held", label: "held by a limit", colour: 2, dash },
    ],
  },
  {
    title: "Slots used",
    unit: "slots",
    ticks: "whole",
    lines: [
      { name: "slots_used", label: "used", colour: 1 },
      { name: "slots_total", label: "all", colour: 6, dash },
    ],
  },
  { title: "Oldest wait", unit: "", show: axisMS, lines: [{ name: "oldest_wait_ms", label: "oldest", colour: 1 }] },
  {
    title: "Redis, time a call",
    unit: "",
    show: axisMS,
    lines: [
      { name: "redis_call_p50_ms", label: "p50", colour: 1 },
      { name: "redis_call_p99_ms", label: "p99", colour: 2, dash },
    ],
  },
  {
    title: "Redis, memory",
    unit: "",
    show: bytes,
    ticks: "binary",
    lines: [{ name: "redis_memory_bytes", label: "used", colour: 1 }],
  },
  {
    title: "Delay of events, p99",
    unit: "",
    show: axisMS,
    lines: [{ name: "events_delay_p99_ms", label: "p99", colour: 1 }],
  },
];

/** Ranges that a replica gets from Prometheus, where one is configured. */
const long: Record<string, number> = { "7d": 604_800_000, "30d": 2_592_000_000, "90d": 7_776_000_000 };
const width = (range: string) => ranges[range] ?? long[range] ?? 0;

/** Figures come at three resolutions, and long ones in hours; a range takes the finest that covers it. */
function since(range: string): string {
  const ms = width(range);
  if (range in long) return `${ms / 3_600_000}h`;
  return ms <= 900_000 ? "15m" : ms <= 10_800_000 ? "3h" : "24h";
}

const refetch = 300_000;
/** A replica of another release may not push figures. */
const refetchAlone = 10_000;

function useHistory(range: string): { history: History | undefined; error: ApiError | undefined; again: () => void } {
  const history = useSignal<History | undefined>(undefined);
  const error = useSignal<ApiError | undefined>(undefined);
  const asked = useSignal(0);
  const tier = since(range);
  const loadedAt = useRef(0);
  const topic = useTopic<Table>("history");
  const followed = topic.value.error === undefined;
  useEffect(() => {
    const stop = new AbortController();
    const load = async () => {
      loadedAt.current = Date.now();
      try {
        history.value = fromTable(await get("/v1/history", { query: { since: tier }, signal: stop.signal }));
        error.value = undefined;
      } catch (cause) {
        if (!stop.signal.aborted && cause instanceof ApiError) error.value = cause;
      }
    };
    void load();
    // Live points are finer than those of long ranges: the answer replaces them now and then.
    const timer = setInterval(() => !document.hidden && void load(), followed ? refetch : refetchAlone);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [tier, asked.value, followed]);
  const live = topic.value;
  useEffect(() => {
    if (!live.data || range in long) return;
    const from = now() - width(tier) - 60_000;
    const base = history.peek() ?? { step: 2000, times: [], series: {} };
    const last = base.times.at(-1);
    history.value = merge(base, live.data, from);
    // While the tab was hidden, or the connection lost, points went by.
    const next = live.data.rows[0]?.[0];
    const gap = last && next ? next - last : 0;
    if (gap > Math.max(10_000, 3 * base.step) && Date.now() - loadedAt.current > 10_000) asked.value++;
  }, [live, tier, asked, history, range]);
  return {
    history: history.value,
    error: error.value,
    again: () => {
      asked.value++;
    },
  };
}

function useRange(): string {
  const asked = useComputed(() => route.value.query.get("range") ?? "");
  return width(asked.value) > 0 ? asked.value : "15m";
}

function Charts({ range, figures }: { range: string; figures: ReturnType<typeof useHistory> }) {
  const { history, error, again } = figures;
  const to = history?.times.at(-1) ?? now();
  const from = to - width(range);
  return (
    <section aria-label="Figures">
      <header class="bar">
        <h2>Figures</h2>
        <fieldset class="choice">
          <legend class="hidden">Time range</legend>
          {Object.keys(session.value?.long_history ? { ...ranges, ...long } : ranges).map((r) => (
            <button
              key={r}
              type="button"
              aria-pressed={r === range}
              onClick={() => setQuery({ range: r === "15m" ? undefined : r })}
            >
              {r}
            </button>
          ))}
        </fieldset>
      </header>
      {error?.code === "not_found" && (
        <Empty title="This replica keeps no history">Another release may run on it.</Empty>
      )}
      {error && error.code !== "not_found" && <Failed error={error} again={again} />}
      {!history && !error && <Loading />}
      {history && (
        <div class="charts">
          {charts.map((c) => (
            <HistoryChart key={`${c.title} ${range}`} spec={c} history={history} from={from} to={to} />
          ))}
        </div>
      )}
    </section>
  );
}

function HistoryChart({ spec, history, from, to }: { spec: ChartSpec; history: History; from: number; to: number }) {
  // A release without a series leaves its line out.
  const lines = useMemo(() => spec.lines.filter((l) => l.name in history.series), [spec, history]);
  const data = useMemo(
    () =>
      columns(
        history,
        lines.map((l) => l.name),
        from,
        to,
      ),
    [history, lines, from, to],
  );
  if (lines.length === 0) return null;
  return <Chart {...spec} lines={lines} data={data} from={from} to={to} />;
}
