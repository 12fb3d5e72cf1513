import { useCallback } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { get } from "../lib/api.ts";
import { type Page, usePages } from "../lib/pages.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { plural, schedctl } from "../lib/text.ts";
import { full, moment, now, ranges, span } from "../lib/time.ts";
import { Dialog } from "../parts/dialog.tsx";
import { type Field, Filter } from "../parts/filter.tsx";
import { Command, Empty, Facts, Failed, Heading, Loading, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";

type Entry = components["schemas"]["AuditedChange"];

const fields: Field[] = [
  {
    name: "since",
    label: "Since",
    options: ["", ...Object.keys(ranges)].map((value) => ({ value, label: value || "any time" })),
  },
  { name: "name", label: "By", placeholder: "name of the token" },
  { name: "call", label: "Operation", placeholder: "drain-node" },
  { name: "target", label: "Target", placeholder: "/nodes/gpu-7" },
  { name: "outcome", label: "Outcome", placeholder: "done, dry_run, unknown or a code" },
];

/** Who changed what. */
export function Audit() {
  const values = Object.fromEntries(
    fields.map((f) => [f.name, route.value.query.get(f.name) ?? ""] as const).filter(([, v]) => v !== ""),
  );
  const key = JSON.stringify(values);
  const read = useCallback(
    async (cursor: string, signal: AbortSignal): Promise<Page<Entry>> => {
      const { since, ...rest } = JSON.parse(key) as Record<string, string>;
      const back = ranges[since ?? ""];
      const query = { ...rest, cursor, limit: 200, ...(back ? { since_ms: Math.round(now() - back) } : {}) };
      const page = await get("/v1/audit", { query, signal });
      return { rows: page.entries ?? [], cursor: page.cursor };
    },
    [key],
  );
  const list = usePages(key, read);
  const shown = list.rows.find((e) => e.id === route.value.query.get("entry"));
  return (
    <div class="view">
      <Heading title="Audit" list={list} />
      <Filter label="Filter of changes" fields={fields} values={values} onChange={setQuery} />
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={8} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title={key === "{}" ? "No change yet" : "No change fits this filter"}>
          What clients do with their own jobs is not recorded.{" "}
          {list.more && (
            <button type="button" onClick={list.more}>
              Look further back
            </button>
          )}
        </Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Changes"
          columns={columns}
          rows={list.rows}
          id={(e) => e.id}
          to={(e) => href(["audit"], { ...values, entry: e.id })}
          more={list.more}
          foot={list.busy ? "Reading on…" : plural(list.rows.length, "change")}
        />
      )}
      {shown && <EntryDialog entry={shown} onClose={() => setQuery({ entry: undefined })} />}
      <Command line={schedctl(["audit"], values)} />
    </div>
  );
}

const columns: Column<Entry>[] = [
  {
    name: "When",
    width: "minmax(84px, 152px)",
    cell: (e) => <span title={full(e.at_ms)}>{moment(e.at_ms)}</span>,
  },
  {
    name: "Change",
    width: "minmax(112px, 1.2fr)",
    cell: (e) => <Text value={e.call} max={80} />,
  },
  { name: "Outcome", width: "minmax(72px, 112px)", cell: (e) => <State value={e.outcome} /> },
  { name: "Target", width: "minmax(96px, 2fr)", cell: (e) => <Text value={e.target} max={160} />, wide: true },
  { name: "By", width: "minmax(72px, 1fr)", cell: (e) => <Text value={who(e)} max={80} />, wide: true },
  {
    name: "Reason",
    width: "minmax(72px, 1.4fr)",
    cell: (e) => <Text value={e.reason || "–"} max={160} />,
    wide: true,
  },
];

function who(e: Entry): string {
  return [e.name || e.tenant, e.role].filter(Boolean).join(", ");
}

function EntryDialog({ entry: e, onClose }: { entry: Entry; onClose: () => void }) {
  const text = (name: string, value: string | undefined) =>
    value ? { name, value: <Text value={value} max={2000} /> } : undefined;
  return (
    <Dialog title={e.call} onClose={onClose}>
      <Facts
        rows={[
          { name: "Outcome", value: <State value={e.outcome} /> },
          { name: "When", value: full(e.at_ms) },
          text("By", who(e)),
          text("Address", e.address),
          text("Target", e.target),
          text("Reason", e.reason),
          text("Before", e.before),
          text("After", e.after),
          { name: "Took", value: span(e.took_ms ?? 0) },
          text("Replica", e.replica),
          text("Id of the change", e.id),
        ]}
      />
      <Command line={schedctl(["audit"], { call: e.call, target: e.target })} />
    </Dialog>
  );
}
