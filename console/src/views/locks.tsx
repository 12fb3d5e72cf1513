import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { type Lock, releaseLock } from "../lib/services.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { clock, span } from "../lib/time.ts";
import { Act } from "../parts/act.tsx";
import { Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Page = components["schemas"]["LockPage"];

/** Locks that are held or awaited, or one of them. */
export function Locks() {
  const key = route.value.path[1];
  return key ? <LockDetail key={key} name={key} /> : <LockList />;
}

/** From this share of its lease on without a renewal a lock stands out, as in the finding. */
const late = 0.75;

function stateOf(l: Lock): string {
  if (l.problem) return "damaged";
  if (!l.held) return "free";
  if (l.revoked) return "revoked";
  if (l.released) return "kept";
  if (l.granted) return "granted";
  const since = clock.value - (l.renewed_ms ?? clock.value);
  return l.lease_ms && since > late * l.lease_ms ? "not_renewed" : "taken";
}

const columns: Column<Lock>[] = [
  { name: "Lock", width: "minmax(104px, 1.4fr)", cell: (l) => <Text value={l.key} max={120} />, sort: (l) => l.key },
  { name: "State", width: "120px", cell: (l) => <State value={stateOf(l)} />, sort: stateOf },
  {
    name: "Owner",
    width: "minmax(96px, 1fr)",
    cell: (l) => <Text value={l.holder ?? "–"} max={120} />,
    sort: (l) => l.holder ?? "",
    wide: true,
  },
  {
    name: "Held since",
    width: "88px",
    cell: (l) => <Age at={l.since_ms} />,
    sort: (l) => l.since_ms ?? 0,
    end: true,
    wide: true,
  },
  {
    name: "Renewed",
    width: "80px",
    cell: (l) => <Age at={l.renewed_ms} />,
    sort: (l) => l.renewed_ms ?? 0,
    end: true,
    wide: true,
  },
  { name: "Waiting", width: "72px", cell: (l) => count(l.waiting), sort: (l) => l.waiting, end: true },
  { name: "Token", width: "minmax(88px, 160px)", cell: (l) => <code>{l.token ?? "–"}</code>, end: true, wide: true },
];

function LockList() {
  const found = useFollow<Page>("locks", (signal) => get("/v1/locks", { query: { limit: 250 }, signal }));
  const key = route.value.query.get("key") ?? "";
  const { data, at, error } = found;
  const rows = (data?.locks ?? []).filter((l) => l.key.includes(key));
  return (
    <div class="view">
      <header class="bar">
        <h1>Locks</h1>
        {data && (
          <span class="faint">
            held or awaited for a second, as of <Age at={at} />
          </span>
        )}
      </header>
      <Filter
        label="Filter of locks"
        fields={[{ name: "key", label: "Name has" }]}
        values={{ key }}
        onChange={setQuery}
      />
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={found.again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && rows.length === 0 && (
        <Empty title={key ? "No listed lock has this in its name" : "No lock is held or awaited"}>
          {key && (
            <a href={href(["locks", key])}>
              Look at <Text value={key} max={80} />
            </a>
          )}
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Locks"
          columns={columns}
          rows={rows}
          id={(l) => l.key}
          to={(l) => href(["locks", l.key])}
          foot={
            data?.cursor
              ? `${plural(rows.length, "lock")} of the first 250; schedctl lock ls has all`
              : plural(rows.length, "lock")
          }
        />
      )}
      <Command line={schedctl(["lock", "ls"])} />
      <Releases />
    </div>
  );
}

function Releases() {
  const { data, at, error, again } = useFollow("", (signal) =>
    get("/v1/lock-audit", { query: { limit: 100 }, signal }),
  );
  const entries = data?.entries ?? [];
  return (
    <Panel
      title="Taken from their holders"
      aside={
        <small>
          as of <Age at={at} />{" "}
          <button type="button" onClick={again}>
            Refresh
          </button>
        </small>
      }
      wide
    >
      {error && <Failed error={error} />}
      {data && entries.length === 0 && <p class="faint">No lock was taken from its holder.</p>}
      {entries.length > 0 && (
        <Scroll label="Taken from their holders, as a table" short>
          <table class="plain">
            <thead>
              <tr>
                {["Lock", "Owner", "Token", "When", "Who", "How", "Reason"].map((name) => (
                  <th scope="col" key={name}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {entries.map((e) => (
                <tr key={`${e.key} ${e.token} ${e.at_ms} ${e.now}`}>
                  <th scope="row">
                    <a href={href(["locks", e.key])}>
                      <Text value={e.key} max={80} />
                    </a>
                  </th>
                  <td>
                    <Text value={e.holder} max={80} />
                  </td>
                  <td>
                    <code>{e.token}</code>
                  </td>
                  <td>
                    <Age at={e.at_ms} />
                  </td>
                  <td>
                    <Text value={e.operator} max={80} />
                  </td>
                  <td>{e.now ? "forced" : "asked"}</td>
                  <td>
                    <Text value={e.reason} max={200} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <Command line={schedctl(["lock", "log"])} />
    </Panel>
  );
}

function LockDetail({ name }: { name: string }) {
  const {
    data: l,
    at,
    error,
    again,
  } = useFollow<Lock>(`lock:${name}`, (signal) => get("/v1/locks/{key}", { path: { key: name }, signal }));
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/locks">Locks</a>
      </nav>
      <header class="bar title">
        <h1>
          {l && <State value={stateOf(l)} />} <Text value={name} />
        </h1>
        {l && (
          <div class="acts">
            <Act action={releaseLock(l, false, again)} />
            <Act action={releaseLock(l, true, again)} />
          </div>
        )}
      </header>
      {error && (l ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!l && !error && <Loading rows={6} />}
      {l && (
        <div class="panels">
          <Panel title="Hold">
            {!l.held && (
              <p class="faint">
                {l.problem ? <Text value={l.problem} max={400} /> : "It is free. An idle lock keeps nothing in Redis."}
              </p>
            )}
            {l.held && (
              <Facts
                rows={[
                  { name: "Owner", value: <Text value={l.holder ?? ""} /> },
                  { name: "Token", value: <code>{l.token}</code> },
                  { name: "Held since", value: <Age at={l.since_ms} /> },
                  { name: "Renewed", value: <Age at={l.renewed_ms} /> },
                  { name: "Lease", value: span(l.lease_ms ?? 0) },
                  {
                    name: "Free without a renewal in",
                    value: (l.left_ms ?? 0) < 0 ? "never" : span(Math.max(0, at + (l.left_ms ?? 0) - clock.value)),
                  },
                  { name: "Entered", value: count(l.entries ?? 0) },
                  l.revoked && { name: "Asked to release", value: <Text value={l.revoked} /> },
                ]}
              />
            )}
          </Panel>
          <Queue lock={l} />
        </div>
      )}
      <Command line={schedctl(["lock", "show"], {}, [name])} />
    </div>
  );
}

function Queue({ lock: l }: { lock: Lock }) {
  const waiters = l.waiters ?? [];
  return (
    <Panel title="Waiting, in order" aside={<small>{count(l.waiting)} in the queue</small>}>
      {waiters.length === 0 && <p class="faint">Nobody waits.</p>}
      {waiters.length > 0 && (
        <Scroll label="Waiting, as a table" short>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Place</th>
                <th scope="col">Who</th>
                <th scope="col">Process</th>
                <th scope="col" class="end">
                  Heard of
                </th>
              </tr>
            </thead>
            <tbody>
              {waiters.map((w, i) => (
                <tr key={`${w.process} ${i}`}>
                  <th scope="row">{count(i + 1)}</th>
                  <td>
                    <Text value={w.holder} max={120} />
                  </td>
                  <td>
                    <code>{w.process.slice(0, 8)}</code>
                  </td>
                  <td class="end">{w.silent_ms < 0 ? "not" : `${span(w.silent_ms)} ago`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}
