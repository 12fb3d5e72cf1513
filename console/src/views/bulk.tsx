import { useEffect, useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { startBulk, stopBulk } from "../lib/actions.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { may, whoMay } from "../lib/rights.ts";
import { href, route } from "../lib/route.ts";
import { count, plural, schedctl, words } from "../lib/text.ts";
import { Act } from "../parts/act.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Operation = components["schemas"]["BulkOperation"];
type Verb = Operation["action"];

/** Operations on many jobs or nodes. */
export function Bulk() {
  const id = route.value.path[1];
  return id ? <OperationDetail key={id} id={id} /> : <OperationList />;
}

const columns: Column<Operation>[] = [
  { name: "Operation", width: "minmax(92px, 1fr)", cell: (o) => <code>{o.id}</code> },
  { name: "Action", width: "80px", cell: (o) => o.action },
  { name: "State", width: "104px", cell: (o) => <State value={o.state} /> },
  { name: "Done", width: "112px", cell: (o) => `${count(o.done)} of ${count(o.count)}`, end: true, wide: true },
  { name: "By", width: "minmax(72px, 1fr)", cell: (o) => <Text value={o.by || "–"} max={80} />, wide: true },
  { name: "Reason", width: "minmax(72px, 1.4fr)", cell: (o) => <Text value={o.reason || "–"} max={160} />, wide: true },
  { name: "Planned", width: "88px", cell: (o) => <Age at={o.planned_at_ms} />, end: true, wide: true },
];

function OperationList() {
  const { data, at, error, again } = useFollow<components["schemas"]["BulkList"]>("operations", (signal) =>
    get("/v1/bulk", { signal }),
  );
  const rows = data?.operations ?? [];
  return (
    <div class="view">
      <header class="bar">
        <h1>Bulk</h1>
      </header>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && rows.length === 0 && (
        <Empty title="No operation on many jobs or nodes">
          Filter <a href={href(["jobs"], { state: "dead" })}>jobs by their state</a> to begin one.
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Operations"
          columns={columns}
          rows={rows}
          id={(o) => o.id}
          to={(o) => href(["bulk", o.id])}
          foot={plural(rows.length, "operation")}
        />
      )}
      <Command line={schedctl(["bulk", "ls"])} />
    </div>
  );
}

function OperationDetail({ id }: { id: string }) {
  const { data, at, error, again } = useFollow<Operation>(`operation:${id}`, (signal) =>
    get("/v1/bulk/{id}", { path: { id }, signal }),
  );
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/bulk">Bulk</a>
      </nav>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={6} />}
      {data && <Detail operation={data} again={again} />}
    </div>
  );
}

function Detail({ operation: o, again }: { operation: Operation; again: () => void }) {
  return (
    <>
      <header class="bar title">
        <h1>
          <State value={o.state} /> {o.action} {plural(o.count, targetOf(o.action))}
        </h1>
        <div class="acts">
          {o.state === "planned" && <Act action={startBulk(o, again)} />}
          {o.state === "running" && <Act action={stopBulk(o, again)} />}
        </div>
      </header>
      {o.state !== "planned" && (
        <Panel title="Progress" aside={<small>{`${count(o.done)} of ${count(o.count)}`}</small>}>
          <progress max={Math.max(1, o.count)} value={o.done} aria-label="Progress" />
          <Counts label="Outcome" counts={o.outcomes} />
        </Panel>
      )}
      <div class="panels">
        <Panel title="Operation">
          <Facts
            rows={[
              { name: "Planned", value: <Age at={o.planned_at_ms} /> },
              o.state === "planned" &&
                o.expires_at_ms && { name: "Can be started", value: <Age at={o.expires_at_ms} /> },
              o.started_at_ms && { name: "Started", value: <Age at={o.started_at_ms} /> },
              o.ended_at_ms && { name: "Ended", value: <Age at={o.ended_at_ms} /> },
              o.by && { name: "By", value: <Text value={o.by} /> },
              o.reason && { name: "Reason", value: <Text value={o.reason} /> },
              o.owner && { name: "Replica", value: <Text value={o.owner} /> },
              o.filter && { name: "Filter", value: <Text value={filterText(o.filter)} max={400} /> },
            ]}
          />
        </Panel>
        <Summary operation={o} />
      </div>
      <Command line={schedctl(["bulk", "show"], {}, [o.id])} />
    </>
  );
}

function targetOf(verb: Verb): string {
  return verb === "drain" || verb === "undrain" ? "node" : "job";
}

function filterText(filter: NonNullable<Operation["filter"]>): string {
  return Object.entries(filter)
    .map(([name, value]) => `${words(name)} ${Array.isArray(value) ? value.join(", ") : value}`)
    .join("; ");
}

/** What the targets have in common. */
function Summary({ operation: o }: { operation: Operation }) {
  const view = targetOf(o.action) === "node" ? "nodes" : "jobs";
  return (
    <Panel title="Targets" aside={!o.complete && <small>There are more than one operation takes</small>}>
      <Counts label="Service" counts={o.by_service} />
      <Counts label="Tenant" counts={o.by_tenant} />
      <Counts label="Error" counts={o.by_error} />
      <h3>The first of them</h3>
      <ul class="items">
        {(o.samples ?? []).map((id) => (
          <li key={id}>
            <a href={href([view, id])}>
              <Text value={id} max={80} />
            </a>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Counts({ label, counts }: { label: string; counts: Record<string, number> | undefined }) {
  const rows = Object.entries(counts ?? {}).sort((a, b) => b[1] - a[1]);
  if (rows.length === 0) return null;
  return (
    <Scroll label={label}>
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">{label}</th>
            <th scope="col" class="end">
              Count
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, n]) => (
            <tr key={name}>
              <th scope="row">
                <Text value={words(name)} max={80} />
              </th>
              <td class="end">{count(n)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const verbs: { verb: Verb; label: string; states: string[] }[] = [
  { verb: "requeue", label: "Requeue all…", states: ["dead", "failed", "expired"] },
  { verb: "cancel", label: "Cancel all…", states: ["scheduled", "waiting", "moving", "retry_wait", "running"] },
  { verb: "drop", label: "Drop all…", states: ["succeeded", "failed", "cancelled", "expired", "dead"] },
];

/** What the jobs of a filter have in common; flags are the same for schedctl. */
type Conditions = components["schemas"]["BulkFilter"];

/** Buttons that plan an operation on all jobs of a filter. They plan; only the dialog's own button changes anything. */
export function BulkButtons({ filter, flags }: { filter: Conditions; flags: Record<string, string> }) {
  const [verb, setVerb] = useState<Verb>();
  const fit = verbs.filter((v) => v.states.includes(filter.state ?? ""));
  if (fit.length === 0 || !may("changeJob")) return null;
  return (
    <span class="acts">
      {fit.map((v) => (
        <button key={v.verb} type="button" onClick={() => setVerb(v.verb)}>
          {v.label}
        </button>
      ))}
      {verb && <Plan verb={verb} filter={filter} flags={flags} onClose={() => setVerb(undefined)} />}
    </span>
  );
}

/** A button that plans an operation on nodes. */
export function PlanButton({ verb, ids }: { verb: "drain" | "undrain"; ids: string[] }) {
  const [open, setOpen] = useState(false);
  const label = verb === "drain" ? "Drain…" : "Undrain…";
  const why = may("change") ? undefined : whoMay("change");
  return (
    <>
      <button type="button" aria-disabled={why ? true : undefined} title={why} onClick={() => !why && setOpen(true)}>
        {label}
      </button>
      {open && <Plan verb={verb} ids={ids} onClose={() => setOpen(false)} />}
    </>
  );
}

interface PlanProps {
  verb: Verb;
  filter?: Conditions;
  flags?: Record<string, string>;
  /** Instead of a filter. */
  ids?: string[];
  onClose: () => void;
}

/** A line with more ids than this would not be read. The plan has an id of its own. */
const mostIDs = 50;

/** The dry run: which jobs it would be, fixed at this moment. */
function Plan({ verb, filter, flags, ids, onClose }: PlanProps) {
  const [plan, setPlan] = useState<Operation>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    change("post", "/v1/bulk-plans", { body: ids ? { action: verb, ids } : { action: verb, filter } }).then(
      setPlan,
      (cause) => {
        setError(cause instanceof ApiError ? cause : new ApiError("internal", String(cause)));
      },
    );
  }, []);
  return (
    <Dialog title={`Which ${targetOf(verb)}s a ${verb} would touch`} onClose={onClose} wide>
      {error && <Failed error={error} />}
      {!plan && !error && <Loading rows={4} />}
      {plan && (
        <>
          <p>
            {plan.count === 0
              ? `No ${targetOf(verb)} fits.`
              : `${plural(plan.count, targetOf(verb))}, fixed now: what comes later is not touched. Nothing has changed yet.`}
          </p>
          <Summary operation={plan} />
          <footer class="acts">
            <button type="button" onClick={onClose}>
              Keep as it is
            </button>
            {plan.count > 0 && <Act action={startBulk(plan, onClose)} />}
          </footer>
        </>
      )}
      {ids && ids.length > mostIDs ? (
        plan && <Command line={schedctl(["bulk", "show"], {}, [plan.id])} />
      ) : (
        <Command line={schedctl(["bulk", "plan", verb], flags, ids)} />
      )}
    </Dialog>
  );
}
