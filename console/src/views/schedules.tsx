import { useCallback, useRef } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { deleteSchedule, pauseSchedule, resumeSchedule, runSchedule } from "../lib/actions.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { type Page, usePages } from "../lib/pages.ts";
import { may } from "../lib/rights.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { count, plural, pretty, schedctl, words } from "../lib/text.ts";
import { full, inZone, moment, now, span } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { Filter } from "../parts/filter.tsx";
import {
  Age,
  Command,
  Empty,
  Facts,
  Failed,
  Heading,
  Loading,
  Panel,
  Scroll,
  Stale,
  State,
  Text,
} from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { comingRuns, Runs, ScheduleForm } from "./scheduleedit.tsx";

type Schedule = components["schemas"]["Schedule"];

/** Schedules, or one of them. */
export function Schedules() {
  const name = route.value.path[1];
  const tenant = route.value.query.get("tenant") ?? "";
  if (name) return <ScheduleDetail key={`${tenant} ${name}`} name={name} tenant={tenant} />;
  return route.value.query.get("new") ? <NewSchedule tenant={tenant} /> : <ScheduleList />;
}

function NewSchedule({ tenant }: { tenant: string }) {
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/schedules">Schedules</a>
      </nav>
      <h1>New schedule</h1>
      <ScheduleForm tenant={tenant} />
    </div>
  );
}

function stateOf(s: Schedule): string {
  if (s.paused) return "paused";
  return s.last_error ? "failing" : "active";
}

const columns: Column<Schedule>[] = [
  {
    name: "Schedule",
    width: "minmax(88px, 1.4fr)",
    cell: (s) => <Text value={s.name} max={80} />,
    sort: (s) => s.name,
  },
  { name: "State", width: "96px", cell: (s) => <State value={stateOf(s)} />, sort: stateOf },
  {
    name: "Next run",
    width: "minmax(88px, 152px)",
    cell: (s) => (s.next_run_ms ? <span title={full(s.next_run_ms)}>{moment(s.next_run_ms)}</span> : "–"),
    sort: (s) => s.next_run_ms ?? Number.MAX_VALUE,
  },
  {
    name: "In its zone",
    width: "152px",
    cell: (s) => (s.next_run_ms ? inZone(s.next_run_ms, s.time_zone) : "–"),
    wide: true,
  },
  { name: "Zone", width: "minmax(64px, 1fr)", cell: (s) => <Text value={s.time_zone} max={40} />, wide: true },
  { name: "When", width: "minmax(88px, 1.2fr)", cell: (s) => <Text value={s.cron} max={80} />, wide: true },
  {
    name: "Tenant",
    width: "minmax(64px, 1fr)",
    cell: (s) => <Text value={s.tenant} max={80} />,
    sort: (s) => s.tenant,
    wide: true,
  },
  {
    name: "Last run",
    width: "72px",
    cell: (s) => <Age at={s.last_run_ms} />,
    sort: (s) => s.last_run_ms ?? 0,
    end: true,
    wide: true,
  },
  {
    name: "Last job",
    width: "80px",
    cell: (s) => (s.last_job_id ? <JobLink id={s.last_job_id} short /> : "–"),
    wide: true,
  },
  { name: "Missed", width: "56px", cell: (s) => count(s.missed), sort: (s) => s.missed, end: true, wide: true },
  { name: "Failed", width: "56px", cell: (s) => count(s.failed), sort: (s) => s.failed, end: true, wide: true },
];

function JobLink({ id, short }: { id: string; short?: boolean }) {
  return (
    <a href={href(["jobs", id])} title={id}>
      <code>{short ? `…${id.slice(-8)}` : id}</code>
    </a>
  );
}

function ScheduleList() {
  const tenant = route.value.query.get("tenant") ?? "";
  const read = useCallback(
    async (cursor: string, signal: AbortSignal): Promise<Page<Schedule>> => {
      const page = await get("/v1/schedules", { query: { tenant, cursor, limit: 100 }, signal });
      return { rows: page.schedules ?? [], cursor: page.cursor };
    },
    [tenant],
  );
  const list = usePages(tenant, read);
  return (
    <div class="view">
      <Heading title="Schedules" list={list} />
      {may("changeJob") && (
        <p>
          <a class="button" href={href(["schedules"], { new: "1", tenant })}>
            New schedule
          </a>
        </p>
      )}
      <Filter
        label="Filter of schedules"
        fields={[{ name: "tenant", label: "Tenant" }]}
        values={{ tenant }}
        onChange={setQuery}
      />
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={6} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title={tenant ? "This tenant has no schedule" : "There is no schedule"}>
          New schedule makes one, and so does schedctl schedules apply -f FILE.
        </Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Schedules"
          columns={columns}
          rows={list.rows}
          id={(s) => `${s.tenant} ${s.name}`}
          to={(s) => href(["schedules", s.name], { tenant: s.tenant })}
          more={list.more}
          foot={list.busy ? "Reading on…" : plural(list.rows.length, "schedule")}
        />
      )}
      <Command line={schedctl(["schedules", "list"], { tenant })} />
    </div>
  );
}

function ScheduleDetail({ name, tenant }: { name: string; tenant: string }) {
  const { data, at, error, again } = useFollow<Schedule>(`schedule:${tenant}:${name}`, (signal) =>
    get("/v1/schedules/{name}", { path: { name }, query: { tenant, runs: comingRuns }, signal }),
  );
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/schedules">Schedules</a>
      </nav>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && <Detail schedule={data} again={again} />}
    </div>
  );
}

function Detail({ schedule: s, again }: { schedule: Schedule; again: () => void }) {
  const editing = route.value.query.get("edit") === "1";
  return (
    <>
      <header class="bar title">
        <h1>
          <State value={stateOf(s)} /> <Text value={s.name} />
        </h1>
        <div class="acts">
          <a class="button" href={href(["schedules", s.name], { tenant: s.tenant, edit: editing ? "" : "1" })}>
            {editing ? "Leave the edit" : "Edit"}
          </a>
          <Act action={runSchedule(s)} />
          <Act action={s.paused ? resumeSchedule(s, again) : pauseSchedule(s, again)} />
          <Act action={deleteSchedule(s)} />
        </div>
      </header>
      {s.last_error && (
        <div class="notice failed">
          <strong>The last run could not be made</strong>
          <p>
            <Age at={s.last_error_at_ms} />: <Text value={s.last_error} max={600} />
          </p>
        </div>
      )}
      {editing && <ScheduleForm schedule={s} tenant={s.tenant} />}
      <div class="panels">
        <Coming schedule={s} />
        <History schedule={s} />
        <Panel title="Schedule">
          <Facts
            rows={[
              { name: "When", value: <code>{s.cron}</code> },
              { name: "Time zone", value: <Text value={s.time_zone} max={80} /> },
              { name: "Tenant", value: <Text value={s.tenant} max={80} /> },
              { name: "Missed runs", value: missed[s.on_missed] ?? words(s.on_missed) },
              { name: "Counts as missed after", value: span(s.grace_ms) },
              { name: "Version", value: count(s.version) },
              { name: "Made", value: <Age at={s.created_at_ms} /> },
              { name: "Changed", value: <Age at={s.updated_at_ms} /> },
            ]}
          />
        </Panel>
        <Panel title="Until now">
          <Facts
            rows={[
              { name: "Jobs made", value: count(s.runs) },
              { name: "Runs missed", value: count(s.missed) },
              { name: "Last missed", value: s.last_missed_at_ms ? <Age at={s.last_missed_at_ms} /> : "never" },
              { name: "Runs failed", value: count(s.failed) },
              { name: "Last run", value: <Age at={s.last_run_ms} /> },
              { name: "Last job", value: s.last_job_id ? <JobLink id={s.last_job_id} /> : "none yet" },
            ]}
          />
          <ul class="items">
            {["running", "dead", "failed"].map((state) => (
              <li key={state}>
                <a href={href(["jobs"], { state, schedule: s.name, tenant: s.tenant })}>Its jobs that are {state}</a>
              </li>
            ))}
          </ul>
        </Panel>
        <Panel title="Its job">
          <pre dir="auto">{pretty(s.job, 20_000)}</pre>
        </Panel>
      </div>
      <Command line={schedctl(["schedules", "get"], { tenant: s.tenant }, [s.name])} />
    </>
  );
}

const readEvery = 15_000;

/** The jobs that the schedule made, the newest first, as far as their records are kept. */
function History({ schedule: s }: { schedule: Schedule }) {
  const read = useCallback(
    async (cursor: string, signal: AbortSignal): Promise<Page<components["schemas"]["JobStatus"]>> => {
      const query = { schedule: s.name, tenant: s.tenant, cursor, limit: 20 };
      const page = await get("/v1/jobs", { query, signal });
      return {
        rows: page.jobs ?? [],
        cursor: page.cursor,
        note: { looked: page.looked_at ?? 0, since: page.since_ms ?? 0 },
      };
    },
    [s.name, s.tenant],
  );
  // A run that is made shows without a reload. One that runs each second is not read each second.
  const made = `${s.runs} ${s.last_job_id}`;
  const shown = useRef({ made, at: 0 });
  if (made !== shown.current.made && now() - shown.current.at > readEvery) shown.current = { made, at: now() };
  const list = usePages(shown.current.made, read);
  return (
    <Panel title="History" aside={<small>{list.note ? `${plural(list.note.looked, "record")} looked at` : ""}</small>}>
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && !list.busy && <p class="faint">No job of it is kept.</p>}
      {list.rows.length > 0 && (
        <Scroll label="Jobs that it made" short>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">State</th>
                <th scope="col">Made</th>
                <th scope="col">Error</th>
              </tr>
            </thead>
            <tbody>
              {list.rows.map((j) => (
                <tr key={j.job_id}>
                  <th scope="row">
                    <JobLink id={j.job_id} />
                  </th>
                  <td>
                    <State value={j.state} />
                  </td>
                  <td>
                    <Age at={j.submitted_at_ms} />
                  </td>
                  <td>
                    <Text value={j.error?.code ?? "–"} max={80} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {list.more && (
        <button type="button" onClick={list.more}>
          Older ones
        </button>
      )}
    </Panel>
  );
}

const missed: Record<string, string> = {
  skip: "are left out",
  latest: "the last of them is made, once",
  all: "the last 100 are made",
};

function Coming({ schedule: s }: { schedule: Schedule }) {
  const runs = s.next_runs_ms ?? [];
  return (
    <Panel title="Next runs" aside={s.paused && <small>It is paused; these there would be</small>}>
      <Runs runs={runs} zone={s.time_zone} />
      <Command line={schedctl(["schedules", "next"], { tenant: s.tenant, count: comingRuns }, [s.name])} />
    </Panel>
  );
}
