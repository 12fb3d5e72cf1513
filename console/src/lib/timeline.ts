import { count } from "./text.ts";

export interface PastAttempt {
  attempt: number;
  node: string;
  began_at_ms: number;
  ended_at_ms: number;
  ended: string;
  code?: string;
}

/** What a timeline needs of a job. */
export interface Course {
  state: string;
  node: string;
  attempt: number;
  submitted_at_ms: number;
  assigned_at_ms: number;
  finished_at_ms?: number;
  run_at_ms?: number;
  attempts?: PastAttempt[];
  error?: { code: string };
}

export interface Segment {
  kind: "wait" | "run";
  /** How a run ended, or the state of what goes on. */
  state: string;
  from: number;
  to: number;
  label: string;
  attempt?: number;
  node?: string;
  code?: string;
}

/**
 * A job's course from its submission to its end, or to now. Segments join, and none is negative: where clocks or
 * records disagree, the later one begins where the former ends.
 */
export function timeline(job: Course, nowMS: number): Segment[] {
  const out: Segment[] = [];
  let at = job.submitted_at_ms;
  const add = (s: Omit<Segment, "from">) => {
    const segment = { ...s, from: at, to: Math.max(at, s.to) };
    if (segment.kind === "run" || segment.to > segment.from) out.push(segment);
    at = segment.to;
  };
  const past = [...(job.attempts ?? [])].sort((a, b) => a.attempt - b.attempt);
  for (const [i, a] of past.entries()) {
    const before = past[i - 1]?.attempt ?? 0;
    const missing = a.attempt - before - 1;
    const label = missing > 0 ? `${count(missing)} earlier, not kept` : before ? "waits for the next attempt" : "waits";
    add({ kind: "wait", state: before || missing ? "retry_wait" : "waiting", to: a.began_at_ms || at, label });
    add({ kind: "run", state: a.ended, to: a.ended_at_ms, label: `attempt ${a.attempt}`, ...run(a) });
  }
  const last = past.at(-1)?.attempt ?? 0;
  const end = job.finished_at_ms || nowMS;
  if (job.attempt > last && job.assigned_at_ms > 0) {
    add({ kind: "wait", state: last ? "retry_wait" : "waiting", to: job.assigned_at_ms, label: "waits" });
    const state = job.finished_at_ms || job.state === "running" || job.state === "cancelling" ? job.state : "failed";
    const code = job.error?.code;
    const to = state === "failed" && !job.finished_at_ms ? at : end;
    add({
      kind: "run",
      state,
      to,
      label: `attempt ${job.attempt}`,
      attempt: job.attempt,
      node: job.node,
      ...(code ? { code } : {}),
    });
  }
  if (at < end)
    add({
      kind: "wait",
      state: job.state,
      to: end,
      label: last || job.attempt ? "waits for the next attempt" : "waits",
    });
  return out;
}

function run(a: PastAttempt): Pick<Segment, "attempt" | "node" | "code"> {
  return { attempt: a.attempt, node: a.node, ...(a.code ? { code: a.code } : {}) };
}
