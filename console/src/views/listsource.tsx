import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { href } from "../lib/route.ts";
import { bytes, count, plural, schedctl } from "../lib/text.ts";
import { full, moment, span } from "../lib/time.ts";
import { Act, type Action } from "../parts/act.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Source = components["schemas"]["ListSource"];

const useSources = () =>
  useFollow<components["schemas"]["ListSources"]>("list-sources", (signal) => get("/v1/list-sources", { signal }));

const lastOf = (s: Source) => (s.running ? "under_way" : (s.runs?.[0]?.result ?? ""));

const columns: Column<Source>[] = [
  { name: "List", width: "minmax(96px, 1fr)", cell: (s) => <Text value={s.list} max={80} />, sort: (s) => s.list },
  {
    name: "Source",
    width: "minmax(80px, 1fr)",
    cell: (s) => <Text value={s.source} max={80} />,
    sort: (s) => s.source,
  },
  {
    name: "Last run",
    width: "minmax(88px, 112px)",
    cell: (s) => (lastOf(s) ? <State value={lastOf(s)} /> : "–"),
    sort: lastOf,
  },
  { name: "Ended", width: "96px", cell: (s) => <Age at={s.runs?.[0]?.at_ms} />, wide: true },
  { name: "Runs", width: "minmax(96px, 1fr)", cell: (s) => <Text value={s.cron || "when asked"} />, wide: true },
  { name: "Next", width: "96px", cell: (s) => <Age at={s.next_ms} />, sort: (s) => s.next_ms ?? 0, wide: true },
];

/** The lists whose ids come from elsewhere. */
export function Sources() {
  const { data, at, error, again } = useSources();
  const rows = data?.lists ?? [];
  return (
    <>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading />}
      {data && (
        <p>
          Sources in the configuration of this replica:{" "}
          {(data.sources ?? []).length === 0 ? "none" : <Text value={(data.sources ?? []).join(", ")} max={1000} />}
        </p>
      )}
      {data && rows.length === 0 && (
        <Empty title="No list has a source">A list is given one in its own view; the configuration names them.</Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Lists with a source"
          columns={columns}
          rows={rows}
          id={(s) => s.list}
          to={(s) => href(["lists", s.list])}
          foot={plural(rows.length, "list")}
        />
      )}
      <Command line={schedctl(["lists", "source", "ls"])} />
    </>
  );
}

/** The source of one list and its runs, or a form that gives it one. */
export function ListSource({ name }: { name: string }) {
  const { data, error } = useSources();
  const s = data?.lists?.find((one) => one.list === name);
  return (
    <Panel
      title="Source"
      wide
      aside={
        s && (
          <div class="acts">
            <Act action={runSource(s)} />
            <Act action={unsetSource(s)} />
          </div>
        )
      }
    >
      {error && <Failed error={error} />}
      {!data && !error && <Loading />}
      {s && (
        <>
          <Facts
            rows={[
              { name: "Source", value: <Text value={s.source} max={80} /> },
              {
                name: "Runs",
                value: <Text value={[s.cron || "when asked", s.time_zone].filter(Boolean).join(" in ")} />,
              },
              { name: "Next", value: <Age at={s.next_ms} /> },
              { name: "Set by", value: <Text value={s.author || "–"} max={80} /> },
              !s.here && { name: "At this replica", value: "Its configuration does not have the source." },
              s.running && { name: "Runs now", value: <Text value={`on ${s.running.replica}`} max={80} /> },
            ]}
          />
          <Runs source={s} />
        </>
      )}
      {data && !s && <Give name={name} names={data.sources ?? []} />}
      <Command line={schedctl(["lists", "source", "show"], {}, [name])} />
    </Panel>
  );
}

function Runs({ source: s }: { source: Source }) {
  const runs = s.runs ?? [];
  if (runs.length === 0) return <p class="faint">It has not run yet.</p>;
  return (
    <Scroll short label="Runs of the source">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Began</th>
            <th scope="col">Result</th>
            <th scope="col">Took</th>
            <th scope="col" class="end">
              Lines
            </th>
            <th scope="col" class="end">
              Size
            </th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((r) => (
            <tr key={r.id}>
              <th scope="row" title={full(r.at_ms)}>
                {moment(r.at_ms)}
              </th>
              <td>
                <State value={r.result ?? "under_way"} />
              </td>
              <td>{span(r.took_ms ?? 0)}</td>
              <td class="end">{count(r.rows ?? 0)}</td>
              <td class="end">{bytes(r.bytes ?? 0)}</td>
              <td>
                <Text value={r.why || (r.version ? `version ${r.version}` : "–")} max={200} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Give({ name, names }: { name: string; names: string[] }) {
  const [source, setSource] = useState("");
  const [cron, setCron] = useState("");
  return (
    <div class="ask">
      <label class="short">
        <span>Its ids come from</span>
        <select value={source} onChange={(event) => setSource(event.currentTarget.value)}>
          <option value="">files and edits alone</option>
          {names.map((n) => (
            <option key={n} value={n}>
              {n}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span>When (empty: only when asked)</span>
        <input
          value={cron}
          placeholder="@hourly"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setCron(event.currentTarget.value)}
        />
      </label>
      <Act action={giveSource(name, source, cron)} />
    </div>
  );
}

async function set(list: string, source: string, cron: string, zone: string, note: string): Promise<string> {
  const body = { source, cron, time_zone: zone, note };
  await change("put", "/v1/lists/{list}/source", { path: { list }, body, reason: note });
  return `${list} comes from source ${source}.`;
}

async function unset(list: string, reason: string): Promise<string> {
  await change("delete", "/v1/lists/{list}/source", { path: { list }, reason });
  return `${list} has no source any more.`;
}

function giveSource(list: string, source: string, cron: string): Action {
  return {
    label: "Give it this source",
    title: `Let list ${list} follow source ${source}`,
    needs: "change",
    not: source === "" ? "Choose a source first." : undefined,
    consequence: "Each run replaces the list's ids, by the rules of an import.",
    command: (reason) => schedctl(["lists", "source", "set"], { every: cron, note: reason, reason }, [list, source]),
    run: (reason) => set(list, source, cron, "", reason),
    undo: { label: "Undo", run: () => unset(list, "undo") },
  };
}

function unsetSource(s: Source): Action {
  return {
    label: "Take it away",
    title: `Take the source of list ${s.list} away`,
    needs: "change",
    consequence: "Its ids stay, and no further run begins.",
    command: (reason) => schedctl(["lists", "source", "unset"], { reason }, [s.list]),
    run: (reason) => unset(s.list, reason),
    undo: { label: "Undo", run: () => set(s.list, s.source, s.cron ?? "", s.time_zone ?? "", "undo") },
  };
}

function runSource(s: Source): Action {
  return {
    label: "Run now",
    title: `Run the source of list ${s.list} now`,
    needs: "change",
    not: s.running ? "It runs already." : undefined,
    consequence: "The list's ids are replaced by those that the source has now, by the rules of an import.",
    command: (reason) => schedctl(["lists", "source", "run"], { reason }, [s.list]),
    run: async (reason) => {
      await change("post", "/v1/lists/{list}/source/run", { path: { list: s.list }, reason });
      return `The source of ${s.list} runs now.`;
    },
  };
}
