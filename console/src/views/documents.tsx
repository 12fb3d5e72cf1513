import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import { go, href, route } from "../lib/route.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { Act, type Action } from "../parts/act.tsx";
import { Difference, Editor } from "../parts/editor.tsx";
import { Age, Command, Empty, Failed, Loading, Panel, Scroll, Text } from "../parts/small.tsx";

type Document = components["schemas"]["ConfigDocument"];
type Version = components["schemas"]["ConfigDocumentVersion"];
const path = "/admin/registry/config/{name}";

/** The configuration documents of the registry, or one of them. */
export function Documents() {
  const name = route.value.path[1];
  return name ? <DocumentDetail key={name} name={name} /> : <DocumentList />;
}

function DocumentList() {
  const { data, error, again } = useFollow("", (signal) =>
    get("/admin/registry/config", { query: { limit: 1000 }, signal }),
  );
  const [name, setName] = useState("");
  const list = data?.documents ?? [];
  return (
    <div class="view">
      <header class="bar">
        <h1>Documents</h1>
        <button type="button" onClick={again}>
          Refresh
        </button>
      </header>
      {error && <Failed error={error} again={again} />}
      {!data && !error && <Loading rows={4} />}
      {data && list.length === 0 && (
        <Empty title="There is no document">Programs of the registry share settings by them.</Empty>
      )}
      {list.length > 0 && (
        <Scroll label="Documents, as a table">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Document</th>
                <th scope="col" class="end">
                  Version
                </th>
                <th scope="col">Written</th>
              </tr>
            </thead>
            <tbody>
              {list.map((d) => (
                <tr key={d.name}>
                  <th scope="row">
                    <a href={href(["documents", d.name])}>
                      <Text value={d.name} max={120} />
                    </a>
                  </th>
                  <td class="end">{count(d.version)}</td>
                  <td>
                    <Age at={d.at_ms} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <form
        class="filter"
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) go(href(["documents", name.trim()]));
        }}
      >
        <label>
          <span>Name of a new document</span>
          <input
            value={name}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </label>
        <button type="submit">Write it</button>
      </form>
      <Command line={schedctl(["registry", "config", "ls"])} />
    </div>
  );
}

type Known = { document: Document; versions: Version[] };
const none = (name: string): Known => ({
  document: { name, version: 0, content: "", at_ms: 0, bytes: 0 },
  versions: [],
});

async function read(name: string, signal?: AbortSignal): Promise<Known> {
  const sent = { path: { name }, ...(signal ? { signal } : {}) };
  try {
    const [document, history] = await Promise.all([get(path, sent), get(`${path}/history`, sent)]);
    return { document, versions: history.versions ?? [] };
  } catch (cause) {
    if (cause instanceof ApiError && cause.code === "not_found") return none(name);
    throw cause;
  }
}

function DocumentDetail({ name }: { name: string }) {
  const { data, error, again } = useFollow("", (signal) => read(name, signal));
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/documents">Documents</a>
      </nav>
      {error && <Failed error={error} again={again} />}
      {!data && !error && <Loading rows={6} />}
      {data && <Editing name={name} first={data} />}
    </div>
  );
}

function Editing({ name, first }: { name: string; first: Known }) {
  // What the text was made from. After a conflict it is the newest version, and the text stays.
  const [base, setBase] = useState(first);
  const [text, setText] = useState(first.document.content);
  const [conflict, setConflict] = useState(false);
  const { version, content } = base.document;
  const newest = async (cause: unknown): Promise<never> => {
    if (cause instanceof ApiError && cause.code === "conflict") {
      setBase(await read(name));
      setConflict(true);
    }
    throw cause;
  };
  const written = async (replace: boolean) => {
    const now = await read(name);
    setBase(now);
    setConflict(false);
    if (replace) setText(now.document.content);
    return now.document.version;
  };
  const save: Action = {
    label: version === 0 ? "Write" : "Save",
    title: `Write version ${version + 1} of ${name}`,
    needs: "change",
    not: text === content && version > 0 ? "Nothing has changed." : undefined,
    consequence: (
      <>
        <p>Programs that follow it get it at once.</p>
        <Difference label="What changes" before={content} after={text} />
      </>
    ),
    command: (note) => schedctl(["registry", "config", "set"], { seen: version, note, reason: note }, [name, "FILE"]),
    run: async (note) => {
      await change("put", path, {
        path: { name },
        body: { version, content: text, note: note || undefined },
        reason: note,
      }).catch(newest);
      return `${name} has version ${await written(false)}.`;
    },
  };
  const remove: Action = {
    label: "Delete",
    title: `Delete ${name}`,
    needs: "change",
    danger: true,
    typed: name,
    not: version === 0 ? "It is not there." : undefined,
    consequence: "Its history goes, too. Programs that follow it are told that there is none.",
    command: (reason) => schedctl(["registry", "config", "rm"], { seen: version, reason }, [name]),
    run: async (reason) => {
      await change("delete", path, { path: { name }, query: { version }, reason }).catch(newest);
      go(href(["documents"]));
      return `${name} is deleted.`;
    },
  };
  const rollback = (to: Version): Action => ({
    label: `Roll back to ${to.version}`,
    title: `Roll ${name} back to version ${to.version}`,
    needs: "change",
    not: to.version === version ? "It is the newest." : undefined,
    consequence: `Version ${to.version} is written again as the newest. An unsaved text in the editor is replaced.`,
    command: (note) =>
      schedctl(["registry", "config", "rollback"], { seen: version, note, reason: note }, [name, String(to.version)]),
    run: async (note) => {
      const body = { version, restore: to.version, note: note || undefined };
      await change("post", "/admin/registry/config/{name}/rollback", { path: { name }, body, reason: note }).catch(
        newest,
      );
      return `${name} has version ${await written(true)}.`;
    },
  });
  return (
    <>
      <header class="bar title">
        <h1>
          <Text value={name} />
        </h1>
        <div class="acts">
          <Act action={save} />
          <Act action={remove} />
        </div>
      </header>
      {conflict && (
        <div class="notice" role="status">
          <strong>Version {count(version)} was written meanwhile</strong>
          <p>
            Your text is as you left it. This is how it differs from the newest version; saving writes it on that one.
          </p>
          <Difference label="Yours against the newest" before={content} after={text} />
          <button
            type="button"
            onClick={() => {
              setText(content);
              setConflict(false);
            }}
          >
            Take the newest instead
          </button>
        </div>
      )}
      <Editor label={version === 0 ? "New document" : `Made from version ${version}`} text={text} onText={setText} />
      <Command line={schedctl(["registry", "config", "get"], {}, [name])} />
      <History name={name} base={base} rollback={rollback} />
    </>
  );
}

function History({ name, base, rollback }: { name: string; base: Known; rollback: (v: Version) => Action }) {
  const [shown, setShown] = useState<Document>();
  const [error, setError] = useState<ApiError>();
  const show = (version: number) =>
    get(path, { path: { name }, query: { version } }).then(setShown, (cause) => setError(cause as ApiError));
  if (base.versions.length === 0) return null;
  return (
    <Panel title="Versions" aside={<small>{plural(base.versions.length, "version")} kept</small>} wide>
      <Scroll label="Versions, as a table" short>
        <table class="plain">
          <thead>
            <tr>
              {["Version", "Written", "By", "Note", ""].map((head) => (
                <th scope="col" key={head}>
                  {head || <span class="hidden">Actions</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {base.versions.map((v) => (
              <tr key={v.version}>
                <th scope="row">
                  {count(v.version)}
                  {v.restores ? ` (as ${v.restores})` : ""}
                </th>
                <td>
                  <Age at={v.at_ms} />
                </td>
                <td>
                  <Text value={v.author ?? ""} max={80} />
                </td>
                <td>
                  <Text value={v.note ?? ""} max={120} />
                </td>
                <td>
                  <button type="button" onClick={() => void show(v.version)}>
                    Compare<span class="hidden"> version {v.version} with the newest</span>
                  </button>{" "}
                  {v.version !== base.document.version && <Act action={rollback(v)} />}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {error && <Failed error={error} />}
      {shown && (
        <>
          <h3>
            From version {count(shown.version)} to {count(base.document.version)}
          </h3>
          <Difference label="Difference of two versions" before={shown.content} after={base.document.content} />
          <Command
            line={schedctl(["registry", "config", "diff"], { from: shown.version, to: base.document.version }, [name])}
          />
        </>
      )}
      <Command line={schedctl(["registry", "config", "history"], {}, [name])} />
    </Panel>
  );
}
