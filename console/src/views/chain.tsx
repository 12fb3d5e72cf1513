import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { type ApiError, change, get } from "../lib/api.ts";
import {
  applyDraft,
  type Chain,
  type ChainVersion,
  type Draft,
  deleteChain,
  endShadow,
  rollBack,
  startShadow,
} from "../lib/chains.ts";
import { type Fault, faultsOf, parseDocument } from "../lib/document.ts";
import { useFollow } from "../lib/follow.ts";
import { href, route, setQuery } from "../lib/route.ts";
import { narrow } from "../lib/screen.ts";
import { bytes, count, plural, pretty, schedctl } from "../lib/text.ts";
import { full, moment } from "../lib/time.ts";
import { Act, toast } from "../parts/act.tsx";
import { Difference, Editor } from "../parts/editor.tsx";
import { Age, Command, Empty, Facts, Failed, Loading, Panel, Scroll, Stale, Text } from "../parts/small.tsx";
import { Bench } from "./chainbench.tsx";
import { ChainFigures } from "./chainfigures.tsx";
import { type Client, Clients, useAsk } from "./list.tsx";

/** A chain with its versions and clients, as the topic has it. */
interface Known {
  chain: Chain;
  versions: { versions: ChainVersion[] | null };
  clients: { clients: Client[] | null };
}

async function readChain(chain: string, signal: AbortSignal): Promise<Known> {
  const sent = { path: { chain }, signal };
  const [one, versions, clients] = await Promise.all([
    get("/v1/chains/{chain}", sent),
    get("/v1/chains/{chain}/versions", sent),
    get("/v1/chains/{chain}/clients", sent),
  ]);
  return { chain: one, versions, clients };
}

/** One chain: its document, what it decides, and how that is changed. */
export function OneChain({ name }: { name: string }) {
  const { data, at, error, again } = useFollow<Known>(`chain:${name}`, (signal) => readChain(name, signal));
  const missing = error?.code === "not_found";
  const known = missing ? undefined : data;
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/chains">Chains</a>
      </nav>
      {error && !missing && (data ? <Stale since={at} why={error.message} /> : <Failed error={error} again={again} />)}
      {!data && !error && <Loading rows={8} />}
      {(known || missing) && <Detail name={name} known={known} again={again} />}
      <Command line={schedctl(["lists", "chain", "show"], {}, [name])} />
    </div>
  );
}

/** What a new chain begins with. */
const begin = (name: string) =>
  pretty({
    name,
    attributes: {},
    variants: {},
    rules: [{ name: "members", kind: "in", list: name, unknown: "skip", outcome: "allow" }],
    default: "deny",
  });

/** The edits of this tab, by chain: who looks elsewhere meanwhile finds them again. */
const drafts = signal<ReadonlyMap<string, Draft>>(new Map());

function useDraft(name: string): [Draft | undefined, (draft: Draft | undefined) => void] {
  return [
    drafts.value.get(name),
    (next) => {
      const all = new Map(drafts.peek());
      if (next) all.set(name, next);
      else all.delete(name);
      drafts.value = all;
    },
  ];
}

function Detail({ name, known, again }: { name: string; known: Known | undefined; again: () => void }) {
  const c = known?.chain;
  const versions = known?.versions.versions ?? [];
  const clients = known?.clients.clients ?? [];
  const shown = versions.find((v) => String(v.version) === route.value.query.get("version"));
  const [draft, setDraft] = useDraft(name);
  const serves: Draft = c
    ? { from: c.version, was: pretty(c.document), text: pretty(c.document) }
    : { from: 0, was: "", text: begin(name) };
  const putAway = (next: Draft | undefined, text: string) => {
    setDraft(next);
    const undo = async () => {
      setDraft(draft);
      return "The edit is back.";
    };
    toast(text, draft && { label: "Undo", run: undo });
  };
  return (
    <>
      <header class="bar title">
        <div>
          <h1>
            <Text value={name} />
          </h1>
        </div>
        {c && (
          <div class="acts">
            {versions[1] && <Act action={rollBack(c, versions[1])} />}
            <Act action={deleteChain(c)} />
          </div>
        )}
      </header>
      {!c && (
        <Empty title="There is no such chain">
          It decides unknown. Write its document below; the lists that it asks must exist.
        </Empty>
      )}
      <div class="panels">
        {c && <Serves chain={c} />}
        {c && (
          <Clients
            serving={c.version}
            clients={clients}
            none="No program or replica evaluates it."
            line={schedctl(["lists", "chain", "clients"], {}, [name])}
          />
        )}
        <Document
          name={name}
          serves={serves}
          draft={draft}
          setDraft={setDraft}
          drop={() => putAway(undefined, "The edit is dropped.")}
          again={again}
        />
        <Bench name={name} serves={serves.from} document={(draft ?? serves).text} edited={draft !== undefined} />
        {c?.shadow && <Shadow chain={c} edit={(text) => putAway({ ...serves, text }, "The editor has the shadow.")} />}
        {c && <ChainFigures name={name} />}
        {c && <Versions chain={c} versions={versions} />}
        {c && shown && <OneVersion key={shown.version} chain={c} version={shown} versions={versions} />}
      </div>
    </>
  );
}

/** What the page reads of a document. */
interface Read {
  attributes?: Record<string, string>;
  rules?: { name: string; kind: string; list?: string }[];
  default?: string;
}

function Serves({ chain: c }: { chain: Chain }) {
  const d = c.document as Read;
  const rules = d.rules ?? [];
  const lists = [...new Set(rules.filter((r) => r.kind === "in").map((r) => r.list || c.name))];
  return (
    <Panel title="Serves">
      <Facts
        rows={[
          { name: "Version", value: count(c.version) },
          { name: "Written", value: <Age at={c.at_ms} /> },
          { name: "By", value: <Text value={c.author || "–"} max={80} /> },
          { name: "Note", value: <Text value={c.note || "–"} max={300} /> },
          c.restores ? { name: "Is the document of", value: `version ${c.restores}` } : false,
          { name: "Rules", value: count(rules.length) },
          { name: "Otherwise", value: <Text value={d.default ?? "–"} max={80} /> },
          { name: "Attributes", value: <Text value={Object.keys(d.attributes ?? {}).join(", ") || "–"} max={300} /> },
          {
            name: "Asks",
            value:
              lists.length === 0
                ? "no list"
                : lists.map((l) => (
                    <div key={l}>
                      <a href={href(["lists", l])}>
                        <Text value={l} max={80} />
                      </a>
                    </div>
                  )),
          },
        ]}
      />
    </Panel>
  );
}

function Document({
  name,
  serves,
  draft,
  setDraft,
  drop,
  again,
}: {
  name: string;
  serves: Draft;
  draft: Draft | undefined;
  setDraft: (draft: Draft | undefined) => void;
  drop: () => void;
  again: () => void;
}) {
  const [refused, setRefused] = useState<Fault[]>([]);
  const d = draft ?? serves;
  const moved = d.from !== serves.from;
  const { value, faults } = parseDocument(d.text);
  const failed = (error: ApiError) => {
    if (error.code === "invalid_argument") setRefused(faultsOf(d.text, error, "document"));
    else again();
  };
  const check = useAsk(() =>
    change("post", "/v1/chains/{chain}/compare", {
      path: { chain: name },
      body: { document: value, subjects: [{ key: name }] },
    }).catch((cause) => {
      failed(cause);
      throw cause;
    }),
  );
  const not =
    faults.length > 0
      ? "It is no JSON."
      : moved
        ? `Version ${serves.from} serves now. Go on from it first.`
        : draft || serves.from === 0
          ? undefined
          : "Nothing is changed.";
  const edit = (text: string) => {
    setRefused([]);
    setDraft(text === serves.text && serves.from > 0 ? undefined : { ...d, text });
  };
  return (
    <Panel
      title="Document"
      wide
      aside={<small>{draft ? `edit of version ${d.from}` : serves.from ? `version ${serves.from}` : "new"}</small>}
    >
      {moved && (
        <div class="notice stale" role="status">
          <strong>
            Version {serves.from} serves now; this edit was made from version {d.from}
          </strong>
          <p>The edit is kept. This is what it changes in version {serves.from}:</p>
          <Difference label="Edit against what serves" before={serves.text} after={d.text} />
          <button type="button" onClick={() => setDraft({ ...serves, text: d.text })}>
            Go on from version {serves.from}
          </button>
        </div>
      )}
      <Editor label="The document, as JSON" text={d.text} onText={edit} faults={faults.length > 0 ? faults : refused} />
      <div class="acts">
        <button type="button" disabled={check.busy || faults.length > 0} onClick={() => void check.run()}>
          Check
        </button>
        <Act
          action={{
            label: "Apply",
            title: `Apply the document to chain ${name}`,
            needs: "change",
            not,
            consequence: (
              <>
                <p>It becomes the newest version, which serves at once. A shadow ends.</p>
                <Difference label="What changes" before={d.was} after={d.text} />
              </>
            ),
            ...applyDraft(name, d, value, failed, () => {
              setDraft(undefined);
              again();
            }),
          }}
        />
        {serves.from > 0 && <Act action={startShadow(name, d, value, not, failed)} />}
        {draft && (
          <button type="button" class="plain" onClick={drop}>
            Drop the edit
          </button>
        )}
      </div>
      {check.error && check.error.code !== "invalid_argument" && <Failed error={check.error} />}
      {check.answer && refused.length === 0 && <p role="status">The document is valid, and its lists exist.</p>}
    </Panel>
  );
}

function Shadow({ chain: c, edit }: { chain: Chain; edit: (text: string) => void }) {
  const document = pretty(c.shadow?.document);
  return (
    <Panel
      title="Shadow"
      wide
      aside={
        <div class="acts">
          <button type="button" onClick={() => edit(document)}>
            Take it into the editor
          </button>
          <Act action={endShadow(c)} />
        </div>
      }
    >
      <p>
        It is evaluated beside version {c.version} since <Age at={c.shadow?.at_ms} />
        {c.shadow?.by && (
          <>
            , by <Text value={c.shadow.by} max={160} />
          </>
        )}
        . What it decides otherwise is counted below. It differs so:
      </p>
      <Difference label="The shadow against what serves" before={pretty(c.document)} after={document} />
      <Command line={schedctl(["lists", "chain", "show"], { shadow: true }, [c.name])} />
    </Panel>
  );
}

function Versions({ chain: c, versions }: { chain: Chain; versions: ChainVersion[] }) {
  return (
    <Panel title="Versions" wide>
      <Scroll short label="Versions that are kept">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Version</th>
              <th scope="col">Written</th>
              <th scope="col">By</th>
              {!narrow.value && <th scope="col">Note</th>}
              <th scope="col" class="end">
                Size
              </th>
            </tr>
          </thead>
          <tbody>
            {versions.map((v) => (
              <tr key={v.version}>
                <th scope="row">
                  <a href={href(["chains", c.name], { version: String(v.version) })}>Version {v.version}</a>
                  {v.version === c.version ? " serves" : ""}
                </th>
                <td title={full(v.at_ms)}>{moment(v.at_ms)}</td>
                <td>
                  <Text value={v.author || "–"} max={60} />
                </td>
                {!narrow.value && (
                  <td>
                    {v.restores ? `restores ${v.restores} ` : ""}
                    <Text value={v.note || "–"} max={120} />
                  </td>
                )}
                <td class="end">{bytes(v.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <Command line={schedctl(["lists", "chain", "versions"], {}, [c.name])} />
    </Panel>
  );
}

function OneVersion({
  chain: c,
  version: v,
  versions,
}: {
  chain: Chain;
  version: ChainVersion;
  versions: ChainVersion[];
}) {
  const before = versions.find((one) => one.version < v.version)?.version ?? 0;
  const [from, setFrom] = useState(v.version === c.version ? before : c.version);
  const path = { chain: c.name };
  const diff = useFollow<components["schemas"]["ChainDiff"]>("", (signal) =>
    get("/v1/chains/{chain}/diff", { path, query: { from, to: v.version }, signal }),
  );
  return (
    <Panel
      title={`Version ${v.version}`}
      wide
      aside={
        <div class="acts">
          <Act action={rollBack(c, v)} />
          <button type="button" class="plain" onClick={() => setQuery({ version: undefined })}>
            Close
          </button>
        </div>
      }
    >
      <div class="ask">
        <label class="short">
          <span>Compared with</span>
          <select
            value={from}
            onChange={(event) => {
              setFrom(Number(event.currentTarget.value));
              diff.again();
            }}
          >
            {versions
              .filter((one) => one.version !== v.version)
              .map((one) => (
                <option key={one.version} value={one.version}>
                  version {one.version}
                </option>
              ))}
          </select>
        </label>
      </div>
      {diff.error && <Failed error={diff.error} />}
      {diff.data && <Changes diff={diff.data} />}
      <Command line={schedctl(["lists", "chain", "diff"], { from: from || "", to: v.version }, [c.name])} />
    </Panel>
  );
}

function Changes({ diff }: { diff: components["schemas"]["ChainDiff"] }) {
  const text = (value: unknown) => <Text value={value === undefined ? "–" : JSON.stringify(value)} max={300} />;
  const changes = diff.changes ?? [];
  return (
    <>
      <p class="faint">
        {plural(changes.length, "field")} of version {diff.to} differ{changes.length === 1 ? "s" : ""} from{" "}
        {diff.from ? `version ${diff.from}` : "nothing"}.
      </p>
      <Scroll short label="What differs">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Field</th>
              <th scope="col">Before</th>
              <th scope="col">After</th>
            </tr>
          </thead>
          <tbody>
            {changes.map((one) => (
              <tr key={one.field}>
                <th scope="row">
                  <Text value={one.field} max={120} />
                </th>
                <td>{text(one.before)}</td>
                <td>{text(one.after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** What a request changes in a chain: against the version that it was made from, and the whole document. */
export function ChainChange({ change: asked }: { change: unknown }) {
  const { What: what, Put: put } = asked as { What: string; Put: { Chain: string; Seen: number; Document: string } };
  const before = useFollow<components["schemas"]["ChainVersionShown"] | undefined>("", async (signal) =>
    put.Seen > 0 && put.Document
      ? get("/v1/chains/{chain}/versions/{version}", {
          path: { chain: put.Chain, version: String(put.Seen) },
          signal,
        })
      : undefined,
  );
  const after = put.Document ? pretty(parseDocument(put.Document).value) : "";
  return (
    <>
      <p>
        {what}{" "}
        <a href={href(["chains", put.Chain])}>
          <Text value={put.Chain} max={80} />
        </a>
        , made from version {put.Seen}
      </p>
      {before.data && <Difference label="What it changes" before={pretty(before.data.document)} after={after} />}
      {after && <Editor label="The document" text={after} />}
    </>
  );
}
