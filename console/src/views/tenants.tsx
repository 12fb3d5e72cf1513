import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route } from "../lib/route.ts";
import { count, figure, plural, schedctl, words } from "../lib/text.ts";
import { clock, span } from "../lib/time.ts";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Tenant = components["schemas"]["TenantStatus"];
type List = components["schemas"]["TenantList"];

/** Tenants with their limits and what they use of them, or one of them. */
export function Tenants() {
  const name = route.value.path[1];
  const { data, at, error, again } = useFollow<List>(name ? `tenant:${name}` : "tenants", (signal) =>
    get("/v1/tenants", { query: { tenant: name ?? "" }, signal }),
  );
  if (!data) return error ? <Failed error={error} again={again} /> : <Loading rows={6} />;
  const cells = data.unreachable ?? [];
  return (
    <div class="view">
      {error && <Stale since={at} why={error.message} />}
      {cells.length > 0 && (
        <Stale since={at} why={`Cells ${cells.join(", ")} do not answer; their jobs are not counted.`} />
      )}
      {name ? <Detail name={name} tenant={data.tenants?.[0]} /> : <TenantTable list={data} at={at} />}
    </div>
  );
}

/** A count, with its limit if it has one. Without a limit jobs are not counted. */
function used(n: number | undefined, limit: number | undefined): string {
  if (n === undefined) return "–";
  return limit ? `${count(n)} of ${count(limit)}` : count(n);
}

function rate(t: Tenant): string {
  const limit = t.limits.submit_rate;
  return limit ? `${figure(t.rate)} of ${figure(limit)}` : figure(t.rate);
}

function Limits({ tenant: t }: { tenant: Tenant }) {
  const by = t.held_back_by ?? [];
  if (by.length === 0) return <span class="faint">nothing</span>;
  return (
    <>
      {by.map((limit) => (
        <State key={limit} value={limit} />
      ))}
    </>
  );
}

const columns: Column<Tenant>[] = [
  { name: "Tenant", width: "minmax(96px, 1.4fr)", cell: (t) => <Text value={t.name} max={80} />, sort: (t) => t.name },
  {
    name: "Held back by",
    width: "minmax(112px, 1.6fr)",
    cell: (t) => <Limits tenant={t} />,
    sort: (t) => `${t.held_back_by?.length ? 0 : 1}${(t.held_back_by ?? []).join()}`,
  },
  {
    name: "Running",
    width: "minmax(80px, 1fr)",
    cell: (t) => used(t.running, t.limits.max_running),
    sort: (t) => t.running ?? -1,
    end: true,
  },
  {
    name: "Held",
    width: "72px",
    cell: (t) => used(t.held, undefined),
    sort: (t) => t.held ?? -1,
    end: true,
    wide: true,
  },
  {
    name: "Oldest held",
    width: "96px",
    cell: (t) => (t.oldest_held_ms ? span(Math.max(0, clock.value - t.oldest_held_ms)) : "–"),
    sort: (t) => -(t.oldest_held_ms ?? 0),
    end: true,
    wide: true,
  },
  {
    name: "Waiting",
    width: "minmax(80px, 1fr)",
    cell: (t) => used(t.waiting, t.limits.max_waiting),
    sort: (t) => t.waiting ?? -1,
    end: true,
    wide: true,
  },
  { name: "Jobs/s", width: "minmax(80px, 1fr)", cell: rate, sort: (t) => t.rate, end: true, wide: true },
  {
    name: "Refused/s",
    width: "80px",
    cell: (t) => figure(t.refused_rate),
    sort: (t) => t.refused_rate,
    end: true,
    wide: true,
  },
];

function TenantTable({ list, at }: { list: List; at: number }) {
  const rows = list.tenants ?? [];
  return (
    <>
      <header class="bar">
        <h1>Tenants</h1>
        <span class="faint">
          as of <Age at={at} />
        </span>
      </header>
      {rows.length === 0 && (
        <Empty title="No tenant submits jobs">
          Tenants of the configuration are listed here, and the busiest others.
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Tenants"
          columns={columns}
          rows={rows}
          id={(t) => t.name}
          to={(t) => href(["tenants", t.name])}
          foot={`${plural(rows.length, "tenant")}${list.left_out ? `; ${count(list.left_out)} more in the configuration` : ""}. Only limits count jobs: – is not counted.`}
        />
      )}
      <Command line={schedctl(["tenants", "ls"])} />
    </>
  );
}

const meanings: Record<string, string> = {
  max_running: "As many of its jobs run as may. Further ones wait although slots may be free.",
  max_waiting: "As many of its jobs wait as may. Further ones are refused as overloaded.",
  submit_rate: "It submits as fast as it may. Further jobs are refused as rate limited.",
};

function Detail({ name, tenant: t }: { name: string; tenant: Tenant | undefined }) {
  return (
    <>
      <nav class="crumbs" aria-label="Way back">
        <a href="#/tenants">Tenants</a>
      </nav>
      <header class="bar title">
        <h1>
          <Text value={name} />
        </h1>
      </header>
      {t && (
        <div class="panels">
          <Panel title="Now">
            <Facts
              rows={[
                { name: "Held back by", value: <Limits tenant={t} /> },
                ...(t.held_back_by ?? []).map((by) => ({ name: words(by), value: meanings[by] ?? "" })),
                { name: "Running", value: used(t.running, t.limits.max_running) },
                { name: "Held", value: used(t.held, undefined) },
                { name: "Oldest held", value: <Age at={t.oldest_held_ms} /> },
                { name: "Waiting", value: used(t.waiting, t.limits.max_waiting) },
                { name: "Jobs a second", value: rate(t) },
                { name: "Refused a second", value: figure(t.refused_rate) },
              ]}
            />
            <ul class="items">
              {["running", "waiting", "dead", "failed"].map((state) => (
                <li key={state}>
                  <a href={href(["jobs"], { state, tenant: name })}>Its jobs that are {state}</a>
                </li>
              ))}
              <li>
                <a href={href(["schedules"], { tenant: name })}>Its schedules</a>
              </li>
            </ul>
          </Panel>
          <Panel title="Limits" aside={<small>{t.configured ? "its own" : "of tenant_defaults"}</small>}>
            <Facts
              rows={[
                { name: "Weight", value: count(t.limits.weight) },
                { name: "max running", value: limit(t.limits.max_running) },
                { name: "max waiting", value: limit(t.limits.max_waiting) },
                { name: "submit rate", value: t.limits.submit_rate ? `${figure(t.limits.submit_rate)}/s` : "none" },
                { name: "submit burst", value: limit(t.limits.submit_burst) },
                { name: "max priority", value: count(t.limits.max_priority) },
                { name: "max schedules", value: count(t.limits.max_schedules || 100) },
              ]}
            />
            <p class="faint">They are in the configuration file of the replicas, below tenants.</p>
          </Panel>
        </div>
      )}
      <Command line={schedctl(["tenants", "ls"], { tenant: name })} />
    </>
  );
}

function limit(n: number | undefined): string {
  return n ? count(n) : "none";
}
