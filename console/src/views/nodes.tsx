import { useMemo } from "preact/hooks";
import { drainNode, removeNode, undrainNode } from "../lib/actions.ts";
import { get } from "../lib/api.ts";
import {
  ageText,
  calm,
  type Node,
  places,
  type Row,
  roster,
  rows,
  seenAt,
  share,
  trouble,
  useFleet,
} from "../lib/fleet.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { bytes, count, plural, pretty, schedctl } from "../lib/text.ts";
import { now } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { type Field, Filter } from "../parts/filter.tsx";
import { Age, Command, Copy, Empty, Facts, Failed, Loading, Panel, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

/** Nodes by filter, or one node. */
export function Nodes() {
  const id = route.value.path[1];
  return id ? <NodeDetail key={id} id={id} /> : <NodeList />;
}

/** A silent node gets no jobs, whatever its agent said last. */
function statusOf(n: Node): string {
  return n.silent ? "silent" : n.status;
}

function drained(n: Node): boolean {
  return (n.status as string) === "drained";
}

const fields: Field[] = [
  { name: "name", label: "Name", placeholder: "a part of it" },
  {
    name: "status",
    label: "Status",
    options: ["", "online", "draining", "drained", "silent"].map((value) => ({ value, label: value || "any" })),
  },
  { name: "pool", label: "Pool" },
  { name: "service", label: "Service" },
];

/** The columns of nodes, also of the fleet's table. */
export const columns: Column<Row>[] = [
  {
    name: "Node",
    width: "minmax(96px, 1.4fr)",
    cell: (r) => <Text value={r.name} max={80} />,
    sort: (r) => r.name,
  },
  { name: "Status", width: "104px", cell: (r) => <State value={r.status} />, sort: (r) => r.status },
  {
    name: "Slots used",
    width: "minmax(88px, 140px)",
    cell: (r) => <Load used={r.used} of={r.max} />,
    sort: (r) => r.used / Math.max(1, r.max),
  },
  {
    name: "Services",
    width: "minmax(96px, 2fr)",
    cell: (r) => <Text value={r.services.join(", ") || "–"} max={160} />,
    sort: (r) => r.services.join(),
    wide: true,
  },
  {
    name: "Pools",
    width: "minmax(72px, 1fr)",
    cell: (r) => <Text value={r.pools.join(", ") || "–"} max={120} />,
    sort: (r) => r.pools.join(),
    wide: true,
  },
  {
    name: "CPU",
    width: "56px",
    cell: (r) => percent("cpu", r),
    sort: (r) => share("cpu", r.place) ?? -1,
    end: true,
    wide: true,
  },
  {
    name: "Memory",
    width: "72px",
    cell: (r) => percent("memory", r),
    sort: (r) => share("memory", r.place) ?? -1,
    end: true,
    wide: true,
  },
  {
    name: "Heartbeat",
    width: "104px",
    cell: (r) => ageText(r.age, places.unit),
    sort: (r) => r.age,
    end: true,
    wide: true,
  },
];

/** A share of a node, in percent. */
export function percent(kind: "cpu" | "memory" | "gpu", r: Row): string {
  const part = share(kind, r.place);
  return part === undefined ? "–" : `${part} %`;
}

function Load({ used, of }: { used: number; of: number }) {
  return (
    <span class="load">
      <meter min={0} max={Math.max(1, of)} value={used} aria-label="Slots used" />
      {count(used)} of {count(of)}
    </span>
  );
}

function NodeList() {
  useFleet();
  const query = route.value.query;
  const values = Object.fromEntries(fields.map((f) => [f.name, query.get(f.name) ?? ""] as const));
  const { name = "", status = "", pool = "", service = "" } = values;
  const all = useMemo(rows, [roster.value]);
  const shown = useMemo(
    () =>
      all.filter(
        (r) =>
          r.name.toLowerCase().includes(name.toLowerCase()) &&
          (!status || r.status === status) &&
          (!pool || r.pools.includes(pool)) &&
          (!service || r.services.includes(service)),
      ),
    [all, calm.value, name, status, pool, service],
  );
  const flags = { status: status === "silent" ? "" : status, pool, service };
  const known = seenAt.value > 0;
  return (
    <div class="view">
      <header class="bar">
        <h1>Nodes</h1>
      </header>
      <Filter label="Filter of nodes" fields={fields} values={values} onChange={setQuery} />
      {trouble.value && <Failed error={trouble.value} />}
      {places.staleMS > 0 && (
        <Stale since={now() - places.staleMS} why="Redis does not answer, so this is what the replica knew last." />
      )}
      {!known && !trouble.value && <Loading rows={8} />}
      {known && shown.length === 0 && (
        <Empty title={all.length === 0 ? "No node has registered" : "No node fits this filter"}>
          {all.length === 0 ? "Start an agent: nodeagent -c agent.yaml." : `${plural(all.length, "node")} in all.`}
        </Empty>
      )}
      {shown.length > 0 && (
        <Table
          label="Nodes"
          columns={columns}
          rows={shown}
          id={(r) => r.name}
          to={(r) => href(["nodes", r.name])}
          foot={`${count(shown.length)} of ${plural(all.length, "node")}`}
        />
      )}
      <Command line={schedctl(["nodes"], flags)} />
    </div>
  );
}

function NodeDetail({ id }: { id: string }) {
  const {
    data: node,
    error,
    again,
  } = useFollow<Node>(`node:${id}`, (signal) => get("/v1/nodes/{id}", { path: { id }, signal }));
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/nodes">Nodes</a>
      </nav>
      {error && <Failed error={error} again={again} />}
      {!node && !error && <Loading rows={6} />}
      {node && <Detail node={node} />}
    </div>
  );
}

function Detail({ node: n }: { node: Node }) {
  const status = statusOf(n);
  return (
    <>
      <header class="bar title">
        <div>
          <h1>
            <State value={status} /> <Text value={n.node_id} />
          </h1>
          <Copy text={n.node_id} what="the node's name" />
        </div>
        <div class="acts">
          {drained(n) ? (
            <Act action={undrainNode(n.node_id)} />
          ) : (
            <Act action={drainNode(n.node_id, n.used, n.status)} />
          )}
          <Act action={removeNode(n.node_id, n.epoch, Boolean(n.silent) || n.epoch === "import")} />
        </div>
      </header>
      {n.degraded && (
        <Stale since={now() - (n.age_ms ?? 0)} why="Redis does not answer, so this is what the replica knew last." />
      )}
      <div class="panels">
        <Panel title="Node">
          <Facts
            rows={[
              { name: "Slots used", value: <Load used={n.used} of={n.max_concurrency} /> },
              { name: "Heartbeat", value: <Age at={n.last_heartbeat_ms} /> },
              { name: "Registered", value: <Age at={n.registered_at_ms} /> },
              { name: "Agent", value: <code>{n.epoch}</code> },
              n.connection && {
                name: "Comes in by",
                value: (
                  <>
                    <Text value={n.connection.replica} max={80} />, token <Text value={n.connection.token} max={80} />
                  </>
                ),
              },
              n.connection?.version && { name: "Agent's release", value: <Text value={n.connection.version} /> },
              { name: "Understands", value: <Text value={(n.capabilities.asr_languages ?? []).join(", ") || "–"} /> },
              { name: "Produces", value: <Text value={(n.capabilities.tts_languages ?? []).join(", ") || "–"} /> },
            ]}
          />
        </Panel>
        <Services node={n} />
        <Membership node={n} />
        <Machine node={n} />
        <NodeJobs id={n.node_id} />
      </div>
      <Command line={schedctl(["nodes"], {}, [n.node_id])} />
    </>
  );
}

/** Ways to the jobs of a node. */
function NodeJobs({ id }: { id: string }) {
  return (
    <Panel title="Jobs">
      <ul class="items">
        <li>
          <a href={href(["jobs"], { state: "running", node: id })}>What runs on it</a>
        </li>
        {["dead", "failed"].map((state) => (
          <li key={state}>
            <a href={href(["jobs"], { state, node: id })}>What ended {state} on it</a>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Services({ node: n }: { node: Node }) {
  const features = Object.entries(n.features_supported ?? {});
  return (
    <Panel title="Services">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Service</th>
            <th scope="col">Version</th>
          </tr>
        </thead>
        <tbody>
          {(n.installed_services ?? []).map((s) => (
            <tr key={s.name}>
              <th scope="row">
                <Text value={s.name} max={80} />
              </th>
              <td>
                <Text value={s.version || "–"} max={80} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {features.length > 0 && (
        <p>
          Features: <Text value={features.map(([name, on]) => (on ? name : `not ${name}`)).join(", ")} max={500} />
        </p>
      )}
    </Panel>
  );
}

function Membership({ node: n }: { node: Node }) {
  const pools = n.member_of ?? [];
  const own = new Set(n.pool_ids ?? []);
  const labels = Object.entries(n.labels ?? {});
  return (
    <Panel title="Pools and labels">
      {pools.length === 0 && <p class="faint">It is in no pool.</p>}
      <ul class="items">
        {pools.map((pool) => (
          <li key={pool}>
            <Text value={pool} max={80} />{" "}
            <small>{own.has(pool) ? "its profile names it" : "the pool lists it, or its rule holds"}</small>
          </li>
        ))}
      </ul>
      {labels.length > 0 && (
        <Facts rows={labels.map(([name, value]) => ({ name, value: <Text value={value} max={200} /> }))} />
      )}
    </Panel>
  );
}

function Machine({ node: n }: { node: Node }) {
  const r = (n.resources ?? {}) as { at_ms?: number };
  if (!r.at_ms) return null;
  const metrics = (n.resources as { metrics?: Record<string, Record<string, unknown>> }).metrics ?? {};
  const rows = Object.entries(metrics).flatMap(([group, figures]) =>
    Object.entries(figures)
      .filter(([, value]) => typeof value === "number")
      .map(([name, value]) => ({
        name: `${group} ${name.replaceAll("_", " ")}`,
        value: measure(name, value as number),
      })),
  );
  return (
    <Panel title="Machine" aside={<small>{<Age at={r.at_ms} />}</small>}>
      {rows.length > 0 ? <Facts rows={rows} /> : <pre dir="auto">{pretty(n.resources, 4000)}</pre>}
    </Panel>
  );
}

function measure(name: string, value: number): string {
  if (name.endsWith("bytes")) return bytes(value);
  if (name.endsWith("usage")) return `${Math.round(value * 100)} %`;
  return String(value);
}
