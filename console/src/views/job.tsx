import { useEffect, useState } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { cancelJob, dropJob, hasEnded, requeueJob, resume, undrainNode } from "../lib/actions.ts";
import { ApiError, get } from "../lib/api.ts";
import { linksOf } from "../lib/links.ts";
import { useTopic } from "../lib/live.ts";
import { type Mend, mends } from "../lib/mend.ts";
import { href } from "../lib/route.ts";
import { session } from "../lib/session.ts";
import { count, plural, pretty, schedctl, words } from "../lib/text.ts";
import { clock, full, moment, span } from "../lib/time.ts";
import { type Course, type PastAttempt, type Segment, timeline } from "../lib/timeline.ts";
import { Act } from "../parts/act.tsx";
import { Age, Command, Copy, Facts, Failed, Loading, Panel, Scroll, Stale, State, Text } from "../parts/small.tsx";
import { viewAt } from "./index.ts";

type Status = components["schemas"]["JobStatus"];
type Explained = components["schemas"]["JobExplanation"];

interface JobData {
  job: Status;
  explain: Explained | null;
}

/** One job: what it is, why it is so, and what can be done. */
export function JobDetail({ id }: { id: string }) {
  const topic = useTopic<JobData>(`job:${id}`).value;
  const [first, setFirst] = useState<JobData>();
  const [error, setError] = useState<ApiError>();
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const sent = { path: { id }, signal: stop.signal };
    const fail = (cause: unknown) => {
      if (!stop.signal.aborted) setError(cause instanceof ApiError ? cause : new ApiError("internal", String(cause)));
    };
    setError(undefined);
    get("/v1/jobs/{id}/explain", sent).then(
      (explain) => setFirst({ job: explain.job, explain }),
      // A role may see a job without its explanation.
      (cause) =>
        cause instanceof ApiError && cause.code === "permission_denied"
          ? get("/v1/jobs/{id}", sent).then((job) => setFirst({ job, explain: null }), fail)
          : fail(cause),
    );
    return () => stop.abort();
  }, [id, asked]);
  const data = topic.data ?? first;
  const gone = error?.code === "not_found" || topic.error?.code === "not_found";
  return (
    <div class="view">
      <nav class="crumbs" aria-label="Way back">
        <a href="#/jobs">Jobs</a>
      </nav>
      {error && !data && <Failed error={error} again={gone ? undefined : () => setAsked(asked + 1)} />}
      {!data && !error && <Loading rows={6} />}
      {data && (
        <>
          {topic.error && !gone && <Stale since={topic.good} why={topic.error.message} />}
          {gone && (
            <Stale
              since={topic.good || clock.value}
              why="The job is not there any more: its retention has ended, or it was dropped."
            />
          )}
          <Detail
            job={data.job}
            explain={data.explain ?? (hasEnded(data.job.state) ? (first?.explain ?? null) : null)}
            trace={first?.explain?.trace_id}
          />
        </>
      )}
    </div>
  );
}

function Detail({ job, explain, trace }: { job: Status; explain: Explained | null; trace?: string | undefined }) {
  return (
    <>
      <header class="bar title">
        <div>
          <h1>
            <State value={job.state} /> <code>{job.job_id}</code>
          </h1>
          <Copy text={job.job_id} what="the job's id" />
          {linksOf(session.value?.links, { ...job, trace }).map((l) => (
            <a key={l.name} class="button" href={l.url} target="_blank" rel="noopener noreferrer">
              {l.name} ↗
            </a>
          ))}
        </div>
        <div class="acts">
          <Act action={requeueJob(job)} />
          <Act action={cancelJob(job)} />
          <Act action={dropJob(job)} />
        </div>
      </header>
      {job.error && (
        <div class="notice failed">
          <strong>
            <Text value={job.error.code} />
          </strong>
          <p>
            <Text value={job.error.message} max={2000} />
          </p>
        </div>
      )}
      <div class="panels">
        <WhyPanel job={job} explain={explain} />
        <FactsPanel job={job} />
        <TimelinePanel job={job} />
        <Progress job={job} />
        <Contents job={job} />
        {explain?.placement && <Placement placement={explain.placement} />}
      </div>
      <Command line={schedctl(["get"], {}, [job.job_id])} />
    </>
  );
}

function WhyPanel({ job, explain }: { job: Status; explain: Explained | null }) {
  if (!explain) return null;
  // Why an ended job ended is in its explanation; of a running one the timeline tells more.
  const help = hasEnded(job.state) ? [] : mends({ ...explain, job } as Parameters<typeof mends>[0]);
  return (
    <Panel title={hasEnded(job.state) ? "Why it ended so" : job.state === "running" ? "Where it is" : "Why it waits"}>
      <ul class="why">
        {(explain.why ?? []).map((reason) => (
          <li key={reason}>
            <Text value={reason} max={500} />
          </li>
        ))}
      </ul>
      {help.length > 0 && (
        <>
          <h3>What would help</h3>
          <ul class="mends">
            {help.map((m) => (
              <MendRow key={m.text} mend={m} />
            ))}
          </ul>
        </>
      )}
      <Command line={schedctl(["explain"], { job: job.job_id })} />
    </Panel>
  );
}

function MendRow({ mend }: { mend: Mend }) {
  const { call } = mend;
  return (
    <li>
      <Text value={mend.text} max={500} />
      <span class="acts">
        {mend.jobs && (
          <a class="button" href={href(["jobs"], mend.jobs)}>
            Show them
          </a>
        )}
        {mend.node && viewAt("nodes") && (
          <a class="button" href={href(["nodes", mend.node])}>
            Show node
          </a>
        )}
        {call?.do === "undrain" && <Act action={undrainNode(call.node)} />}
        {call?.do === "resume" && <Act action={resume(call.kind, call.name)} />}
      </span>
    </li>
  );
}

function FactsPanel({ job }: { job: Status }) {
  const later = job as Status & { requeued_as?: string; requeued_from?: string; schedule?: string };
  const link = (id: string) => (
    <a href={href(["jobs", id])}>
      <code>{id}</code>
    </a>
  );
  return (
    <Panel title="Job">
      <Facts
        rows={[
          { name: "Service", value: <Text value={job.service} /> },
          { name: "Tenant", value: <Text value={job.tenant} /> },
          { name: "Node", value: job.node ? <NodeLink node={job.node} /> : "none yet" },
          {
            name: "Attempt",
            value: `${count(job.attempt)}${job.failures ? `, ${plural(job.failures, "failure")}` : ""}`,
          },
          { name: "Slots", value: count(job.slots) },
          { name: "Priority", value: count(job.priority ?? 0) },
          job.class && {
            name: "Queue (class)",
            value: <a href={href(["jobs"], { class: job.class })}>{job.class}</a>,
          },
          job.position && { name: "Place in its queue", value: count(job.position) },
          job.held_by && { name: "Held by", value: words(job.held_by) },
          { name: "Submitted", value: <When at={job.submitted_at_ms} /> },
          job.run_at_ms && { name: "Begins to wait", value: <When at={job.run_at_ms} /> },
          job.assigned_at_ms && { name: "Last attempt began", value: <When at={job.assigned_at_ms} /> },
          job.finished_at_ms && { name: "Ended", value: <When at={job.finished_at_ms} /> },
          job.deadline_ms && { name: "Deadline", value: <When at={job.deadline_ms} /> },
          later.schedule && {
            name: "Schedule",
            value: (
              <a href={href(["schedules", later.schedule], { tenant: job.tenant })}>
                <Text value={later.schedule} />
              </a>
            ),
          },
          later.requeued_from && { name: "Requeued from", value: link(later.requeued_from) },
          later.requeued_as && { name: "Requeued as", value: link(later.requeued_as) },
        ]}
      />
    </Panel>
  );
}

function NodeLink({ node }: { node: string }) {
  const text = <Text value={node} max={80} />;
  return viewAt("nodes") ? <a href={href(["nodes", node])}>{text}</a> : text;
}

function When({ at }: { at: number }) {
  return (
    <span title={full(at)}>
      {moment(at)} <small>{<Age at={at} />}</small>
    </span>
  );
}

function TimelinePanel({ job }: { job: Status }) {
  const course: Course = job as Status & { attempts?: PastAttempt[] };
  const ongoing = !hasEnded(job.state);
  const segments = timeline(course, ongoing ? clock.value : 0);
  const from = segments[0]?.from ?? job.submitted_at_ms;
  const to = segments.at(-1)?.to ?? from;
  const total = Math.max(1, to - from);
  return (
    <Panel title="Timeline" wide aside={<small>{span(to - from)} in all</small>}>
      <div class="timeline" aria-hidden="true">
        {segments.map((s) => (
          <span
            key={`${s.kind}${s.from}${s.label}`}
            class={`${s.kind} ${s.state}`}
            title={`${s.label}: ${span(s.to - s.from)}`}
            style={{ flexGrow: (s.to - s.from) / total }}
          />
        ))}
      </div>
      <div class="scale" aria-hidden="true">
        <span>{moment(from)}</span>
        <span>{ongoing ? "now" : moment(to)}</span>
      </div>
      <Scroll label="Timeline, as a table">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">Node</th>
              <th scope="col">Began</th>
              <th scope="col" class="end">
                Took
              </th>
              <th scope="col">State or end</th>
              <th scope="col">Code</th>
            </tr>
          </thead>
          <tbody>
            {segments.map((s) => (
              <SegmentRow key={`${s.kind}${s.from}${s.label}`} segment={s} />
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function SegmentRow({ segment: s }: { segment: Segment }) {
  return (
    <tr class={s.kind}>
      <th scope="row">
        <span class={`key ${s.kind} ${s.state}`} aria-hidden="true" /> {s.label}
      </th>
      <td>{s.node ? <NodeLink node={s.node} /> : ""}</td>
      <td title={full(s.from)}>{moment(s.from)}</td>
      <td class="end">{span(s.to - s.from)}</td>
      <td>{s.kind === "run" ? <State value={s.state} /> : <span class="faint">{words(s.state)}</span>}</td>
      <td>{s.code && <Text value={s.code} max={64} />}</td>
    </tr>
  );
}

function Progress({ job }: { job: Status }) {
  const p = job.progress;
  if (!p) return null;
  const value: unknown = p.value;
  const part = fraction(value);
  return (
    <Panel
      title="Progress"
      aside={
        <small>
          {<Age at={p.at_ms} />}, attempt {p.attempt}
        </small>
      }
    >
      {part !== undefined && (
        <progress max={1} value={part} aria-label="Progress">
          {Math.round(part * 100)} %
        </progress>
      )}
      <pre dir="auto">{pretty(value, 4000)}</pre>
    </Panel>
  );
}

/** The part that is done, where a handler tells it as a number from 0 to 1, or as percent. */
function fraction(value: unknown): number | undefined {
  if (typeof value === "number") return value >= 0 && value <= 1 ? value : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  const { percent, fraction: part } = value as { percent?: unknown; fraction?: unknown };
  if (typeof percent === "number" && percent >= 0 && percent <= 100) return percent / 100;
  return typeof part === "number" ? fraction(part) : undefined;
}

function Contents({ job }: { job: Status }) {
  const [spec, setSpec] = useState<unknown>();
  const [error, setError] = useState<ApiError>();
  const [result, setResult] = useState(false);
  const hidden = session.value?.payloads === false;
  const load = () =>
    get("/v1/jobs/{id}/spec", { path: { id: job.job_id } }).then(setSpec, (cause) => setError(cause as ApiError));
  return (
    <Panel title="Payload and result">
      <div class="acts">
        <button
          type="button"
          aria-expanded={spec !== undefined}
          disabled={hidden}
          onClick={() => (spec ? setSpec(undefined) : void load())}
        >
          {spec ? "Hide submission" : "Show submission"}
        </button>
        <button
          type="button"
          aria-expanded={result}
          disabled={hidden || job.result === undefined}
          title={job.result === undefined ? "There is no result." : undefined}
          onClick={() => setResult(!result)}
        >
          {result ? "Hide result" : "Show result"}
        </button>
      </div>
      {hidden && <p class="faint">Your role may not see payloads and results, or console.payloads hides them.</p>}
      {error && <Failed error={error} />}
      {result && <Value label="Result" value={job.result} />}
      {spec !== undefined && <Value label="Submission" value={spec} />}
      <Command line={schedctl(["get"], { spec: true }, [job.job_id])} />
    </Panel>
  );
}

function Value({ label, value }: { label: string; value: unknown }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <pre class="value" dir="auto" role="region" aria-label={label} tabIndex={0}>
      {pretty(value)}
    </pre>
  );
}

function Placement({ placement: p }: { placement: NonNullable<Explained["placement"]> }) {
  return (
    <Panel
      title="Nodes"
      wide
      aside={
        <small>
          {count(p.fits)} of {plural(p.total, "node")} fit, {count(p.qualify)} could take it now
        </small>
      }
    >
      <Scroll label="Nodes, as a table">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">What speaks against it</th>
              <th scope="col">Detail</th>
              <th scope="col" class="end">
                Slots used
              </th>
            </tr>
          </thead>
          <tbody>
            {(p.nodes ?? []).slice(0, shownNodes).map((n) => (
              <tr key={n.node}>
                <th scope="row">
                  <NodeLink node={n.node} />
                </th>
                <td>{n.reason ? words(n.reason) : "nothing"}</td>
                <td>{n.detail && <Text value={n.detail} max={300} />}</td>
                <td class="end">
                  {count(n.used)} of {count(n.max_concurrency)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {p.total > shownNodes && <p class="faint">{count(p.total - shownNodes)} further nodes are left out.</p>}
    </Panel>
  );
}

const shownNodes = 20;
