import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { route, setQuery } from "../lib/route.ts";
import { count, schedctl, words } from "../lib/text.ts";
import { now } from "../lib/time.ts";
import { Chart, type Line } from "../parts/chart.tsx";
import { Command, Facts, Failed, Loading, Panel, Scroll, Text } from "../parts/small.tsx";

type Statistics = components["schemas"]["ListStatistics"];

const minute = 60_000;
/** How far back figures can be seen: in words of schedctl, and in milliseconds. */
const ranges: Record<string, number> = {
  "15m": 15 * minute,
  "1h": 60 * minute,
  "6h": 360 * minute,
  "24h": 1440 * minute,
  "168h": 10_080 * minute,
};

export function useRange(): [range: string, ms: number] {
  const asked = route.value.query.get("range") ?? "";
  const range = ranges[asked] ? asked : "1h";
  return [range, ranges[range] ?? 0];
}

export function Ranges({ range }: { range: string }) {
  return (
    <fieldset class="choice">
      <legend class="hidden">Time range</legend>
      {Object.keys(ranges).map((r) => (
        <button key={r} type="button" aria-pressed={r === range} onClick={() => setQuery({ range: r })}>
          {r === "168h" ? "7d" : r}
        </button>
      ))}
    </fieldset>
  );
}

/** Columns for a chart. Times without a point had nothing to count, so they are 0. */
export function columnsOf<P extends { at_ms: number }>(
  points: P[],
  step: number,
  from: number,
  to: number,
  values: ((p: P | undefined) => number | null)[],
): (number | null)[][] {
  const by = new Map(points.map((p) => [p.at_ms, p]));
  const times: number[] = [];
  for (let t = Math.ceil(from / step) * step; t <= to && times.length < 2000; t += step) times.push(t);
  return [times.map((t) => t / 1000), ...values.map((v) => times.map((t) => v(by.get(t))))];
}

const answers: Line[] = [
  { name: "hits", label: "yes", colour: 1 },
  { name: "misses", label: "no", colour: 5, dash: [6, 3] },
  { name: "unknown", label: "unknown", colour: 3, dash: [2, 3] },
];
const percent = (v: number) => `${Math.round(v)} %`;

/** Lookups and hit rate over time, as clients report them. */
export function ListFigures({ name }: { name: string }) {
  const [range, ms] = useRange();
  const { data, error } = useFollow<Statistics>(`list-statistics:${ms}:${name}`, (signal) =>
    get("/v1/lists/{list}/statistics", { path: { list: name }, query: { since_ms: ms }, signal }),
  );
  const to = data?.at_ms ?? now();
  const from = to - ms;
  const points = data?.points ?? [];
  const step = data?.step_ms ?? minute;
  const each = step === minute ? "a minute" : "an hour";
  const applications = Object.entries(data?.applications ?? {}).sort(([, a], [, b]) => b.lookups - a.lookups);
  return (
    <Panel title="Lookups" wide aside={<Ranges range={range} />}>
      {error && <Failed error={error} />}
      {!data && !error && <Loading />}
      {data && (
        <>
          <div class="charts" key={range}>
            <Chart
              title="Answers"
              unit={each}
              lines={answers}
              data={columnsOf(points, step, from, to, [
                (p) => p?.hits ?? 0,
                (p) => p?.misses ?? 0,
                (p) => p?.unknown ?? 0,
              ])}
              {...{ from, to }}
            />
            <Chart
              title="Hit rate"
              unit="of answers yes or no"
              lines={[{ name: "rate", label: "yes", colour: 1 }]}
              data={columnsOf(points, step, from, to, [
                (p) => (p && p.hits + p.misses > 0 ? (100 * p.hits) / (p.hits + p.misses) : null),
              ])}
              show={percent}
              {...{ from, to }}
            />
          </div>
          <Facts
            rows={[
              { name: "Lookups", value: count(data.lookups) },
              { name: "Hit rate", value: data.hits + data.misses > 0 ? percent(100 * data.hit_rate) : "–" },
              { name: "Unknown", value: count(data.unknown) },
              { name: "Let through by the filter in vain", value: count(data.false_positives) },
              {
                name: "Calls that memory could not decide",
                value: `${count(data.remote_calls)}, ${count(data.remote_mean_us)} µs each`,
              },
              ...Object.entries(data.unknown_by ?? {}).map(([why, n]) => ({
                name: `Unknown: ${words(why)}`,
                value: count(n),
              })),
            ]}
          />
          {applications.length > 0 && (
            <Scroll short label="By whom">
              <table class="plain">
                <thead>
                  <tr>
                    <th scope="col">Asked by</th>
                    <th scope="col" class="end">
                      Lookups
                    </th>
                    <th scope="col" class="end">
                      Hit rate
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {applications.map(([who, c]) => (
                    <tr key={who}>
                      <th scope="row">
                        <Text value={who} max={80} />
                      </th>
                      <td class="end">{count(c.lookups)}</td>
                      <td class="end">{percent(100 * c.hit_rate)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
          )}
        </>
      )}
      <Command line={schedctl(["lists", "stats"], { since: range }, [name])} />
    </Panel>
  );
}
