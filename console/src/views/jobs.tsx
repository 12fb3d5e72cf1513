import { useCallback } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { hasEnded } from "../lib/actions.ts";
import { get } from "../lib/api.ts";
import { type Note, type Page, usePages } from "../lib/pages.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { narrow } from "../lib/screen.ts";
import { count, plural, schedctl, words } from "../lib/text.ts";
import { clock, moment, now, ranges, span } from "../lib/time.ts";
import { type Field, Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Failed, Heading, Loading, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { BulkButtons } from "./bulk.tsx";
import { JobDetail } from "./job.tsx";

type Job = components["schemas"]["JobStatus"];

/** Jobs by filter, or one job. */
export function Jobs() {
  const id = route.value.path[1];
  return id ? <JobDetail key={id} id={id} /> : <JobList />;
}

const states = [
  "scheduled",
  "waiting",
  "moving",
  "retry_wait",
  "running",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
  "expired",
  "dead",
] as const;

/** What jobs can be filtered by. */
export const jobFields: Field[] = [
  {
    name: "state",
    label: "State",
    options: [{ value: "", label: "any" }, ...states.map((s) => ({ value: s, label: words(s) }))],
  },
  { name: "service", label: "Service" },
  { name: "tenant", label: "Tenant" },
  { name: "node", label: "Node" },
  { name: "code", label: "Error code" },
  { name: "schedule", label: "Schedule" },
  { name: "class", label: "Class", placeholder: "id" },
  { name: "key", label: "Idempotency key" },
  {
    name: "since",
    label: "Ended within",
    options: ["", ...Object.keys(ranges), "72h"].map((value) => ({ value, label: value || "any time" })),
  },
];

/** The query of a filter. How long ago a job ended goes by the clock of Redis. */
function queryOf(values: Record<string, string>) {
  const { since = "", key, ...others } = values;
  const rest = key ? { ...others, idempotency_key: key } : others;
  const back = since === "72h" ? 259_200_000 : (ranges[since] ?? 0);
  return back > 0 ? { ...rest, ended_from_ms: Math.round(now() - back) } : rest;
}

/** How long a job has been in its state, or how long its last attempt took. */
function took(job: Job): string {
  if (!job.assigned_at_ms) return "–";
  const end = job.finished_at_ms || (hasEnded(job.state) ? 0 : clock.value);
  return end ? span(Math.max(0, end - job.assigned_at_ms)) : "–";
}

const columns: Column<Job>[] = [
  { name: "Job", width: "minmax(92px, 230px)", cell: (j) => <JobID id={j.job_id} /> },
  { name: "State", width: "112px", cell: (j) => <State value={j.state} /> },
  { name: "Service", width: "minmax(72px, 1fr)", cell: (j) => <Text value={j.service} max={80} /> },
  { name: "Tenant", width: "minmax(72px, 1fr)", cell: (j) => <Text value={j.tenant} max={80} />, wide: true },
  { name: "Node", width: "minmax(72px, 1fr)", cell: (j) => <Text value={j.node || "–"} max={80} />, wide: true },
  {
    name: "Error",
    width: "minmax(112px, 1.3fr)",
    cell: (j) => (j.error ? <Text value={j.error.code} max={80} /> : <span class="faint">–</span>),
    wide: true,
  },
  { name: "Attempt", width: "64px", cell: (j) => count(j.attempt), end: true, wide: true },
  { name: "Took", width: "96px", cell: took, end: true, wide: true },
  { name: "Submitted", width: "88px", cell: (j) => <Age at={j.submitted_at_ms} />, end: true, wide: true },
];

/** On a narrow screen only the end of an id, which differs most. */
function JobID({ id }: { id: string }) {
  return <code title={id}>{narrow.value ? `…${id.slice(-8)}` : id}</code>;
}

function JobList() {
  const values = Object.fromEntries(
    jobFields.map((f) => [f.name, route.value.query.get(f.name) ?? ""] as const).filter(([, v]) => v !== ""),
  );
  const { key: byKey, ...flags } = values;
  const key = JSON.stringify(values);
  const read = useCallback(
    async (cursor: string, signal: AbortSignal): Promise<Page<Job>> => {
      const page = await get("/v1/jobs", { query: { ...queryOf(JSON.parse(key)), cursor, limit: 200 }, signal });
      const note = { looked: page.looked_at, since: page.since_ms ?? 0 };
      return { rows: page.jobs ?? [], cursor: page.cursor, note };
    },
    [key],
  );
  const list = usePages(key, read);
  return (
    <div class="view">
      <Heading title="Jobs" list={list} />
      <Filter label="Filter of jobs" fields={jobFields} values={values} onChange={setQuery} />
      {!byKey && <BulkButtons key={key} filter={queryOf(values)} flags={values} />}
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={8} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title={key === "{}" ? "No jobs" : "No job fits this filter"}>
          {list.note ? `${lookedAt(list.note)}.` : "Ended jobs are kept as long as the retention says."}{" "}
          {list.more && (
            <button type="button" onClick={list.more}>
              Look further back
            </button>
          )}
        </Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Jobs"
          columns={columns}
          rows={list.rows}
          id={(j) => j.job_id}
          to={(j) => href(["jobs", j.job_id])}
          more={list.more}
          foot={<Foot list={list} />}
        />
      )}
      <Command line={schedctl(["list"], { ...flags, "idempotency-key": byKey })} />
    </div>
  );
}

function lookedAt(note: Note): string {
  const back = note.since ? `; all that fit and ended since ${moment(note.since)} are listed` : "";
  return `${plural(note.looked, "job")} looked at${back}`;
}

function Foot({ list }: { list: ReturnType<typeof usePages<Job>> }) {
  const looked = list.note && `. ${lookedAt(list.note)}`;
  if (list.busy) return <>Reading on…</>;
  return (
    <>
      {plural(list.rows.length, "job")}
      {looked}
      {list.more ? ", more below" : ""}
    </>
  );
}
