import { useEffect, useRef, useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, change, get } from "../lib/api.ts";
import { useFollow } from "../lib/follow.ts";
import type { List } from "../lib/lists.ts";
import { may, whoMay } from "../lib/rights.ts";
import { bytes, count, plural, schedctl } from "../lib/text.ts";
import { type Upload, upload } from "../lib/upload.ts";
import { Act, type Action } from "../parts/act.tsx";
import { Command, Facts, Failed, Panel, Scroll, State, Text } from "../parts/small.tsx";

const modes: [value: string, label: string][] = [
  ["replace", "replace all ids"],
  ["add", "add its ids"],
  ["remove", "remove its ids"],
];

/** Sends a file of ids to a list. What an interruption leaves is gone on with, by the same file. */
export function Import({ list: l, uploads }: { list: List; uploads: Upload[] }) {
  const [file, setFile] = useState<File>();
  const [mode, setMode] = useState("replace");
  const [switches, setSwitches] = useState(false);
  const [note, setNote] = useState("");
  const [former, setFormer] = useState("");
  const [u, setU] = useState<Upload>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const why = may("changeOwn") ? (file ? undefined : "Choose a file first.") : whoMay("changeOwn");
  const run = async (event: Event) => {
    event.preventDefault();
    if (!file || busy || why) return;
    stop.current = new AbortController();
    setBusy(true);
    setError(undefined);
    setU(undefined);
    try {
      await upload(l.name, file, { mode, switch: switches, note }, former, setU, stop.current.signal);
      setFormer("");
    } catch (cause) {
      if (!stop.current.signal.aborted) {
        setError(cause instanceof ApiError ? cause : new ApiError("internal", String(cause)));
      }
    }
    setBusy(false);
  };
  const flags = former ? { upload: former } : { mode, switch: switches, note, reason: note };
  return (
    <Panel title="Import a file" wide>
      <form class="ask" onSubmit={(event) => void run(event)}>
        <label>
          <span>A file of ids: csv or txt, also by gzip</span>
          <input type="file" disabled={busy} onChange={(event) => setFile(event.currentTarget.files?.[0])} />
        </label>
        <label class="short">
          <span>What it does</span>
          <select
            value={mode}
            disabled={busy || former !== ""}
            onChange={(event) => setMode(event.currentTarget.value)}
          >
            {modes.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>Note, also for the audit</span>
          <input
            value={note}
            maxLength={80}
            disabled={busy}
            autocomplete="off"
            onInput={(event) => setNote(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={switches}
            disabled={busy || former !== ""}
            onChange={(event) => setSwitches(event.currentTarget.checked)}
          />{" "}
          Switch to it when nothing speaks against it
        </label>
        <button type="submit" class="solid" aria-disabled={why || busy ? true : undefined} title={why}>
          {busy ? "Working…" : former ? "Go on" : "Import"}
        </button>
        {busy && (
          <button type="button" onClick={() => stop.current.abort()}>
            Interrupt
          </button>
        )}
      </form>
      <Command line={schedctl(["lists", "import"], flags, [l.name, file?.name ?? "FILE"])} />
      {error && <Failed error={error} />}
      {u && <Progress upload={u} size={file?.size ?? 0} />}
      <Uploads all={uploads} former={former} onGoOn={setFormer} busy={busy} />
    </Panel>
  );
}

function Progress({ upload: u, size }: { upload: Upload; size: number }) {
  const p = u.progress;
  const rejected = u.report?.rejected ?? 0;
  const label =
    u.state === "building" ? (p ? `building: ${p.step}` : "building") : `${bytes(u.bytes)} of ${bytes(size)}`;
  return (
    <div class="sent" role="status">
      <p>
        <State value={u.state} /> {u.state === "open" || u.state === "building" ? label : ""}
        {u.state === "ready" && `Version ${u.version?.number} has ${plural(u.version?.count ?? 0, "id")}.`}
      </p>
      {u.state === "open" && <progress aria-label="Sent" max={Math.max(1, size)} value={u.bytes} />}
      {u.state === "building" && <progress aria-label="Built" max={Math.max(1, p?.total ?? 1)} value={p?.done ?? 0} />}
      {u.why && <Failed error={{ code: u.state, message: u.why }} />}
      {u.version?.doubt && (
        <p>
          It must be accepted before it serves: <Text value={u.version.doubt} max={300} />
        </p>
      )}
      {u.unpublished && <Text value={u.unpublished} max={300} />}
      {u.report && (
        <Facts
          rows={[
            { name: "Lines", value: count(u.report.lines) },
            { name: "Duplicates", value: count(u.report.duplicates) },
            { name: "Refused", value: count(rejected) },
            { name: "Expired before", value: count(u.report.expired ?? 0) },
            u.report.header_like && {
              name: "Read as an id, looks like a header",
              value: <Text value={u.report.header_like} />,
            },
          ]}
        />
      )}
      {rejected > 0 && <Refused key={`${u.id} ${rejected}`} id={u.id} list={u.list} />}
    </div>
  );
}

function Refused({ id, list }: { id: string; list: string }) {
  const { data, error } = useFollow<components["schemas"]["Rejects"]>("", (signal) =>
    get("/v1/list-uploads/{upload}/rejects", { path: { upload: id }, query: { limit: 100 }, signal }),
  );
  return (
    <>
      <h3>Refused lines</h3>
      {error && <Failed error={error} />}
      <Scroll short label="Lines that the import refused">
        <ul class="why">
          {(data?.rejects ?? []).map((r) => (
            <li key={r.line}>
              line {r.line}: <Text value={r.why} max={200} />
            </li>
          ))}
        </ul>
      </Scroll>
      <Command line={schedctl(["lists", "rejects"], { upload: id }, [list])} />
    </>
  );
}

function Uploads(props: { all: Upload[]; former: string; onGoOn: (id: string) => void; busy: boolean }) {
  const open = props.all.filter((u) => u.state === "open");
  if (open.length === 0 || props.busy) return null;
  return (
    <>
      <h3>Interrupted uploads at this replica</h3>
      <ul class="mends">
        {open.map((u) => (
          <li key={u.id}>
            <span>
              <code>{u.id}</code> {bytes(u.bytes)}, {u.mode}, by <Text value={u.by.author || "–"} max={60} />
            </span>
            <span class="acts">
              <button type="button" onClick={() => props.onGoOn(props.former === u.id ? "" : u.id)}>
                {props.former === u.id ? "Begin anew" : "Go on with it"}
              </button>
              <Act action={forget(u)} />
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function forget(u: Upload): Action {
  return {
    label: "Forget",
    title: `Forget upload ${u.id}`,
    needs: "changeOwn",
    danger: true,
    consequence: `${bytes(u.bytes)} that were sent are dropped. The list is as it was.`,
    command: (reason) => schedctl(["lists", "uploads", "rm"], { reason }, [u.id]),
    run: async (reason) => {
      await change("delete", "/v1/list-uploads/{upload}", { path: { upload: u.id }, reason });
      return `Upload ${u.id} is forgotten.`;
    },
  };
}
