import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { outcome } from "../lib/lists.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { plural, pretty, schedctl } from "../lib/text.ts";
import { Act, type Action } from "../parts/act.tsx";
import { Filter } from "../parts/filter.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { ChainChange } from "./chain.tsx";

type Request = components["schemas"]["ChangeRequest"];
type Application = components["schemas"]["Application"];

const columns: Column<Request>[] = [
  { name: "Change", width: "minmax(112px, 2fr)", cell: (r) => <Text value={r.summary} max={160} /> },
  { name: "State", width: "minmax(88px, 112px)", cell: (r) => <State value={r.state} />, sort: (r) => r.state },
  { name: "Target", width: "minmax(80px, 1fr)", cell: (r) => <Text value={r.target} max={80} />, wide: true },
  { name: "By", width: "minmax(80px, 1fr)", cell: (r) => <Text value={r.author} max={80} />, wide: true },
  { name: "Asked", width: "88px", cell: (r) => <Age at={r.at_ms} />, sort: (r) => -r.at_ms, wide: true },
  {
    name: "Lapses",
    width: "88px",
    cell: (r) => (r.state === "pending" ? <Age at={r.until_ms} /> : "–"),
    sort: (r) => r.until_ms,
    wide: true,
  },
];

/** Changes of lists that wait for the approval of somebody else. */
export function Requests() {
  const all = route.value.query.get("all") ?? "";
  const shown = route.value.query.get("request") ?? "";
  const { data, at, error, again } = useFollow<components["schemas"]["ListRequests"]>(
    `list-requests${all && "-all"}`,
    (signal) => get("/v1/list-requests", { query: all ? {} : { open: true }, signal }),
  );
  const rows = data?.requests ?? [];
  return (
    <>
      <Filter
        label="Filter of requests"
        fields={[
          {
            name: "all",
            label: "Which",
            options: [
              { value: "", label: "that wait" },
              { value: "yes", label: "also decided ones" },
            ],
          },
        ]}
        values={{ all }}
        onChange={setQuery}
      />
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading />}
      {data && rows.length === 0 && <Empty title="No change waits for approval" />}
      {shown && <OneRequest key={shown} id={shown} />}
      {rows.length > 0 && (
        <Table
          label="Requests"
          columns={columns}
          rows={rows}
          id={(r) => r.id}
          to={(r) => href(["lists"], { part: "requests", all, request: r.id })}
          foot={plural(rows.length, "request")}
        />
      )}
      <Command line={schedctl(["lists", "requests", "ls"], { all: all !== "" })} />
    </>
  );
}

function OneRequest({ id }: { id: string }) {
  const { data: r, error } = useFollow<Request>(`list-request:${id}`, (signal) =>
    get("/v1/list-requests/{request}", { path: { request: id }, signal }),
  );
  return (
    <Panel
      title="Request"
      wide
      aside={
        <div class="acts">
          {r?.state === "pending" && <Act action={approve(r)} />}
          {r?.state === "pending" && <Act action={reject(r)} />}
          <button type="button" class="plain" onClick={() => setQuery({ request: undefined })}>
            Close
          </button>
        </div>
      }
    >
      {error && <Failed error={error} />}
      {!r && !error && <Loading />}
      {r && (
        <>
          <Facts
            rows={[
              { name: "Change", value: <Text value={r.summary} max={400} /> },
              { name: "State", value: <State value={r.state} /> },
              { name: "Target", value: <Text value={`${r.kind} ${r.target}`} max={200} /> },
              { name: "By", value: <Text value={r.author} max={120} /> },
              { name: "Note", value: <Text value={r.note || "–"} max={300} /> },
              { name: "Asked", value: <Age at={r.at_ms} /> },
              r.state === "pending" && { name: "Lapses", value: <Age at={r.until_ms} /> },
              r.decided_ms ? { name: "Decided", value: <Age at={r.decided_ms} /> } : false,
              r.decided_by && { name: "Decided by", value: <Text value={r.decided_by} max={120} /> },
              r.comment && { name: "Comment", value: <Text value={r.comment} max={300} /> },
            ]}
          />
          {r.change !== undefined &&
            (r.kind === "change-chain" ? (
              <ChainChange change={r.change} />
            ) : (
              <pre dir="auto">{pretty(r.change, 20_000)}</pre>
            ))}
        </>
      )}
      <Command line={schedctl(["lists", "requests", "show"], {}, [id])} />
    </Panel>
  );
}

// The digest is that of the change that is on the screen: another one is refused.
function approve(r: Request): Action {
  return {
    label: "Approve",
    title: `Approve: ${r.summary}`,
    needs: "administer",
    consequence: (
      <>
        The change of <Text value={r.author} max={80} /> is made in the same step, if its target is as it was. One's own
        cannot be approved.
      </>
    ),
    command: (reason) =>
      schedctl(["lists", "requests", "approve"], { digest: r.digest, comment: reason, reason }, [r.id]),
    run: async (comment) => {
      const sent = { path: { request: r.id }, body: { digest: r.digest, comment }, reason: comment };
      await change("post", "/v1/list-requests/{request}/approve", sent);
      return `Approved: ${r.summary}`;
    },
  };
}

function reject(r: Request): Action {
  return {
    label: "Reject",
    title: `Reject: ${r.summary}`,
    needs: "changeOwn",
    danger: true,
    consequence: "The change is not made, and can be asked for again. One's own is withdrawn so.",
    command: (reason) => schedctl(["lists", "requests", "reject"], { comment: reason, reason }, [r.id]),
    run: async (comment) => {
      const sent = { path: { request: r.id }, body: { comment }, reason: comment };
      const done = await change("post", "/v1/list-requests/{request}/reject", sent);
      return `${r.summary}: ${done.state}`;
    },
  };
}

const none: Application = { name: "", tenant: "", revision: 0 };

/** Applications, which ask and own lists. */
export function Applications() {
  const shown = route.value.query.get("application");
  const { data, at, error, again } = useFollow<components["schemas"]["ListApplications"]>(
    "list-applications",
    (signal) => get("/v1/list-applications", { signal }),
  );
  const rows = data?.applications ?? [];
  const one = shown === "" ? none : rows.find((a) => a.name === shown);
  return (
    <>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading />}
      {data && rows.length === 0 && <Empty title="No application is registered" />}
      {rows.length > 0 && (
        <Table
          label="Applications"
          columns={applicationColumns}
          rows={rows}
          id={(a) => a.name}
          to={(a) => href(["lists"], { part: "applications", application: a.name })}
          foot={plural(rows.length, "application")}
        />
      )}
      {data && <ApplicationForm key={`${one?.name} ${one?.revision}`} was={one ?? none} />}
      <Command line={schedctl(["lists", "applications", "ls"])} />
    </>
  );
}

const applicationColumns: Column<Application>[] = [
  { name: "Name", width: "minmax(96px, 1fr)", cell: (a) => <Text value={a.name} max={80} />, sort: (a) => a.name },
  {
    name: "Tenant",
    width: "minmax(80px, 1fr)",
    cell: (a) => <Text value={a.tenant} max={80} />,
    sort: (a) => a.tenant,
  },
  { name: "Contact", width: "minmax(96px, 2fr)", cell: (a) => <Text value={a.contact || "–"} max={120} />, wide: true },
  {
    name: "Tokens",
    width: "minmax(96px, 1fr)",
    cell: (a) => <Text value={(a.tokens ?? []).join(", ") || "–"} max={120} />,
    wide: true,
  },
];

function ApplicationForm({ was }: { was: Application }) {
  const [a, setA] = useState(was);
  const [tokens, setTokens] = useState((was.tokens ?? []).join(", "));
  const made = was.revision > 0;
  const next = { ...a, tokens: tokens.split(/[\s,]+/).filter(Boolean) };
  const field = (label: string, name: "name" | "tenant" | "contact", fixed = false) => (
    <label>
      <span>{label}</span>
      <input
        value={a[name] ?? ""}
        disabled={fixed}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setA({ ...a, [name]: event.currentTarget.value })}
      />
    </label>
  );
  return (
    <Panel
      title={made ? `Application ${was.name}` : "Register an application"}
      wide
      aside={
        made && (
          <button type="button" class="plain" onClick={() => setQuery({ application: undefined })}>
            Close
          </button>
        )
      }
    >
      <div class="ask">
        {field("Name", "name", made)}
        {field("Tenant (empty: your own)", "tenant", made)}
        {field("Contact", "contact")}
        <label>
          <span>Names of its tokens</span>
          <input
            value={tokens}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setTokens(event.currentTarget.value)}
          />
        </label>
        <div class="acts">
          <Act action={putApplication(was, next)} />
          {made && <Act action={forgetApplication(was)} />}
        </div>
      </div>
    </Panel>
  );
}

async function put(a: Application, revision: number, reason?: string): Promise<[text: string, revision: number]> {
  const body = { tenant: a.tenant, contact: a.contact ?? "", tokens: a.tokens ?? [], revision };
  const answer = await change("put", "/v1/list-applications/{application}", {
    path: { application: a.name },
    body,
    reason,
  });
  return [
    outcome(answer, `Application ${a.name} is registered.`),
    "revision" in answer ? Number(answer.revision) : revision,
  ];
}

function putApplication(was: Application, next: Application): Action {
  let made = 0;
  return {
    label: was.revision > 0 ? "Change" : "Register",
    title: `${was.revision > 0 ? "Change" : "Register"} application ${next.name}`,
    needs: "apply",
    not: next.name === "" ? "Give it a name first." : undefined,
    consequence: "Where approval is asked for, it waits for an admin. Its tenant's operators may own lists by it.",
    command: (reason) => {
      const flags = { tenant: was.revision > 0 ? "" : next.tenant, contact: next.contact, reason };
      const each = (next.tokens ?? []).map((t) => schedctl([], { "with-token": t }).slice("schedctl ".length));
      return [schedctl(["lists", "applications", "apply"], flags, [next.name]), ...each].join(" ");
    },
    run: async (reason) => {
      const [text, revision] = await put(next, was.revision, reason);
      made = revision;
      return text;
    },
    ...(was.revision > 0 ? { undo: { label: "Undo", run: async () => (await put(was, made, "undo"))[0] } } : {}),
  };
}

function forgetApplication(a: Application): Action {
  return {
    label: "Forget",
    title: `Forget application ${a.name}`,
    needs: "apply",
    danger: true,
    typed: a.name,
    consequence: "Lists that it owns keep it as their owner.",
    command: (reason) => schedctl(["lists", "applications", "rm"], { reason }, [a.name]),
    run: async (reason) => {
      await change("delete", "/v1/list-applications/{application}", { path: { application: a.name }, reason });
      setQuery({ application: undefined });
      return `Application ${a.name} is forgotten.`;
    },
  };
}
