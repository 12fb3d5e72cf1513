import type { ComponentChildren } from "preact";
import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { holders, odd, type Server, servers } from "../lib/replicas.ts";
import { bytes, figure, plural, schedctl } from "../lib/text.ts";
import { Age, Command, Empty, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";

type Status = components["schemas"]["ReplicaStatus"];

/** The running replicas, and the servers of Redis that they see. */
export function Replicas() {
  const { data, at, error, again } = useFollow<components["schemas"]["ReplicaStatuses"]>("replicas", (signal) =>
    get("/v1/replicas/status", { signal }),
  );
  const list = data?.replicas ?? [];
  return (
    <div class="view">
      <header class="bar">
        <h1>Replicas</h1>
        {data && (
          <span class="faint">
            {plural(list.length, "replica")}, as of <Age at={at} />
          </span>
        )}
      </header>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && list.length === 0 && <Empty title="No replica has told of itself yet">Each does so every 2 s.</Empty>}
      {list.length > 0 && (
        <>
          <Differences list={list} />
          <ReplicaTable list={list} />
          <Checks list={list} />
          <Redis list={servers(list)} />
        </>
      )}
      <Command line={schedctl(["replicas", "ls"])} />
    </div>
  );
}

// A replica of an older release tells nothing of itself.
const told = (r: Status) => Boolean(r.build);
const buildOf = (r: Status) => r.build || "an older release";
const configOf = (r: Status) => String(r.config_version ?? 0);

function readiness(r: Status): string {
  if (!told(r)) return "unknown";
  if (!r.ready) return "not_ready";
  return (r.failed ?? []).length > 0 ? "ready_in_part" : "ready";
}

/** Says which replicas differ: during an upgrade they do for a while, later they should not. */
function Differences({ list }: { list: Status[] }) {
  const kinds: [string, [string, string[]][]][] = [
    ["Replicas run different builds", holders(list, buildOf)],
    ["Replicas follow different versions of the configuration", holders(list.filter(told), configOf)],
  ];
  return (
    <>
      {kinds
        .filter(([, by]) => by.length > 1)
        .map(([title, by]) => (
          <div class="notice" role="status" key={title}>
            <strong>{title}</strong>
            <ul class="items">
              {by.map(([value, names]) => (
                <li key={value}>
                  <Text value={value} max={80} />: <Text value={names.join(", ")} max={400} />
                </li>
              ))}
            </ul>
          </div>
        ))}
    </>
  );
}

function ReplicaTable({ list }: { list: Status[] }) {
  const oddBuilds = odd(list.map(buildOf));
  const oddConfigs = odd(list.filter(told).map(configOf));
  return (
    <Panel title="Running" wide>
      <Scroll label="Replicas, as a table">
        <table class="plain">
          <Heads
            names={["Replica", "Ready", "Build", "Started", "Processor", "Memory", "Jobs", "Configuration", "Told"]}
          />
          <tbody>
            {list.map((r) => (
              <tr key={r.name}>
                <th scope="row">
                  <Text value={r.name} max={80} />
                  {r.embedded && <small> embedded</small>}
                </th>
                <td>
                  <State value={readiness(r)} />
                </td>
                <td>
                  <Text value={buildOf(r)} max={80} /> {oddBuilds.has(buildOf(r)) && <State value="differs" />}
                </td>
                <td>
                  <Age at={r.started_ms} />
                </td>
                <td>{typeof r.cpu === "number" ? `${figure(r.cpu)} cores` : "–"}</td>
                <td>{r.memory_bytes ? bytes(r.memory_bytes) : "–"}</td>
                <td>{typeof r.arrivals === "number" ? `${figure(r.arrivals)}/s` : "–"}</td>
                <td>
                  {told(r) ? configOf(r) : "–"} {told(r) && oddConfigs.has(configOf(r)) && <State value="differs" />}
                </td>
                <td>
                  <Age at={r.reported_ms} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function Heads({ names }: { names: string[] }) {
  return (
    <thead>
      <tr>
        {names.map((name) => (
          <th scope="col" key={name}>
            {name}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Checks({ list }: { list: Status[] }) {
  const failed = list.flatMap((r) => (r.failed ?? []).map((check) => ({ replica: r.name, check })));
  if (failed.length === 0) return null;
  return (
    <Panel title="Checks of readiness that fail" wide>
      <ul class="items">
        {failed.map(({ replica, check }) => (
          <li key={`${replica} ${check.name}`}>
            <State value={check.ok ? "in_part" : "fails"} /> <Text value={`${replica}, ${check.name}`} max={120} />
            {check.detail && (
              <>
                : <Text value={check.detail} max={400} />
              </>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Redis({ list }: { list: Server[] }) {
  return (
    <Panel title="Redis" aside={<small>As the replicas see it</small>} wide>
      {list.length === 0 && <p class="faint">No replica has told of its servers yet. Each does so every 10 s.</p>}
      {list.length > 0 && (
        <Scroll label="Servers of Redis, as a table">
          <table class="plain">
            <Heads names={["Server", "Cells", "Answers", "Role", "Time a call", "Memory"]} />
            <tbody>
              {list.map((s) => (
                <tr key={s.key}>
                  <th scope="row">
                    <Text value={s.address || "a cluster"} max={120} />
                  </th>
                  <td>{s.cells.join(", ")}</td>
                  <td>
                    <Answers server={s} />
                  </td>
                  <td>
                    <Text value={s.roles.join(", ") || "–"} max={40} />{" "}
                    {(s.roles.length > 1 || s.runs > 1) && <State value="differs" />}
                  </td>
                  <td>{latency(s)}</td>
                  <td>
                    <Memory server={s} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}

function Answers({ server: s }: { server: Server }) {
  if (s.away.length === 0) return <State value="yes" />;
  return (
    <>
      <State value={s.away.length === s.seenBy.length ? "not_connected" : "in_part"} />{" "}
      <Text value={`not to ${s.away.join(", ")}`} max={200} />
    </>
  );
}

function latency({ latency }: Server): string {
  if (!latency) return "–";
  const [least, most] = latency;
  return least === most ? `${figure(most)} ms` : `${figure(least)} to ${figure(most)} ms`;
}

function Memory({ server: s }: { server: Server }): ComponentChildren {
  if (s.used === undefined) return "–";
  if (s.max === 0) return `${bytes(s.used)}, no limit`;
  return (
    <span class="load">
      <meter min={0} max={s.max} value={s.used} aria-label="Memory used" />
      {bytes(s.used)} of {bytes(s.max)}
    </span>
  );
}
