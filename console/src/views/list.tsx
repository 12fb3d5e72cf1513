import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import {
  acceptVersion,
  cancelOperation,
  deleteList,
  editEntries,
  freezeList,
  type List,
  switchList,
  type Version,
} from "../lib/lists.ts";
import { may } from "../lib/rights.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { narrow } from "../lib/screen.ts";
import { bytes, count, plural, schedctl } from "../lib/text.ts";
import { full, moment, now } from "../lib/time.ts";
import type { Upload } from "../lib/upload.ts";
import { Act } from "../parts/act.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { ListFigures } from "./listfigures.tsx";
import { Import } from "./listimport.tsx";
import { ListSource } from "./listsource.tsx";

export type Client = components["schemas"]["ListClient"];

/** A list with its versions, and the uploads at this replica, as the topic has it. */
interface Known {
  list: List;
  versions: { versions: Version[] | null };
  uploads: { uploads: Upload[] | null };
}

async function readList(list: string, signal: AbortSignal): Promise<Known> {
  const sent = { path: { list }, signal };
  const [one, versions, uploads] = await Promise.all([
    get("/v1/lists/{list}", sent),
    get("/v1/lists/{list}/versions", sent),
    get("/v1/lists/{list}/uploads", sent),
  ]);
  return { list: one, versions, uploads };
}

/** One list: what it answers, from which version, and how that is changed. */
export function OneList({ name }: { name: string }) {
  const { data, at, error, again } = useFollow<Known>(`list:${name}`, (signal) => readList(name, signal));
  const live = useFollow<{ clients: Client[] | null }>(`list-clients:${name}`, (signal) =>
    get("/v1/lists/{list}/clients", { path: { list: name }, signal }),
  );
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/lists">Lists</a>
      </nav>
      {error && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={8} />}
      {data && <Detail known={data} clients={live.data?.clients ?? []} missing={live.error} />}
      <Command line={schedctl(["lists", "show"], {}, [name])} />
    </div>
  );
}

function Detail({
  known,
  clients,
  missing,
}: {
  known: Known;
  clients: Client[];
  missing: { code: string; message: string } | undefined;
}) {
  const l = known.list;
  const versions = known.versions.versions ?? [];
  const shown = versions.find((v) => String(v.number) === route.value.query.get("version"));
  const before = versions.find((v) => v.number < (l.serving?.number ?? 0) && v.stopped_ms && !v.damaged && !v.doubt);
  return (
    <>
      <header class="bar title">
        <div>
          <h1>
            <State value={l.state} /> <Text value={l.name} />
          </h1>
        </div>
        <div class="acts">
          {l.operation && <Act action={cancelOperation(l)} />}
          {before && <Act action={switchList(l, before)} />}
          <Act action={freezeList(l)} />
          <Act action={deleteList(l, clients.length)} />
        </div>
      </header>
      {l.operation && (
        <div class="banner" role="status">
          {l.operation.kind} {l.operation.version ? `of version ${l.operation.version}` : ""} since{" "}
          <Age at={l.operation.since_ms} /> on <Text value={l.operation.replica} max={60} />
          {l.operation.why && (
            <>
              : <Text value={l.operation.why} max={300} />
            </>
          )}
        </div>
      )}
      <div class="panels">
        <Panel title="Answers" aside={<small>revision {count(l.revision)}</small>}>
          <Facts
            rows={[
              { name: "Serves version", value: l.serving ? count(l.serving.number) : "none yet" },
              { name: "Ids in it", value: count(l.serving?.count ?? 0) },
              { name: "Edits since", value: count(l.edits) },
              { name: "Size", value: bytes(l.serving?.bytes ?? 0) },
              { name: "Segments", value: count(l.serving?.segments ?? 0) },
              { name: "Filter at clients", value: `${l.filter || "fuse"}, ${bytes(l.serving?.filter_bytes ?? 0)}` },
              { name: "Form of ids", value: l.form || "exact" },
              { name: "Server", value: <Text value={l.server || "control"} max={80} /> },
              { name: "Owner", value: <Text value={l.application || "–"} max={80} /> },
              l.expires_ms ? { name: "The whole list ends", value: <Age at={l.expires_ms} /> } : false,
            ]}
          />
        </Panel>
        <Query name={l.name} />
        <Edit list={l} />
        <Clients
          serving={l.serving?.number ?? 0}
          next={l.next?.number}
          clients={clients}
          missing={missing}
          none="No live client reports this list."
          line={schedctl(["lists", "clients"], {}, [l.name])}
        />
        <Versions list={l} versions={versions} />
        {shown && <OneVersion key={shown.number} list={l} version={shown} />}
        <Import list={l} uploads={known.uploads.uploads ?? []} />
        {may("see") && <ListSource name={l.name} />}
        <ListFigures name={l.name} />
      </div>
    </>
  );
}

/** The ids of a field, one a line. */
function lines(text: string): string[] {
  return [...new Set(text.split(/\r?\n/).filter((line) => line !== ""))];
}

/** Runs something once at a time, and keeps what came of it. */
export function useAsk<T>(ask: () => Promise<T>) {
  const [state, setState] = useState<{ answer?: T; error?: ApiError; busy: boolean }>({ busy: false });
  const run = async (event?: Event) => {
    event?.preventDefault();
    if (state.busy) return;
    setState({ busy: true });
    try {
      setState({ answer: await ask(), busy: false });
    } catch (cause) {
      setState({ error: cause instanceof ApiError ? cause : new ApiError("internal", String(cause)), busy: false });
    }
  };
  return { ...state, run };
}

function Query({ name }: { name: string }) {
  const [text, setText] = useState("");
  const ids = lines(text);
  const { answer, error, busy, run } = useAsk(() =>
    change("post", "/v1/lists/{list}/query", { path: { list: name }, body: { ids } }),
  );
  return (
    <Panel title="Is an id in it?">
      <form class="ask" onSubmit={(event) => void run(event)}>
        <label>
          <span>Ids to ask for, one a line</span>
          <textarea rows={2} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={busy || ids.length === 0 || ids.length > 1000}>
          Ask
        </button>
      </form>
      {error && <Failed error={error} />}
      {answer && (
        <Scroll short label="Answers to ids">
          <table class="plain" aria-label="Answers">
            <tbody>
              {(answer.found ?? []).map((f) => (
                <tr key={f.id}>
                  <th scope="row">
                    <Text value={f.id} max={120} />
                  </th>
                  <td>
                    <State value={f.why ? "unknown" : f.member ? "yes" : "no"} />
                  </td>
                  <td>
                    {f.why ? (
                      <Text value={f.why} max={300} />
                    ) : f.edited ? (
                      "by an edit"
                    ) : answer.version ? (
                      `by version ${answer.version}`
                    ) : (
                      "no version serves"
                    )}
                    {f.expires_ms ? `, until ${full(f.expires_ms)}` : ""}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <Command line={schedctl(["lists", "query"], {}, [name, ...(ids.length ? ids.slice(0, 20) : ["ID"])])} />
    </Panel>
  );
}

const lasting: [minutes: number, label: string][] = [
  [0, "for ever"],
  [60, "1 hour"],
  [1440, "1 day"],
  [10_080, "7 days"],
  [43_200, "30 days"],
];

function Edit({ list }: { list: List }) {
  const [text, setText] = useState("");
  const [minutes, setMinutes] = useState(0);
  const ids = lines(text);
  return (
    <Panel title="Edit">
      <div class="ask">
        <label>
          <span>Ids to add or remove, one a line</span>
          <textarea rows={2} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <label class="short">
          <span>Added ids stay</span>
          <select value={minutes} onChange={(event) => setMinutes(Number(event.currentTarget.value))}>
            {lasting.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <div class="acts">
          <Act action={editEntries(list, ids, false, minutes * 60_000, now)} />
          <Act action={editEntries(list, ids, true, 0, now)} />
        </div>
      </div>
      {list.state === "frozen" && <p class="faint">It is frozen, so edits are refused.</p>}
    </Panel>
  );
}

const shownClients = 100;

/** The live clients of a list or a chain. */
export function Clients({
  serving,
  next,
  clients,
  missing,
  none,
  line,
}: {
  serving: number;
  next?: number | undefined;
  clients: Client[];
  missing?: { code: string; message: string } | undefined;
  none: string;
  line: string;
}) {
  const behind = clients.filter((c) => c.serves !== serving).length;
  const loaded = clients.filter((c) => next && (c.loaded ?? []).includes(next)).length;
  return (
    <Panel
      title="Clients"
      aside={
        <small>
          {next
            ? `${loaded} of ${clients.length} have loaded version ${next}`
            : clients.length
              ? `${behind} behind`
              : ""}
        </small>
      }
    >
      {missing && <Failed error={missing} />}
      {!missing && clients.length === 0 && <p class="faint">{none}</p>}
      {clients.length > 0 && (
        <Scroll short label="Live clients">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Client</th>
                <th scope="col">By</th>
                <th scope="col">Answers from</th>
                <th scope="col">Reported</th>
              </tr>
            </thead>
            <tbody>
              {clients.slice(0, shownClients).map((c) => (
                <tr key={c.id}>
                  <th scope="row">
                    <Text value={c.id} max={60} />
                  </th>
                  <td>
                    <Text value={c.owner} max={60} />
                  </td>
                  <td>{c.serves === serving ? `version ${c.serves}` : <b>version {c.serves}, behind</b>}</td>
                  <td>
                    <Age at={c.at_ms} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {clients.length > shownClients && <p class="faint">{count(clients.length - shownClients)} more are left out.</p>}
      <Command line={line} />
    </Panel>
  );
}

function stateOf(l: List, v: Version): string {
  if (v.damaged) return "damaged";
  if (v.number === l.serving?.number) return "serves";
  return v.doubt ? "in_doubt" : "ready";
}

function Versions({ list: l, versions }: { list: List; versions: Version[] }) {
  return (
    <Panel title="Versions" wide>
      {versions.length === 0 && <Empty title="No version yet">An import builds one; edits can be made without.</Empty>}
      {versions.length > 0 && (
        <Scroll short label="All versions">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Version</th>
                <th scope="col">State</th>
                <th scope="col" class="end">
                  Ids
                </th>
                <th scope="col" class="end">
                  Size
                </th>
                <th scope="col">Made</th>
                {!narrow.value && <th scope="col">By</th>}
                {!narrow.value && <th scope="col">Note</th>}
              </tr>
            </thead>
            <tbody>
              {versions.map((v) => (
                <tr key={v.number}>
                  <th scope="row">
                    <a href={href(["lists", l.name], { version: String(v.number) })}>Version {v.number}</a>
                  </th>
                  <td>
                    <State value={stateOf(l, v)} />
                  </td>
                  <td class="end">{count(v.count)}</td>
                  <td class="end">{bytes(v.bytes)}</td>
                  <td title={full(v.at_ms)}>{moment(v.at_ms)}</td>
                  {!narrow.value && (
                    <td>
                      <Text value={v.author || "–"} max={60} />
                    </td>
                  )}
                  {!narrow.value && (
                    <td>
                      <Text value={v.note || "–"} max={120} />
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}

function OneVersion({ list: l, version: v }: { list: List; version: Version }) {
  return (
    <Panel
      title={`Version ${v.number}`}
      wide
      aside={
        <div class="acts">
          {v.doubt && <Act action={acceptVersion(l, v)} />}
          <Act action={switchList(l, v)} />
          <button type="button" class="plain" onClick={() => setQuery({ version: undefined })}>
            Close
          </button>
        </div>
      }
    >
      <Facts
        rows={[
          { name: "State", value: <State value={stateOf(l, v)} /> },
          v.doubt && { name: "To be accepted, because", value: <Text value={v.doubt} max={400} /> },
          v.damaged && { name: "Damage", value: <Text value={v.damaged} max={400} /> },
          { name: "Segments", value: count(v.segments) },
          { name: "Filter", value: `${v.filter}, ${bytes(v.filter_bytes)}` },
          v.stopped_ms ? { name: "Served until", value: <Age at={v.stopped_ms} /> } : false,
          narrow.value && { name: "By", value: <Text value={v.author || "–"} max={80} /> },
          narrow.value && v.note ? { name: "Note", value: <Text value={v.note} max={300} /> } : false,
          { name: "Read back and found whole", value: <Age at={v.verified_ms} /> },
        ]}
      />
      {v.rejected ? <Rejects name={l.name} version={v.number} rejected={v.rejected} /> : null}
      {l.serving && v.number !== l.serving.number && <Diff name={l.name} version={v.number} base={l.serving.number} />}
    </Panel>
  );
}

function Rejects({ name, version, rejected }: { name: string; version: number; rejected: number }) {
  const path = { list: name, version: String(version) };
  const { answer, error, busy, run } = useAsk(() =>
    get("/v1/lists/{list}/versions/{version}/rejects", { path, query: { limit: 100 } }),
  );
  return (
    <>
      <h3>{plural(rejected, "line")} of its file refused</h3>
      {!answer && (
        <button type="button" disabled={busy} onClick={() => void run()}>
          Show them
        </button>
      )}
      {error && <Failed error={error} />}
      {answer && (
        <Scroll short label="Refused lines">
          <ul class="why">
            {(answer.rejects ?? []).map((r) => (
              <li key={r.line}>
                line {r.line}: <Text value={r.why} max={200} />
              </li>
            ))}
          </ul>
        </Scroll>
      )}
      <Command line={schedctl(["lists", "rejects"], {}, [name, String(version)])} />
    </>
  );
}

function Diff({ name, version, base }: { name: string; version: number; base: number }) {
  const path = { list: name, version: String(version) };
  const { answer, error, busy, run } = useAsk(() =>
    get("/v1/lists/{list}/versions/{version}/diff", { path, query: { with: base, examples: 20 } }),
  );
  const group = (label: string, part: { count: number; examples: { id: string }[] | null } | undefined) => ({
    name: `${label}: ${count(part?.count ?? 0)}`,
    value: (part?.examples ?? []).map((e) => (
      <div key={e.id}>
        <Text value={e.id} max={80} />
      </div>
    )),
  });
  return (
    <>
      <h3>Compared with version {base}, which serves</h3>
      {!answer && (
        <button type="button" disabled={busy} onClick={() => void run()}>
          {busy ? "Comparing…" : "Compare"}
        </button>
      )}
      {error && <Failed error={error} />}
      {answer && (
        <>
          <p>{plural(answer.same, "entry", "entries")} in both, with the same expiry.</p>
          <Facts
            rows={[
              group("Added", answer.added),
              group("Removed", answer.removed),
              group("With another expiry", answer.changed),
              group("Edits that a switch takes back", answer.dropped_edits),
            ]}
          />
        </>
      )}
      <Command line={schedctl(["lists", "diff"], { examples: 20 }, [name, String(version), String(base)])} />
    </>
  );
}
