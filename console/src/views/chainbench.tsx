import { useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { type ApiError, change } from "../lib/api.ts";
import { subjectFaults, subjectsOf } from "../lib/chains.ts";
import { type Fault, parseDocument } from "../lib/document.ts";
import { count, plural, schedctl } from "../lib/text.ts";
import { Editor } from "../parts/editor.tsx";
import { Command, Failed, Panel, Scroll, State, Text } from "../parts/small.tsx";
import { useAsk } from "./list.tsx";

type Schemas = components["schemas"];

const most = 1000;

/** Subjects to try: what the chain decides for each of them and why, and what the document in the editor would. */
export function Bench({
  name,
  serves,
  document,
  edited,
}: {
  name: string;
  serves: number;
  document: string;
  edited: boolean;
}) {
  const [text, setText] = useState("");
  const [refused, setRefused] = useState<Fault[]>([]);
  const { subjects, lines, faults } = subjectsOf(text);
  const path = { chain: name };
  const failed = (cause: unknown): never => {
    setRefused(subjectFaults(cause as ApiError, lines));
    throw cause;
  };
  const keys = subjects.map((s) => s.key);
  const decided = useAsk(async () => ({
    keys,
    decisions:
      (await change("post", "/v1/chains/{chain}/evaluate", { path, body: { subjects } }).catch(failed)).decisions ?? [],
  }));
  const compared = useAsk(() =>
    change("post", "/v1/chains/{chain}/compare", {
      path,
      body: { document: parseDocument(document).value, subjects },
    }).catch(failed),
  );
  const ready = subjects.length > 0 && subjects.length <= most && faults.length === 0;
  const busy = decided.busy || compared.busy;
  const error = decided.error ?? compared.error;
  return (
    <Panel title="Test bench" wide>
      <Editor
        label={'Subjects: in each line a key, or JSON such as {"key":"user-1","attributes":{"age":30}}'}
        text={text}
        rows={5}
        onText={(next) => {
          setRefused([]);
          setText(next);
        }}
        faults={faults.length > 0 ? faults : refused}
      />
      <div class="acts">
        {serves > 0 && (
          <button type="button" disabled={busy || !ready} onClick={() => void decided.run()}>
            Evaluate
          </button>
        )}
        {edited && (
          <button
            type="button"
            disabled={busy || !ready || parseDocument(document).faults.length > 0}
            onClick={() => void compared.run()}
          >
            Compare with the edit
          </button>
        )}
        <span class="faint">{subjects.length > most ? `at most ${most}` : plural(subjects.length, "subject")}</span>
      </div>
      {error && refused.length === 0 && <Failed error={error} />}
      {decided.answer && <Decisions {...decided.answer} />}
      <Command line={schedctl(["lists", "chain", "evaluate"], { file: "subjects.jsonl" }, [name])} />
      {compared.answer && <Compared answer={compared.answer} />}
      {edited && (
        <Command
          line={schedctl(["lists", "chain", "apply"], { "dry-run": "subjects.jsonl" }, [name, `${name}.json`])}
        />
      )}
    </Panel>
  );
}

function Decisions({ keys, decisions }: { keys: string[]; decisions: Schemas["ChainDecision"][] }) {
  return (
    <Scroll short label="What it decides">
      <table class="plain" aria-label="Decisions">
        <thead>
          <tr>
            <th scope="col">Subject</th>
            <th scope="col">Outcome</th>
            <th scope="col">Rule</th>
            <th scope="col">Why</th>
            <th scope="col">Asked</th>
          </tr>
        </thead>
        <tbody>
          {decisions.map((d, i) => (
            <tr key={i}>
              <th scope="row">
                <Text value={keys[i] ?? ""} max={80} />
              </th>
              <td>
                <State value={d.outcome} /> {d.variant && <Text value={d.variant} max={80} />}
              </td>
              <td>
                <Text value={d.rule || "–"} max={80} />
              </td>
              <td>
                <Text value={d.doubt ? `${d.reason}; ${d.doubt}` : d.reason} max={300} />
              </td>
              <td>
                <Text value={(d.lists ?? []).map((l) => `${l.list} ${l.version}`).join(", ") || "–"} max={120} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Compared({ answer: a }: { answer: Schemas["CompareAnswer"] }) {
  return (
    <>
      <p role="status">
        The edit changes the outcome of {count(a.changed)} of {plural(a.subjects, "subject")}
        {a.version > 0 ? `, against version ${a.version}` : ""}.
        {a.unknown > 0 && ` ${count(a.unknown)} would be unknown: give their attributes.`}
      </p>
      {a.changed > 0 && (
        <Scroll short label="What the edit changes">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Subject</th>
                <th scope="col">Before</th>
                <th scope="col">After</th>
              </tr>
            </thead>
            <tbody>
              {(a.changes ?? []).map((c) => (
                <tr key={`${c.before} ${c.after}`}>
                  <th scope="row">all {count(c.subjects)}</th>
                  <td>
                    <Text value={c.before} max={80} />
                  </td>
                  <td>
                    <Text value={c.after} max={80} />
                  </td>
                </tr>
              ))}
              {(a.examples ?? []).map((e) => (
                <tr key={e.key}>
                  <th scope="row">
                    <Text value={e.key} max={80} />
                  </th>
                  <td>
                    <Text value={e.before} max={120} />
                  </td>
                  <td>
                    <Text value={e.after} max={120} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}
