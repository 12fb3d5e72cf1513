import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { type Instance, removeInstance, resetInstance, setInstance } from "../lib/services.ts";
import { count, figure, plural, pretty, schedctl } from "../lib/text.ts";
import { span } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Service = components["schemas"]["RegistryService"];
type Detail = components["schemas"]["ServiceDetail"];
type Distribution = components["schemas"]["Distribution"];
type Whole = { service: Detail; page: components["schemas"]["InstancePage"] };

/** The services of the registry, one of them, or an instance. */
export function Services() {
  const [, name, id] = route.value.path;
  if (name && id) return <InstanceDetail key={`${name} ${id}`} service={name} id={id} />;
  return name ? <ServiceDetail key={name} name={name} /> : <ServiceList />;
}

function stateOf(s: Service): string {
  if (s.guard) return "guarded";
  if (s.instances === 0) return "empty";
  return s.late > 0 ? "silent" : "active";
}

const columns: Column<Service>[] = [
  {
    name: "Service",
    width: "minmax(104px, 1.4fr)",
    cell: (s) => <Text value={s.name} max={120} />,
    sort: (s) => s.name,
  },
  { name: "State", width: "104px", cell: (s) => <State value={stateOf(s)} />, sort: stateOf },
  { name: "Instances", width: "88px", cell: (s) => count(s.instances), sort: (s) => s.instances, end: true },
  { name: "Silent", width: "72px", cell: (s) => count(s.late), sort: (s) => s.late, end: true, wide: true },
  {
    name: "Removed after",
    width: "112px",
    cell: (s) => span(s.limit_ms),
    sort: (s) => s.limit_ms,
    end: true,
    wide: true,
  },
  {
    name: "Note",
    width: "minmax(96px, 2fr)",
    cell: (s) => <Text value={s.guard || s.why || ""} max={200} />,
    wide: true,
  },
];

function ServiceList() {
  const { data, at, error, again } = useFollow("services", (signal) =>
    get("/admin/registry/services", { query: { limit: 1000 }, signal }),
  );
  const name = route.value.query.get("name") ?? "";
  const rows = (data?.services ?? []).filter((s) => s.name.includes(name));
  return (
    <div class="view">
      <header class="bar">
        <h1>Services</h1>
        {data && (
          <span class="faint">
            of the registry, as of <Age at={at} />
          </span>
        )}
      </header>
      <Filter
        label="Filter of services"
        fields={[{ name: "name", label: "Name has" }]}
        values={{ name }}
        onChange={setQuery}
      />
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && rows.length === 0 && (
        <Empty title={name ? "No service has this in its name" : "No service is registered"}>
          {!name && "schedctl registry run SERVICE --port N -- COMMAND registers one."}
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Services"
          columns={columns}
          rows={rows}
          id={(s) => s.name}
          to={(s) => href(["services", s.name])}
          foot={data?.after ? "The first 1000; schedctl registry services has all" : plural(rows.length, "service")}
        />
      )}
      <Command line={schedctl(["registry", "services"])} />
    </div>
  );
}

function instanceState(i: Instance): string {
  if (!i.enabled) return "disabled";
  if (i.draining) return "draining";
  if (i.failing || i.unhealthy) return "failing";
  return i.delay_ms && i.delay_ms > 3 * i.interval_ms ? "silent" : "healthy";
}

const instanceColumns: Column<Instance>[] = [
  { name: "Instance", width: "minmax(112px, 1.4fr)", cell: (i) => <Text value={i.id} max={120} />, sort: (i) => i.id },
  { name: "State", width: "104px", cell: (i) => <State value={instanceState(i)} />, sort: instanceState },
  {
    name: "Address",
    width: "minmax(104px, 1fr)",
    cell: (i) => <Text value={`${i.host}:${i.port}`} max={120} />,
    sort: (i) => i.host,
    wide: true,
  },
  { name: "Weight", width: "72px", cell: (i) => figure(i.weight), sort: (i) => i.weight, end: true },
  {
    name: "Heartbeat",
    width: "88px",
    cell: (i) => <Age at={i.beat_ms} />,
    sort: (i) => i.delay_ms ?? 0,
    end: true,
    wide: true,
  },
  { name: "Set", width: "56px", cell: (i) => (i.override ? "yes" : ""), sort: (i) => (i.override ? 1 : 0), wide: true },
];

function ServiceDetail({ name }: { name: string }) {
  const { data, at, error, again } = useFollow<Whole>(`service:${name}`, async (signal) => {
    const sent = { path: { serviceName: name }, signal };
    const [service, page] = await Promise.all([
      get("/admin/registry/services/{serviceName}", sent),
      get("/admin/registry/services/{serviceName}/instances", sent),
    ]);
    return { service, page };
  });
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/services">Services</a>
      </nav>
      <header class="bar title">
        <h1>
          {data && <State value={stateOf(data.service)} />} <Text value={name} />
        </h1>
      </header>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && <ServiceParts name={name} whole={data} />}
      <Command line={schedctl(["registry", "show"], {}, [name])} />
    </div>
  );
}

function ServiceParts({ name, whole: { service: s, page } }: { name: string; whole: Whole }) {
  const found = s.statistics;
  const instances = page.instances ?? [];
  return (
    <>
      {s.guard && (
        <div class="notice" role="status">
          <strong>No silent instance is removed now</strong>
          <p>
            <Text value={s.guard} max={400} />. Many are silent at once, and the cause may be the network.
          </p>
        </div>
      )}
      {instances.length === 0 ? (
        <Empty title="It has no instance">{s.why}</Empty>
      ) : (
        <Table
          label="Instances"
          columns={instanceColumns}
          rows={instances}
          id={(i) => i.id}
          to={(i) => href(["services", name, i.id])}
          foot={
            page.cursor
              ? `The first ${count(instances.length)}; schedctl registry instances ${name} has all`
              : plural(instances.length, "instance")
          }
        />
      )}
      <div class="panels">
        <Panel title="Health">
          <Facts
            rows={[
              { name: "Gets traffic", value: plural(found.healthy, "instance") },
              { name: "Silent", value: count(found.late) },
              { name: "Failing", value: count(found.failing) },
              { name: "Draining", value: count(found.draining) },
              { name: "Disabled", value: count(found.disabled) },
              { name: "A silent one is removed after", value: span(s.limit_ms) },
              { name: "Cleaned up each", value: span(s.every_ms) },
            ]}
          />
        </Panel>
        <Panel title="Instances without traffic">
          {(found.abnormal ?? []).length === 0 && <p class="faint">All get traffic.</p>}
          <ul class="items">
            {(found.abnormal ?? []).slice(0, mostAbnormal).map((a) => (
              <li key={a.id}>
                <a href={href(["services", name, a.id])}>
                  <Text value={a.id} max={80} />
                </a>
                : <Text value={a.reason} max={200} />
              </li>
            ))}
          </ul>
          <Command line={schedctl(["registry", "health"], {}, [name])} />
        </Panel>
        <Spread service={s} />
      </div>
    </>
  );
}

const mostAbnormal = 100;

/** How figures are spread over the instances. Mean response times of their callers begin with `calls.`. */
function Spread({ service: { statistics: s } }: { service: Detail }) {
  const rows: [string, Distribution, (n: number) => string][] = [
    ["heartbeat delay", s.heartbeat_delay_ms, span],
    ["uptime", s.uptime_ms, span],
    ...Object.entries(s.metrics ?? {})
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([figureName, d]): [string, Distribution, (n: number) => string] => [figureName, d, figure]),
  ];
  return (
    <Panel title="Figures and their spread" aside={s.partial && <small>of the first 10 000 instances</small>} wide>
      <Scroll label="Figures and their spread, as a table">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Figure</th>
              {["Instances", "Least", "Mean", "Half below", "95 % below", "Most"].map((head) => (
                <th scope="col" class="end" key={head}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows
              .filter(([, d]) => d.count > 0)
              .map(([figureName, d, show]) => (
                <tr key={figureName}>
                  <th scope="row">
                    <Text value={figureName} max={80} />
                  </th>
                  <td class="end">{count(d.count)}</td>
                  {[d.min, d.mean, d.p50, d.p95, d.max].map((n, i) => (
                    <td class="end" key={i}>
                      {show(n)}
                    </td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function InstanceDetail({ service, id }: { service: string; id: string }) {
  const {
    data: i,
    at,
    error,
    again,
  } = useFollow<Instance>(`instance:${service}:${id}`, (signal) =>
    get("/admin/registry/services/{serviceName}/instances/{instanceId}", {
      path: { serviceName: service, instanceId: id },
      signal,
    }),
  );
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/services">Services</a>{" "}
        <a href={href(["services", service])}>
          <Text value={service} max={80} />
        </a>
      </nav>
      <header class="bar title">
        <h1>
          {i && <State value={instanceState(i)} />} <Text value={id} />
        </h1>
        {i && (
          <div class="acts">
            <Traffic instance={i} again={again} />
          </div>
        )}
      </header>
      {error && (i ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!i && !error && <Loading rows={6} />}
      {i && <InstanceParts instance={i} />}
      <Command line={schedctl(["registry", "show"], {}, [service, id])} />
    </div>
  );
}

function Traffic({ instance: i, again }: { instance: Instance; again: () => void }) {
  const [weight, setWeight] = useState("");
  const n = Number(weight);
  const bad = weight === "" ? "Enter a weight." : n > 0 && n <= 10_000 ? undefined : "More than 0, up to 10000.";
  return (
    <>
      <label class="weight">
        Weight
        <input
          inputMode="decimal"
          autocomplete="off"
          placeholder={figure(i.weight)}
          value={weight}
          onInput={(event) => setWeight(event.currentTarget.value)}
        />
      </label>
      <Act
        action={setInstance(
          i,
          { weight: n },
          {
            label: "Set weight",
            consequence: `Its weight becomes ${weight}, and is ${figure(i.weight)} now.`,
            not: bad,
          },
          again,
        )}
      />
      <Act
        action={
          i.enabled
            ? setInstance(i, { enabled: false }, { label: "Disable", consequence: "It gets no traffic." }, again)
            : setInstance(i, { enabled: true }, { label: "Enable", consequence: "It gets traffic again." }, again)
        }
      />
      <Act
        action={
          i.draining
            ? setInstance(
                i,
                { draining: false },
                { label: "Undrain", consequence: "It gets new traffic again." },
                again,
              )
            : setInstance(
                i,
                { draining: true },
                { label: "Drain", consequence: "It gets no new traffic; callers end what they have begun." },
                again,
              )
        }
      />
      <Act action={resetInstance(i, again)} />
      <Act action={removeInstance(i)} />
    </>
  );
}

function InstanceParts({ instance: i }: { instance: Instance }) {
  const set = i.override;
  return (
    <div class="panels">
      <Panel title="Instance">
        <Facts
          rows={[
            { name: "Address", value: <Text value={`${i.host}:${i.port}, ${i.protocol}`} /> },
            { name: "Weight", value: figure(i.weight) },
            { name: "Gets traffic", value: <State value={i.healthy ? "yes" : "no"} /> },
            i.failing && { name: "Its checks fail", value: <Text value={i.failing} max={400} /> },
            i.unhealthy && { name: "Says of itself", value: "not well" },
            { name: "Registered", value: <Age at={i.registered_ms} /> },
            i.beat_ms && { name: "Last heartbeat", value: <Age at={i.beat_ms} /> },
            { name: "Heartbeat each", value: i.persistent ? "none: an operator registered it" : span(i.interval_ms) },
            i.origin && { name: "Origin", value: i.origin },
            i.epoch && { name: "Epoch", value: <code>{i.epoch}</code> },
          ]}
        />
      </Panel>
      {set && (
        <Panel title="Set by an operator">
          <Facts
            rows={[
              set.weight !== undefined && { name: "Weight", value: figure(set.weight) },
              set.enabled !== undefined && { name: "Enabled", value: set.enabled ? "yes" : "no" },
              set.draining !== undefined && { name: "Draining", value: set.draining ? "yes" : "no" },
              { name: "By", value: <Text value={set.author} max={80} /> },
              set.note && { name: "Note", value: <Text value={set.note} /> },
              { name: "Since", value: <Age at={set.at_ms} /> },
              set.until_ms && { name: "Until", value: <Age at={set.until_ms} /> },
            ]}
          />
        </Panel>
      )}
      <Panel title="Metadata">
        <pre dir="auto">{pretty(i.metadata ?? {}, 20_000)}</pre>
      </Panel>
      <Panel title="Figures">
        <pre dir="auto">{pretty(i.metrics ?? {}, 20_000)}</pre>
        <Command line={schedctl(["registry", "metrics"], {}, [i.service, i.id])} />
      </Panel>
    </div>
  );
}
