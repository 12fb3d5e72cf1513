import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { pause, resume } from "../lib/actions.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { type Page, usePages } from "../lib/pages.ts";
import {
  applyDraft,
  checkDraft,
  draft,
  editDraft,
  type Result,
  rebaseDraft,
  startDraft,
  textOf,
  wide,
} from "../lib/pools.ts";
import { may } from "../lib/rights.ts";
import { go, href, route, setQuery } from "../lib/route.ts";
import { count, plural, pretty, schedctl, words } from "../lib/text.ts";
import { Act, type Action, toast } from "../parts/act.tsx";
import { Difference, Editor } from "../parts/editor.tsx";
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

type Pool = components["schemas"]["PoolStatus"];
type Version = components["schemas"]["ConfigEntry"];

const parts = [
  { path: "", name: "Members", component: PoolTable },
  { path: "document", name: "Document", component: Document },
  { path: "history", name: "History", component: History },
];

/** Pools: their nodes, the document that defines them, and its versions. */
export function Pools() {
  const { path, query } = route.value;
  if (path[1]) return <OnePool key={path[1]} id={path[1]} />;
  const part = parts.find((p) => p.path === query.get("part")) ?? parts[0];
  return (
    <div class="view">
      <header class="bar">
        <h1>Pools</h1>
        <nav class="tabs" aria-label="Parts of pools">
          {parts.map((p) => (
            <a
              key={p.path}
              href={href(["pools"], { part: p.path })}
              aria-current={p.path === part?.path ? "page" : undefined}
            >
              {p.name}
            </a>
          ))}
        </nav>
      </header>
      {part && <part.component key={part.path} />}
    </div>
  );
}

function stateOf(p: Pool): string {
  if (p.paused) return "paused";
  return p.size === 0 ? "empty" : "active";
}

const columns: Column<Pool>[] = [
  { name: "Pool", width: "minmax(96px, 1fr)", cell: (p) => <Text value={p.id} max={80} />, sort: (p) => p.id },
  { name: "State", width: "96px", cell: (p) => <State value={stateOf(p)} />, sort: stateOf },
  { name: "Nodes", width: "72px", cell: (p) => count(p.size), sort: (p) => p.size, end: true },
  {
    name: "First nodes",
    width: "minmax(96px, 2fr)",
    cell: (p) => <Text value={(p.nodes ?? []).slice(0, 5).join(", ") || "–"} max={200} />,
    wide: true,
  },
  {
    name: "Defined by",
    width: "minmax(96px, 1fr)",
    cell: (p) => (p.configured ? "the document" : "profiles of nodes alone"),
    sort: (p) => (p.configured ? 0 : 1),
    wide: true,
  },
];

function PoolTable() {
  const { data, at, error, again } = useFollow<components["schemas"]["PoolList"]>("pools", (signal) =>
    get("/v1/pools", { signal }),
  );
  if (!data) return error ? <Failed error={error} again={again} /> : <Loading rows={6} />;
  const rows = data.pools ?? [];
  return (
    <>
      {error && <Stale since={at} why={error.message} />}
      {!data.enabled && rows.some((p) => p.configured) && (
        <div class="notice stale">
          <strong>Pools are not enabled</strong>
          <p>Those of the document have no members and restrict nothing.</p>
        </div>
      )}
      <p class="faint">
        Version {count(data.version)}, {data.mode === "flat" ? "flat" : "two levels"}, as of <Age at={at} />
      </p>
      {rows.length === 0 && (
        <Empty title="There is no pool">
          <a href={href(["pools"], { part: "document" })}>The document</a> defines pools, and so do profiles of nodes.
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Pools"
          columns={columns}
          rows={rows}
          id={(p) => p.id}
          to={(p) => href(["pools", p.id])}
          foot={plural(rows.length, "pool")}
        />
      )}
      <Command line={schedctl(["config", "show"])} />
    </>
  );
}

function OnePool({ id }: { id: string }) {
  const { data, at, error, again } = useFollow<components["schemas"]["PoolMembers"]>(`pool:${id}`, (signal) =>
    get("/v1/pools/{id}", { path: { id }, query: { limit: 1 }, signal }),
  );
  const read = useCallback(
    async (cursor: string, signal: AbortSignal): Promise<Page<string>> => {
      const page = await get("/v1/pools/{id}", { path: { id }, query: { cursor, limit: 1000 }, signal });
      return { rows: page.nodes ?? [], cursor: page.cursor };
    },
    [id],
  );
  const members = usePages(`${id} ${data?.size ?? 0}`, read);
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/pools">Pools</a>
      </nav>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && (
        <>
          <header class="bar title">
            <h1>
              <State value={stateOf(data)} /> <Text value={id} />
            </h1>
            <div class="acts">
              <Act action={data.paused ? resume("pool", id) : pause("pool", id)} />
            </div>
          </header>
          <div class="panels">
            <Panel title="What it asks of nodes">
              <Rules pool={data} />
            </Panel>
            <Panel title="Members" aside={<small>{plural(data.size, "node")}</small>}>
              {members.rows.length === 0 ? (
                <p class="faint">No node is in it.</p>
              ) : (
                <Table
                  label="Members"
                  columns={[{ name: "Node", width: "1fr", cell: (n) => <Text value={n} max={80} />, sort: (n) => n }]}
                  rows={members.rows}
                  id={(n) => n}
                  to={(n) => href(["nodes", n])}
                  more={members.more}
                />
              )}
            </Panel>
          </div>
          <Command line={schedctl(["nodes"], { pool: id })} />
        </>
      )}
    </div>
  );
}

function Rules({ pool }: { pool: Pool }) {
  const { nodes: _n, size: _s, configured, paused: _p, ...rules } = pool;
  if (!configured) return <p>Only nodes whose profile names it are in it.</p>;
  return (
    <>
      <pre dir="auto">{pretty(rules, 20_000)}</pre>
      <a href={href(["pools"], { part: "document" })}>Edit the document</a>
    </>
  );
}

/** What a change means: settings, pools, and the nodes that each pool gains and loses. */
function Effect({ result: r }: { result: Result }) {
  const d = r.diff;
  const value = (v: unknown) => (v === undefined ? "nothing" : JSON.stringify(v));
  const rules = [
    ...(d.settings ?? []).map((f) => ({ what: f.field, before: value(f.before), after: value(f.after) })),
    ...(d.removed ?? []).map((id) => ({ what: `pool ${id}`, before: "there", after: "removed" })),
    ...(d.added ?? []).map((id) => ({ what: `pool ${id}`, before: "not there", after: "added" })),
    ...(d.changed ?? []).flatMap((p) =>
      (p.fields ?? []).map((f) => ({
        what: `pool ${p.id}: ${f.field}`,
        before: value(f.before),
        after: value(f.after),
      })),
    ),
    ...(d.reordered ? [{ what: "order of preference", before: "", after: "changed" }] : []),
  ];
  if (r.unchanged || (rules.length === 0 && d.nodes === 0)) return <p>Nothing would change.</p>;
  const named = (ids: string[] | null, n: number) => (n ? `${(ids ?? []).join(", ")}${n > 20 ? ", …" : ""}` : "");
  return (
    <>
      <p>
        <strong>{plural(d.nodes, "node changes pool", "nodes change pool")}</strong> by what this replica knows.
      </p>
      {r.inert && <p class="faint">enabled is false: the pools have no members and restrict nothing.</p>}
      <Scroll label="What changes">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Pool or setting</th>
              <th scope="col">Gains, or after</th>
              <th scope="col">Loses, or before</th>
            </tr>
          </thead>
          <tbody>
            {(d.members ?? []).map((m) => (
              <tr key={`members ${m.pool}`}>
                <th scope="row">
                  <Text value={m.pool} max={80} />
                </th>
                <td>
                  {plural(m.join, "node")} <Text value={named(m.joining, m.join)} max={400} />
                </td>
                <td>
                  {plural(m.leave, "node")} <Text value={named(m.leaving, m.leave)} max={400} />
                </td>
              </tr>
            ))}
            {rules.map((f) => (
              <tr key={f.what}>
                <th scope="row">
                  <Text value={f.what} max={120} />
                </th>
                <td>
                  <Text value={f.after} max={400} />
                </td>
                <td>
                  <Text value={f.before} max={400} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** The parts of an action that a wide change has more than a narrow one. */
function width(r: Result): Partial<Action> {
  return r.diff.nodes >= wide ? { danger: true, typed: String(r.diff.nodes) } : {};
}

function consequence(r: Result): string {
  return `It replaces version ${r.version} on every replica at once. ${plural(r.diff.nodes, "node changes pool", "nodes change pool")}. Running jobs go on.${r.diff.nodes >= wide ? ` Confirm by the count, ${r.diff.nodes}.` : ""}`;
}

function Document() {
  const d = draft.value;
  const state = useSignal<{ error?: ApiError | undefined; busy?: boolean }>({});
  const guard = async (run: () => Promise<unknown>) => {
    state.value = { busy: true };
    try {
      await run();
      state.value = {};
    } catch (cause) {
      state.value = { error: cause instanceof ApiError ? cause : new ApiError("internal", String(cause)) };
    }
  };
  // What was typed stays; a document without an edit is read anew.
  useEffect(() => {
    if (!draft.peek() || draft.peek()?.text === draft.peek()?.base) void guard(startDraft);
  }, []);
  const discard = async () => {
    const undo = async () => {
      draft.value = d;
      return "The edit is back.";
    };
    await startDraft();
    toast("The edit is discarded.", { label: "Undo", run: undo });
  };
  const error = state.value.error;
  if (!d) return error ? <Failed error={error} again={() => void guard(startDraft)} /> : <Loading rows={6} />;
  const edited = d.text !== d.base;
  const writes = may("administer");
  return (
    <>
      {d.newer && <Conflict />}
      {error && error.code !== "conflict" && <Failed error={error} />}
      <Editor
        label={`The document, from version ${d.version}`}
        text={d.text}
        onText={writes ? editDraft : undefined}
        faults={d.faults}
        rows={24}
      />
      <div class="bar">
        <div class="acts">
          <Act
            action={{
              label: "Apply",
              title: "Apply the document",
              needs: "administer",
              not: d.newer
                ? "The document has changed meanwhile."
                : edited && d.checked
                  ? undefined
                  : "Change it, and check what changes.",
              consequence: d.checked ? consequence(d.checked) : "",
              command: (reason) =>
                schedctl(["config", "apply"], { version: d.version, note: reason, reason }, ["pools.json"]),
              run: applyDraft,
              ...(d.checked ? width(d.checked) : {}),
            }}
          />
          <button
            type="button"
            disabled={!writes || !edited || state.value.busy}
            onClick={() => void guard(checkDraft)}
          >
            Check what changes
          </button>
          <button type="button" disabled={!edited} onClick={() => void guard(discard)}>
            Discard the edit
          </button>
        </div>
      </div>
      <div role="status">
        {d.checked && (
          <Panel title="What it changes">
            <Effect result={d.checked} />
          </Panel>
        )}
      </div>
      {edited && (
        <Panel title="The edit">
          <Difference label="What was edited" before={d.base} after={d.text} />
        </Panel>
      )}
      <Command
        line={
          edited ? schedctl(["config", "diff"], {}, ["pools.json"]) : schedctl(["config", "show"], { output: "json" })
        }
      />
    </>
  );
}

function Conflict() {
  const d = draft.value;
  if (!d?.newer) return null;
  return (
    <div class="notice failed" role="alert">
      <strong>
        Version {count(d.newer.version)} came meanwhile
        {d.newer.by && (
          <>
            , by <Text value={d.newer.by} max={80} />
          </>
        )}
      </strong>
      <p>Your text is below, as it was. This is what the other change did to version {count(d.version)}:</p>
      <Difference label="What the other change did" before={d.base} after={d.newer.text} />
      <p>And this is how your text differs from the newest version:</p>
      <Difference label="Your text against the newest version" before={d.newer.text} after={d.text} />
      <button type="button" onClick={rebaseDraft}>
        Go on from version {count(d.newer.version)} with my text
      </button>
    </div>
  );
}

const versionColumns: Column<Version>[] = [
  { name: "Version", width: "80px", cell: (v) => count(v.version), sort: (v) => v.version },
  { name: "When", width: "96px", cell: (v) => <Age at={v.at_ms} />, sort: (v) => v.at_ms },
  {
    name: "What",
    width: "minmax(88px, 1fr)",
    cell: (v) => <Text value={v.restores ? `rollback to ${v.restores}` : (v.action ?? "")} max={80} />,
  },
  { name: "Who", width: "minmax(88px, 1fr)", cell: (v) => <Text value={v.author || "–"} max={80} />, wide: true },
  { name: "Note", width: "minmax(96px, 2fr)", cell: (v) => <Text value={v.note || "–"} max={200} />, wide: true },
];

function History() {
  const number = Number(route.value.query.get("version") ?? 0);
  const read = useCallback(async (_: string, signal: AbortSignal): Promise<Page<Version>> => {
    const all = await get("/v1/config/history", { signal });
    return { rows: all.versions ?? [] };
  }, []);
  const list = usePages("history", read);
  if (number > 0) return <OneVersion key={number} version={number} all={list.rows} />;
  return (
    <>
      <Heading title="Versions" list={list} />
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={6} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title="There is no version yet">The replicas go by their own files until a document is applied.</Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Versions"
          columns={versionColumns}
          rows={list.rows}
          id={(v) => String(v.version)}
          to={(v) => href(["pools"], { part: "history", version: String(v.version) })}
          foot="The last 100 are kept."
        />
      )}
      <Command line={schedctl(["config", "history"])} />
    </>
  );
}

/** A version against another one, by default the one in force, and what going back to it would change. */
function OneVersion({ version, all }: { version: number; all: Version[] }) {
  const other = Number(route.value.query.get("with") ?? 0);
  const { data, error, again } = useOnce(`${version} ${other}`, async (signal) => {
    const [own, now, compared] = await Promise.all([
      get("/v1/config/history/{version}", { path: { version: String(version) }, signal }),
      get("/v1/config", { signal }),
      other ? get("/v1/config/history/{version}", { path: { version: String(other) }, signal }) : undefined,
    ]);
    const effect = may("administer")
      ? await change("post", "/v1/config/rollback", {
          query: { dry_run: true },
          body: { version: now.version, restore: version },
          signal,
        })
      : undefined;
    return { own, now, before: textOf((compared ?? now).config), effect };
  });
  return (
    <>
      <nav class="crumbs" aria-label="Way back">
        <a href={href(["pools"], { part: "history" })}>Versions</a>
      </nav>
      {error && <Failed error={error} again={again} />}
      {!data && !error && <Loading rows={6} />}
      {data && (
        <>
          <header class="bar title">
            <h2>Version {count(version)}</h2>
            <div class="acts">
              <Act action={rollback(version, data.now.version, data.effect)} />
            </div>
          </header>
          <Facts
            rows={[
              { name: "When", value: <Age at={data.own.at_ms} /> },
              { name: "Who", value: <Text value={data.own.author || "–"} max={80} /> },
              { name: "What", value: words(data.own.action ?? "") },
              { name: "Note", value: <Text value={data.own.note || "–"} max={400} /> },
            ]}
          />
          <div class="ask">
            <label class="short">
              <span>Compare with</span>
              <select value={String(other)} onChange={(event) => setQuery({ with: event.currentTarget.value })}>
                <option value="0">what is in force, {data.now.version}</option>
                {all
                  .filter((v) => v.version !== version)
                  .map((v) => (
                    <option key={v.version} value={String(v.version)}>
                      version {v.version}
                    </option>
                  ))}
              </select>
            </label>
          </div>
          <Panel title={`From version ${count(other || data.now.version)} to version ${count(version)}`}>
            <Difference label="Lines that differ" before={data.before} after={textOf(data.own.config)} />
          </Panel>
          {data.effect && (
            <Panel title="What going back would change">
              <Effect result={data.effect} />
            </Panel>
          )}
          <Command line={schedctl(["config", "show"], { version })} />
        </>
      )}
    </>
  );
}

function rollback(version: number, now: number, effect: Result | undefined): Action {
  return {
    label: "Roll back",
    title: `Roll back to version ${version}`,
    needs: "administer",
    not: version === now ? "It is in force." : effect?.unchanged ? "It says what is in force." : undefined,
    consequence: effect ? consequence(effect) : "",
    command: (reason) => schedctl(["config", "rollback"], { seen: now, note: reason, reason }, [String(version)]),
    run: async (reason) => {
      const done = await change("post", "/v1/config/rollback", {
        body: { version: now, restore: version, note: reason },
        reason,
      });
      go(href(["pools"], { part: "history" }));
      return `Version ${done.version} is in force, with the content of version ${version}.`;
    },
    ...(effect ? width(effect) : {}),
  };
}

/** Reads once, and again when key changes. */
function useOnce<T>(key: string, read: (signal: AbortSignal) => Promise<T>) {
  const state = useSignal<{ data?: T; error?: ApiError }>({});
  const asked = useSignal(0);
  useEffect(() => {
    const stop = new AbortController();
    state.value = {};
    read(stop.signal).then(
      (data) => {
        if (!stop.signal.aborted) state.value = { data };
      },
      (cause) => {
        if (stop.signal.aborted) return;
        state.value = { error: cause instanceof ApiError ? cause : new ApiError("internal", String(cause)) };
      },
    );
    return () => stop.abort();
  }, [key, asked.value]);
  return { ...state.value, again: () => asked.value++ };
}
