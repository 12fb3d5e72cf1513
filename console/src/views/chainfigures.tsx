import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { count, schedctl } from "../lib/text.ts";
import { now } from "../lib/time.ts";
import { Chart, type Line } from "../parts/chart.tsx";
import { Command, Failed, Loading, Panel, Scroll, Text } from "../parts/small.tsx";
import { columnsOf, Ranges, useRange } from "./listfigures.tsx";

type Statistics = components["schemas"]["ChainStatistics"];

const outcomes: Line[] = [
  { name: "allow", label: "allow", colour: 1 },
  { name: "deny", label: "deny", colour: 5, dash: [6, 3] },
  { name: "variant", label: "variant", colour: 4, dash: [9, 3] },
  { name: "unknown", label: "unknown", colour: 3, dash: [2, 3] },
];
const shadows: Line[] = [
  { name: "same", label: "the same", colour: 1 },
  { name: "different", label: "otherwise", colour: 5, dash: [6, 3] },
  { name: "undecided", label: "not from memory", colour: 3, dash: [2, 3] },
];

/** Decisions over time and by rule, and what a shadow decided beside. */
export function ChainFigures({ name }: { name: string }) {
  const [range, ms] = useRange();
  const { data, error } = useFollow<Statistics>(`chain-statistics:${ms}:${name}`, (signal) =>
    get("/v1/chains/{chain}/statistics", { path: { chain: name }, query: { since_ms: ms }, signal }),
  );
  const to = data?.at_ms ?? now();
  const from = to - ms;
  const points = data?.points ?? [];
  const step = data?.step_ms ?? 60_000;
  const each = step === 60_000 ? "a minute" : "an hour";
  const rules = Object.entries(data?.rules ?? {}).sort(([, a], [, b]) => b.decisions - a.decisions);
  const beside = data ? data.shadow.same + data.shadow.different + data.shadow.undecided : 0;
  return (
    <Panel title="Decisions" wide aside={<Ranges range={range} />}>
      {error && <Failed error={error} />}
      {!data && !error && <Loading />}
      {data && (
        <div class="charts" key={range}>
          <Chart
            title="Outcomes"
            unit={each}
            lines={outcomes}
            data={columnsOf(points, step, from, to, [
              (p) => p?.allow ?? 0,
              (p) => p?.deny ?? 0,
              (p) => p?.variant ?? 0,
              (p) => p?.unknown ?? 0,
            ])}
            {...{ from, to }}
          />
          {beside > 0 && (
            <Chart
              title="Shadow decided"
              unit={each}
              lines={shadows}
              data={columnsOf(points, step, from, to, [
                (p) => p?.shadow.same ?? 0,
                (p) => p?.shadow.different ?? 0,
                (p) => p?.shadow.undecided ?? 0,
              ])}
              {...{ from, to }}
            />
          )}
        </div>
      )}
      {data && rules.length === 0 && <p class="faint">No decision was reported in this time.</p>}
      {rules.length > 0 && (
        <Scroll short label="Decisions by rule">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Rule</th>
                {["Decisions", "Allow", "Deny", "Variant", "Unknown", "Shadow otherwise"].map((head) => (
                  <th key={head} scope="col" class="end">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rules.map(([rule, c]) => (
                <tr key={rule}>
                  <th scope="row">
                    <Text value={rule} max={80} />
                  </th>
                  {[c.decisions, c.allow, c.deny, c.variant, c.unknown, c.shadow.different].map((n, i) => (
                    <td key={i} class="end">
                      {count(n)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <Command line={schedctl(["lists", "chain", "stats"], { since: range }, [name])} />
    </Panel>
  );
}
