import { useRef } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { type Pausable, pause, resume } from "../lib/actions.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { count, plural, pretty, schedctl, words } from "../lib/text.ts";
import { clock, span } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type List = components["schemas"]["QueueList"];
type Queue = components["schemas"]["QueueStatus"];

/** What waits, by class: jobs that fit the same nodes. */
export function Queues() {
  const id = route.value.path[1];
  const { data, at, error, again } = useFollow<List>("queues", (signal) => get("/v1/queues", { signal }));
  const trend = useTrend(data?.queues ?? []);
  if (!data) return error ? <Failed error={error} again={again} /> : <Loading rows={6} />;
  const queue = id ? (data.queues ?? []).find((q) => q.class === id) : undefined;
  return (
    <div class="view">
      {error && <Stale since={at} why={error.message} />}
      {(data.unreachable ?? []).length > 0 && (
        <Stale
          since={at}
          why={`Cells ${(data.unreachable ?? []).join(", ")} do not answer; their jobs are not counted.`}
        />
      )}
      {id ? <Detail id={id} queue={queue} list={data} /> : <QueueTable list={data} trend={trend} at={at} />}
    </div>
  );
}

const trendOver = 60_000;

/** How the depth of each class changed in the last minute, or since the view was opened. */
function useTrend(queues: Queue[]): (q: Queue) => number {
  const seen = useRef(new Map<string, { at: number; waiting: number }[]>());
  const at = clock.value;
  const next = new Map<string, { at: number; waiting: number }[]>();
  for (const q of queues) {
    const points = (seen.current.get(q.class) ?? []).filter((p) => at - p.at <= trendOver);
    if (points.at(-1)?.at !== at) points.push({ at, waiting: q.waiting });
    next.set(q.class, points);
  }
  seen.current = next;
  return (q) => q.waiting - (next.get(q.class)?.[0]?.waiting ?? q.waiting);
}

function holds(q: Queue): string {
  if (q.unreadable) return "another release wrote it";
  if (q.paused_by) return `${q.paused_by} is paused`;
  if (q.paused) return "its pools are paused";
  if (q.fits === 0) return "no node fits";
  if (q.paused_nodes > 0) return `${plural(q.paused_nodes, "fitting node")} paused`;
  return "waits for a slot";
}

function columnsOf(trend: (q: Queue) => number): Column<Queue>[] {
  return [
    { name: "Class", width: "minmax(92px, 168px)", cell: (q) => <code>{q.class}</code>, sort: (q) => q.class },
    {
      name: "Service",
      width: "minmax(72px, 1fr)",
      cell: (q) => <Text value={q.service} max={80} />,
      sort: (q) => q.service,
    },
    { name: "Waiting", width: "72px", cell: (q) => count(q.waiting), sort: (q) => q.waiting, end: true },
    {
      name: "In a minute",
      width: "96px",
      cell: (q) => signed(trend(q)),
      sort: trend,
      end: true,
      wide: true,
    },
    {
      name: "Oldest",
      width: "96px",
      cell: (q) => (q.oldest_ms ? span(Math.max(0, clock.value - q.oldest_ms)) : "–"),
      sort: (q) => -q.oldest_ms,
      end: true,
      wide: true,
    },
    { name: "Nodes that fit", width: "112px", cell: (q) => count(q.fits), sort: (q) => q.fits, end: true, wide: true },
    {
      name: "What holds it back",
      width: "minmax(96px, 2fr)",
      cell: (q) => (
        <>
          {q.paused ? <State value="paused" /> : q.fits === 0 && <State value="unserved" />} <Text value={holds(q)} />
        </>
      ),
      sort: holds,
      wide: true,
    },
  ];
}

function signed(n: number): string {
  return n > 0 ? `+${count(n)}` : n < 0 ? `−${count(-n)}` : "0";
}

function QueueTable({ list, trend, at }: { list: List; trend: (q: Queue) => number; at: number }) {
  const service = route.value.query.get("service") ?? "";
  const rows = (list.queues ?? []).filter((q) => !service || q.service === service);
  const total = rows.reduce((sum, q) => sum + q.waiting, 0);
  return (
    <>
      <header class="bar">
        <h1>Queues</h1>
        <span class="faint">
          {plural(total, "job")} wait{total === 1 ? "s" : ""}, as of <Age at={at} />
        </span>
      </header>
      <PausedNow list={list} />
      <Filter
        label="Filter of queues"
        fields={[{ name: "service", label: "Service" }]}
        values={{ service }}
        onChange={setQuery}
      />
      {service && !(list.all_paused?.services ?? []).includes(service) && (
        <PauseService key={service} service={service} waiting={total} />
      )}
      {rows.length === 0 ? (
        <Empty title={service ? "No job of this service waits" : "Nothing waits"}>
          {service ? "" : "Every job that came has a slot, or is held by a limit below."}
        </Empty>
      ) : (
        <Table
          label="Queues"
          columns={columnsOf(trend)}
          rows={rows}
          id={(q) => q.class}
          to={(q) => href(["queues", q.class])}
          foot={plural(rows.length, "class", "classes")}
        />
      )}
      <Held list={list} />
      <Command line={schedctl(["queues"])} />
    </>
  );
}

/** Pauses the service of the filter. The name of one that no node and no job has must be typed again. */
function PauseService({ service, waiting }: { service: string; waiting: number }) {
  const { data } = useFollow("", (signal) => get("/v1/nodes", { query: { service: [service], limit: 1 }, signal }));
  const action = named(pause("service", service, waiting), "Pause service");
  if (waiting > 0 || data?.nodes?.length) {
    return (
      <p>
        <Act action={action} />
      </p>
    );
  }
  const unknown = "No node and no waiting job has a service of this name.";
  return (
    <div class="bar">
      {data && <span>{unknown}</span>}
      <Act
        action={{
          ...action,
          typed: service,
          not: data ? undefined : "It is not known yet whether a node has it.",
          consequence: `${unknown} ${action.consequence}`,
        }}
      />
    </div>
  );
}

function PausedNow({ list }: { list: List }) {
  const p = list.all_paused ?? {};
  const all: [Pausable, string][] = [
    ...(p.pools ?? []).map((name): [Pausable, string] => ["pool", name]),
    ...(p.services ?? []).map((name): [Pausable, string] => ["service", name]),
    ...(p.classes ?? []).map((name): [Pausable, string] => ["class", name]),
  ];
  if (all.length === 0) return null;
  return (
    <Panel title="Paused">
      <ul class="mends">
        {all.map(([kind, name]) => (
          <li key={`${kind} ${name}`}>
            <span>
              {kind} <Text value={name} max={80} />
            </span>
            <Act action={resume(kind, name)} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Held({ list }: { list: List }) {
  const held = list.held ?? [];
  if (held.length === 0) return null;
  return (
    <Panel title="Held by limits" aside={<small>These jobs are in no queue meanwhile</small>}>
      <Scroll label="Held by limits, as a table">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Tenant</th>
              <th scope="col">Limit</th>
              <th scope="col" class="end">
                Running
              </th>
              <th scope="col" class="end">
                Held
              </th>
              <th scope="col">Next</th>
            </tr>
          </thead>
          <tbody>
            {held.slice(0, shownHeld).map((h) => (
              <tr key={`${h.by} ${h.first}`}>
                <th scope="row">
                  <Text value={h.tenant} max={80} />
                </th>
                <td>{words(h.by)}</td>
                <td class="end">
                  {count(h.running)} of {count(h.limit)}
                </td>
                <td class="end">{count(h.held)}</td>
                <td>
                  <a href={href(["jobs", h.first])}>
                    <code>{h.first}</code>
                  </a>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {held.length > shownHeld && <p class="faint">{count(held.length - shownHeld)} further limits are left out.</p>}
    </Panel>
  );
}

const shownHeld = 50;

function Detail({ id, queue: q, list }: { id: string; queue: Queue | undefined; list: List }) {
  const classPaused = (list.all_paused?.classes ?? []).includes(id);
  const servicePaused = q && (list.all_paused?.services ?? []).includes(q.service);
  return (
    <>
      <nav class="crumbs" aria-label="Way back">
        <a href="#/queues">Queues</a>
      </nav>
      <header class="bar title">
        <h1>
          Class <code>{id}</code>
        </h1>
        <div class="acts">
          {classPaused ? (
            <Act action={resume("class", id)} />
          ) : (
            <Act action={named(pause("class", id, q?.waiting), "Pause class")} />
          )}
          {q && !servicePaused && <Act action={named(pause("service", q.service), "Pause service")} />}
          {q && servicePaused && <Act action={named(resume("service", q.service), "Resume service")} />}
        </div>
      </header>
      {!q && <Empty title="No job of this class waits">It is shown here as long as one does.</Empty>}
      {q && (
        <div class="panels">
          <Panel title="Queue">
            <Facts
              rows={[
                { name: "Service", value: <Text value={q.service} /> },
                { name: "Waiting", value: <a href={href(["jobs"], { class: id })}>{plural(q.waiting, "job")}</a> },
                { name: "Oldest", value: q.oldest_ms ? <Age at={q.oldest_ms} /> : "–" },
                { name: "Nodes that fit", value: count(q.fits) },
                { name: "What holds it back", value: holds(q) },
                {
                  name: "Next, and why it waits",
                  value: (
                    <a href={href(["jobs", q.first])}>
                      <code>{q.first}</code>
                    </a>
                  ),
                },
              ]}
            />
          </Panel>
          <Panel title="What its jobs ask for">
            <pre dir="auto">{q.requirement ? pretty(q.requirement, 20_000) : "Any node with the service."}</pre>
          </Panel>
        </div>
      )}
      <Command line={schedctl(["list"], { class: id })} />
    </>
  );
}

function named(action: ReturnType<typeof pause>, label: string): ReturnType<typeof pause> {
  return { ...action, label };
}
