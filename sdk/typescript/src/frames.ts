// The frames of docs/protocol.md. Names are those of the wire, so that the pages of the protocol apply.

/** What a job asks of a node besides the service. Every part is optional; a node must satisfy all of them. */
export interface Requirement {
  /** Only members of this pool. */
  pool?: string;
  /** Members of this pool first; the other fitting nodes follow. */
  preferred_pool?: string;
  /** Further services, each optionally in a range of versions: `asr@>=1.2 <2`. */
  services?: string[];
  /** BCP 47 tags: what the node understands, and what it produces. */
  source_language?: string;
  target_language?: string;
  /** Labels with exactly these values. */
  labels?: Record<string, string>;
  label_rules?: LabelRule[];
  /** Features that the node has. */
  features?: string[];
}

export type LabelRule =
  | { label: string; operator: "in" | "not_in"; values: string[] }
  | { label: string; operator: "exists" | "not_exists" }
  | { label: string; operator: "gt" | "ge" | "lt" | "le"; values: [string] };

/** A job as a client submits it. Only `service` is required. */
export interface Job<P = unknown> {
  service: string;
  /** Any JSON value; absent is null. */
  payload?: P;
  requirement?: Requirement;
  /** Jobs with one key run on the same node while it has room. */
  affinity_key?: string;
  /** The slots that the job takes; 1 if absent. */
  slots?: number;
  /** 0, the lowest and the default, to 9. */
  priority?: number;
  /** The number of failures after which the job is dead, 1 to 100; 3 if absent. */
  max_attempts?: number;
  /** The longest time from submit to end. */
  timeout_ms?: number;
  /** The earliest time to begin, in milliseconds since 1970. */
  run_at_ms?: number;
  /** The longest time without progress of the handler. */
  progress_timeout_ms?: number;
  /** Whether the handler goes on when its node is cut off; `continue` if absent. */
  on_lease_loss?: "continue" | "cancel";
  /** Makes the submit repeatable: a second one with the same key is the same job. */
  idempotency_key?: string;
  /** At most `concurrency_limit` (1 if absent) jobs with this key run at a time. */
  concurrency_key?: string;
  concurrency_limit?: number;
  /** W3C trace context. */
  traceparent?: string;
}

export type State =
  | "scheduled"
  | "waiting"
  | "moving"
  | "retry_wait"
  | "running"
  | "cancelling"
  | "succeeded"
  | "failed"
  | "cancelled"
  | "expired"
  | "dead";

/** A report of a running job's handler. The pair of `attempt` and `seq` only rises. */
export interface Progress<V = unknown> {
  attempt: number;
  seq: number;
  at_ms: number;
  value: V;
}

export interface JobError {
  code: string;
  message: string;
}

/** What the scheduler knows about a job. Times are by Redis' clock, in milliseconds since 1970. */
export interface JobStatus<R = unknown> {
  job_id: string;
  tenant: string;
  service: string;
  class?: string;
  state: State;
  node: string;
  attempt: number;
  slots: number;
  /** Only in state `succeeded`. */
  result?: R;
  error?: JobError;
  progress?: Progress;
  failures?: number;
  priority?: number;
  deadline_ms?: number;
  run_at_ms?: number;
  position?: number;
  submitted_at_ms: number;
  assigned_at_ms: number;
  finished_at_ms?: number;
  attempts?: PastAttempt[];
  schedule?: string;
  requeued_as?: string;
  requeued_from?: string;
}

export interface PastAttempt {
  attempt: number;
  node: string;
  began_at_ms: number;
  ended_at_ms: number;
  ended: "failed" | "lost" | "handed_back" | "cancelled" | "expired";
  code?: string;
}

export interface ErrorBody {
  code?: string;
  message?: string;
  field?: string;
  retry_after_ms?: number;
  breakdown?: Record<string, number>;
}

export interface Welcome {
  type: "welcome";
  protocol: string;
  session_id: string;
  replica: string;
  version: string;
  max_payload_bytes: number;
  max_batch: number;
  max_frame_bytes: number;
}

/** The messages of a replica. */
export type Message =
  | Welcome
  | { type: "accepted"; id: string; index?: number; job_id: string; position?: number }
  | { type: "assigned"; job_id: string; node: string; attempt: number; assigned_at_ms: number }
  | ({ type: "progress"; job_id: string } & Progress)
  | { type: "result"; job: JobStatus }
  | { type: "status"; id: string; job: JobStatus }
  | { type: "detached"; job_id: string }
  | ({ type: "error"; id?: string; index?: number; job_id?: string } & ErrorBody)
  | { type: "pong"; id: string }
  | { type: "goaway"; reason: string };

export function isTerminal(state: State): boolean {
  return ["succeeded", "failed", "cancelled", "expired", "dead"].includes(state);
}
