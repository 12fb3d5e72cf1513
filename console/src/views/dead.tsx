import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, get } from "../lib/api.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { moment, now, ranges } from "../lib/time.ts";
import { type Field, Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Failed, Loading, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Letters = components["schemas"]["DeadLetters"];
type Group = components["schemas"]["DeadGroup"];
type By = "service" | "code" | "node" | "tenant";

const groupings: By[][] = [["service", "code"], ["service", "code", "node"], ["service", "code", "tenant"], ["node"]];
const usual = "service,code";

const fields: Field[] = [
  {
    name: "group",
    label: "Grouped by",
    options: groupings.map((g) => ({ value: g.join() === usual ? "" : g.join(), label: g.join(", ") })),
  },
  { name: "service", label: "Service" },
  { name: "code", label: "Error code" },
  { name: "node", label: "Node" },
  { name: "tenant", label: "Tenant" },
  {
    name: "since",
    label: "Died within",
    options: ["", ...Object.keys(ranges)].map((value) => ({ value, label: value || "any time" })),
  },
];

/** Dead jobs by what they have in common. */
export function DeadLetters() {
  const letters = useSignal<Letters | undefined>(undefined);
  const error = useSignal<ApiError | undefined>(undefined);
  const asked = useSignal(0);
  const key = useComputed(() =>
    JSON.stringify(
      Object.fromEntries(fields.map((f) => [f.name, route.value.query.get(f.name) ?? ""]).filter((v) => v[1])),
    ),
  ).value;
  const values = JSON.parse(key) as Record<string, string>;
  const by = (values.group ?? usual).split(",") as By[];
  useEffect(() => {
    const stop = new AbortController();
    const { since = "", group = usual, ...rest } = JSON.parse(key) as Record<string, string>;
    const back = ranges[since];
    // One value with commas is how the API takes a list here.
    const query = {
      ...rest,
      group: [group] as By[],
      ...(back ? { ended_from_ms: Math.round(now() - back) } : {}),
    };
    letters.value = undefined;
    error.value = undefined;
    get("/v1/dead-letters", { query, signal: stop.signal }).then(
      (read) => {
        letters.value = read;
      },
      (cause) => {
        if (!stop.signal.aborted)
          error.value = cause instanceof ApiError ? cause : new ApiError("internal", String(cause));
      },
    );
    return () => stop.abort();
  }, [key, asked.value, letters, error]);
  const read = letters.value;
  const { group, ...flags } = values;
  return (
    <div class="view">
      <header class="bar">
        <h1>Dead letters</h1>
        <button
          type="button"
          onClick={() => {
            asked.value++;
          }}
        >
          Refresh
        </button>
      </header>
      <Filter label="Filter of dead jobs" fields={fields} values={values} onChange={setQuery} />
      {error.value && <Failed error={error.value} again={() => asked.value++} />}
      {!read && !error.value && <Loading rows={6} />}
      {read && (read.groups ?? []).length === 0 && <Empty title="No dead job">{looked(read)}</Empty>}
      {read && (read.groups ?? []).length > 0 && (
        <Table
          label="Groups of dead jobs"
          columns={columnsOf(by)}
          rows={read.groups ?? []}
          id={(g) => by.map((b) => g[b] ?? "").join("\n")}
          to={(g) =>
            href(["jobs"], { state: "dead", ...Object.fromEntries(by.map((b) => [b, g[b]])), since: values.since })
          }
          foot={looked(read)}
        />
      )}
      <Command line={schedctl(["dead-letters"], { ...flags, group })} />
    </div>
  );
}

function looked(l: Letters): string {
  const total = l.total === undefined ? "" : ` of ${count(l.total)}`;
  return `${plural(l.looked_at, "dead job")}${total} looked at${l.since_ms ? `, back to ${moment(l.since_ms)}` : ""}`;
}

const names: Record<By, string> = { service: "Service", code: "Error", node: "Node", tenant: "Tenant" };

function columnsOf(by: By[]): Column<Group>[] {
  return [
    ...by.map(
      (b): Column<Group> => ({
        name: names[b],
        width: "minmax(72px, 1fr)",
        cell: (g) => <Text value={g[b] || "–"} max={80} />,
        sort: (g) => g[b] ?? "",
      }),
    ),
    { name: "Jobs", width: "64px", cell: (g) => count(g.jobs), sort: (g) => g.jobs, end: true },
    { name: "Last", width: "88px", cell: (g) => <Age at={g.last_ms} />, sort: (g) => g.last_ms, end: true, wide: true },
  ];
}
