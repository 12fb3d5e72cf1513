import type { ComponentType } from "preact";
import { useCallback } from "preact/hooks";
import { get } from "../lib/api.ts";
import type { List } from "../lib/lists.ts";
import { usePages } from "../lib/pages.ts";
import { may, type Right } from "../lib/rights.ts";
import { href, route } from "../lib/route.ts";
import { bytes, count, plural, schedctl } from "../lib/text.ts";
import { Age, Command, Empty, Failed, Loading, State, Text } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { OneList } from "./list.tsx";
import { Applications, Requests } from "./listrequests.tsx";
import { Sources } from "./listsource.tsx";

/** Name lists: who is in them, and who may change that. */
export function Lists() {
  const { path, query } = route.value;
  if (path[1]) return <OneList key={path[1]} name={path[1]} />;
  const asked = query.get("part") ?? "";
  const part = parts.find((p) => p.path === asked && may(p.needs)) ?? parts[0];
  return (
    <div class="view">
      <header class="bar">
        <h1>Lists</h1>
        <nav class="tabs" aria-label="Parts of lists">
          {parts
            .filter((p) => may(p.needs))
            .map((p) => (
              <a
                key={p.path}
                href={href(["lists"], { part: p.path })}
                aria-current={p.path === part?.path ? "page" : undefined}
              >
                {p.name}
              </a>
            ))}
          {may("see") && <a href={href(["chains"])}>Chains</a>}
        </nav>
      </header>
      {part && <part.component key={part.path} />}
    </div>
  );
}

/** The parts beside the lists themselves. */
const parts: { path: string; name: string; needs: Right; component: ComponentType }[] = [
  { path: "", name: "All lists", needs: "seeOwn", component: ListTable },
  { path: "requests", name: "Requests", needs: "seeOwn", component: Requests },
  { path: "applications", name: "Applications", needs: "seeOwn", component: Applications },
  { path: "sources", name: "Sources", needs: "see", component: Sources },
];

const columns: Column<List>[] = [
  { name: "List", width: "minmax(96px, 1.6fr)", cell: (l) => <Text value={l.name} max={80} />, sort: (l) => l.name },
  { name: "State", width: "minmax(88px, 112px)", cell: (l) => <State value={l.state} />, sort: (l) => l.state },
  {
    name: "Ids",
    width: "minmax(64px, 104px)",
    cell: (l) => count(l.serving?.count ?? 0),
    sort: (l) => l.serving?.count ?? 0,
    end: true,
  },
  {
    name: "Version",
    width: "72px",
    cell: (l) => (l.serving ? count(l.serving.number) : "–"),
    sort: (l) => l.serving?.number ?? 0,
    end: true,
    wide: true,
  },
  { name: "Edits", width: "72px", cell: (l) => count(l.edits), sort: (l) => l.edits, end: true, wide: true },
  {
    name: "Size",
    width: "96px",
    cell: (l) => bytes(l.serving?.bytes ?? 0),
    sort: (l) => l.serving?.bytes ?? 0,
    end: true,
    wide: true,
  },
  {
    name: "Segments",
    width: "80px",
    cell: (l) => count(l.serving?.segments ?? 0),
    sort: (l) => l.serving?.segments ?? 0,
    end: true,
    wide: true,
  },
  { name: "Server", width: "96px", cell: (l) => <Text value={l.server || "control"} max={40} />, wide: true },
  {
    name: "Owner",
    width: "minmax(80px, 1fr)",
    cell: (l) => <Text value={l.application || "–"} max={80} />,
    sort: (l) => l.application ?? "",
    wide: true,
  },
];

function ListTable() {
  const read = useCallback(async (after: string, signal: AbortSignal) => {
    const page = await get("/v1/lists", { query: { after, limit: 200 }, signal });
    return { rows: page.lists ?? [], cursor: page.after };
  }, []);
  const list = usePages("lists", read);
  return (
    <>
      <p class="bar">
        <span class="faint">
          {list.at > 0 && (
            <>
              as of <Age at={list.at} />{" "}
            </>
          )}
          <button type="button" onClick={list.again} disabled={list.busy}>
            Refresh
          </button>
        </span>
      </p>
      {list.error && <Failed error={list.error} again={list.again} />}
      {list.rows.length === 0 && list.busy && <Loading rows={6} />}
      {list.rows.length === 0 && !list.busy && !list.error && (
        <Empty title="There is no list yet">The first import into a list needs one: schedctl lists apply NAME.</Empty>
      )}
      {list.rows.length > 0 && (
        <Table
          label="Lists"
          columns={columns}
          rows={list.rows}
          id={(l) => l.name}
          to={(l) => href(["lists", l.name])}
          more={list.more}
          foot={list.busy ? "Reading on…" : plural(list.rows.length, "list")}
        />
      )}
      <Command line={schedctl(["lists", "ls"])} />
    </>
  );
}
