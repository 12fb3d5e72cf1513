import type { Action } from "../parts/act.tsx";
import { change } from "./api.ts";
import { go, href } from "./route.ts";
import { cut, plural, schedctl } from "./text.ts";

const line = (words: string[], args: string[]) => (reason: string) => schedctl(words, { reason }, args);

/** What actions need of a job. */
export interface JobLike {
  job_id: string;
  service: string;
  state: string;
  node: string;
  attempt: number;
  requeued_as?: string | undefined;
}

const ends = ["succeeded", "failed", "cancelled", "expired", "dead"];

export function hasEnded(state: string): boolean {
  return ends.includes(state);
}

/** Cancels the attempt that is on the screen, and no later one. */
export function cancelJob(job: JobLike): Action {
  const { job_id: id, attempt } = job;
  return {
    label: "Cancel job",
    title: `Cancel job ${id}`,
    needs: "changeJob",
    danger: true,
    not: hasEnded(job.state)
      ? "It has ended."
      : job.state === "cancelling"
        ? "It is asked to stop already."
        : undefined,
    consequence:
      job.state === "running"
        ? `Its attempt on ${cut(job.node, 80)} is asked to stop. What the handler has done stays done. It is not tried again.`
        : "It waits, and ends at once. It can be submitted again only by its client.",
    command: (reason) =>
      schedctl(["cancel"], { "if-attempt": attempt || undefined, "if-state": job.state, reason }, [id]),
    run: async (reason) => {
      const query = { attempt, state: job.state };
      const after = await change("post", "/v1/jobs/{id}/cancel", { path: { id }, query, reason });
      return `Job ${id} is ${after.state}.`;
    },
  };
}

export function requeueJob(job: JobLike): Action {
  const id = job.job_id;
  return {
    label: "Requeue",
    title: `Submit job ${id} again`,
    needs: "changeJob",
    not: job.requeued_as
      ? `It was submitted again, as ${job.requeued_as}.`
      : ["dead", "failed", "expired"].includes(job.state)
        ? undefined
        : "Only dead, failed and expired jobs.",
    consequence: "A new job is made from the same submission. This one stays as it is until its retention ends.",
    command: line(["requeue"], [id]),
    run: async (reason) => {
      const made = await change("post", "/v1/jobs/{id}/requeue", { path: { id }, reason });
      go(href(["jobs", made.job_id]));
      return `Submitted again as ${made.job_id}.`;
    },
  };
}

export function dropJob(job: JobLike): Action {
  const id = job.job_id;
  return {
    label: "Drop",
    title: `Forget job ${id}`,
    needs: "changeJob",
    danger: true,
    typed: id.slice(-6),
    not: hasEnded(job.state) ? undefined : "It has not ended.",
    consequence:
      "Its record, result and payload are removed before their time. This cannot be undone. Confirm by the last six characters of its id.",
    command: line(["drop"], [id]),
    run: async (reason) => {
      await change("delete", "/v1/jobs/{id}", { path: { id }, reason });
      go(href(["jobs"]));
      return `Job ${id} is forgotten.`;
    },
  };
}

const undrain = async (id: string, reason?: string) => {
  await change("post", "/v1/nodes/{id}/undrain", { path: { id }, reason });
  return `${id} is not drained any more.`;
};
const drain = async (id: string, reason?: string) => {
  await change("post", "/v1/nodes/{id}/drain", { path: { id }, reason });
  return `${id} gets no more jobs.`;
};

export function drainNode(id: string, running: number, status: string): Action {
  return {
    label: "Drain",
    title: `Drain node ${id}`,
    needs: "change",
    not: status === "drained" ? "It is drained already." : undefined,
    consequence: `It gets no more jobs until it is undrained, also over a restart of its agent. ${running === 0 ? "No job runs on it now." : `${plural(running, "slot")} in use: what runs there goes on.`}`,
    command: line(["nodes", "drain"], [id]),
    run: (reason) => drain(id, reason),
    undo: { label: "Undrain", run: () => undrain(id, "undo") },
  };
}

export function undrainNode(id: string): Action {
  return {
    label: "Undrain",
    title: `Undrain node ${id}`,
    needs: "change",
    consequence: "It gets jobs again, as soon as its agent is online.",
    command: line(["nodes", "undrain"], [id]),
    run: (reason) => undrain(id, reason),
    undo: { label: "Drain again", run: () => drain(id, "undo") },
  };
}

export function removeNode(id: string, epoch: string, silent: boolean): Action {
  return {
    label: "Remove",
    title: `Remove node ${id}`,
    needs: "administer",
    danger: true,
    typed: id,
    not: silent ? undefined : "Only a silent node, or one without an agent.",
    consequence: "Jobs that it still has go to their next attempts. An agent that comes back registers it again.",
    command: (reason) => schedctl(["nodes", "remove"], { "if-epoch": epoch, reason }, [id]),
    run: async (reason) => {
      const done = await change("delete", "/v1/nodes/{id}", { path: { id }, query: { epoch }, reason });
      go(href(["nodes"]));
      return `${id} is removed; ${plural(done.jobs?.length ?? 0, "job")} went to the next attempt.`;
    },
  };
}

export type Pausable = "pool" | "service" | "class";

const routes = { pool: "pools", service: "services", class: "classes" } as const;

async function setPaused(kind: Pausable, name: string, paused: boolean, reason?: string): Promise<string> {
  const path = `/v1/${routes[kind]}/{id}/${paused ? "pause" : "resume"}` as const;
  const done = await change("post", path, { path: { id: name }, body: { note: reason ?? "" }, reason });
  const behind =
    paused && !done.confirmed ? `; not confirmed by ${(done.behind ?? []).join(", ") || "all replicas"}` : "";
  return `${kind} ${name} is ${paused ? "paused" : "not paused any more"}${behind}.`;
}

export function pause(kind: Pausable, name: string, waiting?: number): Action {
  return {
    label: "Pause",
    title: `Pause ${kind} ${name}`,
    needs: "change",
    consequence: `No new job of this ${kind} begins until it is resumed. What runs goes on, and new jobs wait.${waiting ? ` ${plural(waiting, "job")} wait now.` : ""}`,
    command: (reason) => schedctl(["pause"], { reason, note: reason }, [kind, name]),
    run: (reason) => setPaused(kind, name, true, reason),
    undo: { label: "Resume", run: () => setPaused(kind, name, false, "undo") },
  };
}

export function resume(kind: Pausable, name: string): Action {
  return {
    label: "Resume",
    title: `Resume ${kind} ${name}`,
    needs: "change",
    consequence: "What waits for it begins at once, as slots allow.",
    command: (reason) => schedctl(["resume"], { reason, note: reason }, [kind, name]),
    run: (reason) => setPaused(kind, name, false, reason),
    undo: { label: "Pause again", run: () => setPaused(kind, name, true, "undo") },
  };
}

/** What bulk actions need of an operation. */
interface BulkLike {
  id: string;
  action: string;
  count: number;
}

export function startBulk(o: BulkLike, done: () => void): Action {
  const nodes = o.action === "drain" || o.action === "undrain";
  const what = plural(o.count, nodes ? "node" : "job");
  return {
    label: "Start",
    title: `${o.action} ${what}`,
    needs: nodes ? "change" : "changeJob",
    danger: true,
    typed: String(o.count),
    consequence: `About 200 a second, each once, also if the replica dies meanwhile. It can be stopped; what was touched stays so. Confirm by the count, ${o.count}.`,
    command: (reason) => schedctl(["bulk", "start"], { reason, count: o.count }, [o.id]),
    run: async (reason) => {
      const started = await change("post", "/v1/bulk", { body: { plan: o.id, count: o.count }, reason });
      done();
      go(href(["bulk", started.id]));
      return `Started: ${o.action} ${what}.`;
    },
  };
}

export function stopBulk(o: BulkLike, done: () => void): Action {
  return {
    label: "Stop",
    title: `Stop ${o.id}`,
    needs: "changeJob",
    consequence: "It stops before its next targets. What was touched stays as it is.",
    command: line(["bulk", "stop"], [o.id]),
    run: async (reason) => {
      await change("post", "/v1/bulk/{id}/stop", { path: { id: o.id }, reason });
      done();
      return "It stops.";
    },
  };
}

/** What actions need of a schedule. */
interface ScheduleLike {
  name: string;
  tenant: string;
  version: number;
  paused?: boolean;
}

const scheduleLine = (verb: string, s: ScheduleLike) => (reason: string) =>
  schedctl(["schedules", verb], { tenant: s.tenant, reason }, [s.name]);

export function runSchedule(s: ScheduleLike): Action {
  return {
    label: "Run now",
    title: `Run schedule ${s.name} now`,
    needs: "changeJob",
    consequence: `Its job is submitted once, beside its runs${s.paused ? ", although it is paused" : ""}.`,
    command: scheduleLine("run", s),
    run: async (reason) => {
      const made = await change("post", "/v1/schedules/{name}/run", {
        path: { name: s.name },
        query: { tenant: s.tenant },
        reason,
      });
      go(href(["jobs", made.job_id]));
      return `Submitted as ${made.job_id}.`;
    },
  };
}

async function setSchedulePaused(s: ScheduleLike, paused: boolean, done: () => void, reason: string): Promise<string> {
  await change("post", `/v1/schedules/{name}/${paused ? "pause" : "resume"}`, {
    path: { name: s.name },
    query: { tenant: s.tenant },
    reason,
  });
  done();
  return `Schedule ${s.name} is ${paused ? "paused" : "not paused any more"}.`;
}

export function pauseSchedule(s: ScheduleLike, done: () => void): Action {
  return {
    label: "Pause",
    title: `Pause schedule ${s.name}`,
    needs: "changeJob",
    consequence:
      "It makes no jobs until it is resumed. A run that is just being made is made. Runs in the pause do not count as missed.",
    command: scheduleLine("pause", s),
    run: (reason) => setSchedulePaused(s, true, done, reason),
    undo: { label: "Undo", run: () => setSchedulePaused(s, false, done, "undo") },
  };
}

export function resumeSchedule(s: ScheduleLike, done: () => void): Action {
  return {
    label: "Resume",
    title: `Resume schedule ${s.name}`,
    needs: "changeJob",
    consequence: "It runs again from its next time on. Runs that fell into the pause are not made.",
    command: scheduleLine("resume", s),
    run: (reason) => setSchedulePaused(s, false, done, reason),
    undo: { label: "Undo", run: () => setSchedulePaused(s, true, done, "undo") },
  };
}

export function deleteSchedule(s: ScheduleLike): Action {
  return {
    label: "Delete",
    title: `Delete schedule ${s.name}`,
    needs: "changeJob",
    danger: true,
    typed: s.name,
    consequence: "It makes no jobs any more, and its counts are gone. Jobs that it made go on. This cannot be undone.",
    command: (reason) => schedctl(["schedules", "delete"], { tenant: s.tenant, version: s.version, reason }, [s.name]),
    run: async (reason) => {
      await change("delete", "/v1/schedules/{name}", {
        path: { name: s.name },
        query: { tenant: s.tenant, version: s.version },
        reason,
      });
      go(href(["schedules"]));
      return `Schedule ${s.name} is deleted.`;
    },
  };
}
