// Code generated from docs/schema/client-frames.json by scripts/frames.ts. DO NOT EDIT.

/** The job is stored and will be answered. */
export interface AcceptedMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  /** The place of the job in its batch; absent outside batches. */
  index?: number;
  /** The scheduler's name for the job. */
  job_id: string;
  /** The job's place among those that wait for the same nodes, from 1; absent when it does not wait. */
  position?: number;
  type: "accepted";
}

/** What a chain decided about the job. */
export interface Admission {
  /** The pool that the job asked for before. */
  asked_pool?: string;
  /** The preferred pool that the job asked for before. */
  asked_preferred_pool?: string;
  /** The chain that decided. */
  chain: string;
  /** The chain only observes: the outcome changed nothing. */
  observed?: boolean;
  /** allow, deny, unknown or variant. */
  outcome: string;
  /** The pool that the variant set. */
  pool?: string;
  /** The preferred pool that the variant set. */
  preferred_pool?: string;
  /** What led to the outcome, in words for people. */
  reason: string;
  /** The rule that decided; absent for the default. */
  rule?: string;
  variant?: string;
  /** Of the chain; 0: it was not known. */
  version: number;
}

/** An attempt of the job begins on a node. Later ones have a higher attempt. */
export interface AssignedMessage {
  /** When the attempt began, by Redis' clock, in milliseconds since 1970. */
  assigned_at_ms: number;
  /** Which try of the job it is, from 1. */
  attempt: number;
  /** The scheduler's name for the job. */
  job_id: string;
  /** The node that runs the attempt. */
  node: string;
  type: "assigned";
}

/** Has the job's result sent to this session; the session that waited before is detached. */
export interface AttachMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  /** The scheduler's name for the job. */
  job_id: string;
  type: "attach";
}

/** Asks the job's node to stop it; a job that waits is cancelled at once. */
export interface CancelMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  /** The scheduler's name for the job. */
  job_id: string;
  type: "cancel";
}

/** One message. */
export type ClientFrame = ClientMessage;

/** Any message of a client. */
export type ClientMessage = SubmitMessage | CancelMessage | AttachMessage | PingMessage;

/** Another session attached to the job and gets its result; this one does not. */
export interface DetachedMessage {
  /** The scheduler's name for the job. */
  job_id: string;
  type: "detached";
}

/** A request, or one job of a batch, was refused. */
export interface ErrorMessage {
  /** For no_matching_node, the number of nodes by the first part of the requirement that they fail. */
  breakdown?: Record<string, number>;
  /** What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as final. */
  code: "invalid_argument" | "payload_too_large" | "no_matching_node" | "overloaded" | "rate_limited" | "unavailable" | "unauthenticated" | "permission_denied" | "not_admitted" | "not_found" | "conflict" | "internal";
  /** The path of the input at fault. */
  field?: string;
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id?: string;
  /** The place of the job in its batch; absent outside batches. */
  index?: number;
  /** The scheduler's name for the job. */
  job_id?: string;
  /** For people. */
  message: string;
  /** How long to wait before trying again. */
  retry_after_ms?: number;
  type: "error";
}

/** The replica stops; connect elsewhere at once and attach. */
export interface GoawayMessage {
  /** For people. */
  reason: string;
  type: "goaway";
}

/** A unit of work as a client submits it. */
export interface Job<P = unknown> {
  /** What a chain decided about the job. The scheduler sets it; a submission's is ignored. */
  admission?: Admission;
  /** Jobs with the same key go to the same node while that has room. At most 128 bytes. */
  affinity_key?: string;
  /** Of the tenant's jobs with the same key concurrency_limit run at a time; further ones wait, by priority and age. Jobs of one key should ask for the same nodes. At most 128 bytes. */
  concurrency_key?: string;
  /** How many jobs with the concurrency_key may run at a time, 1 to 65536; the job submitted last decides for all. Absent means 1. */
  concurrency_limit?: number;
  /** A second job of the tenant with the same key is not created; the answer has the id of the first. At most 128 bytes. */
  idempotency_key?: string;
  /** How often the job may fail before it is dead: the loss of its node counts, and so does an error that the handler calls retryable. 1 to 100; absent means 3. */
  max_attempts?: number;
  /** What a node does with the running job when it has not reached Redis for the heartbeat limit; cancel keeps it from running beside its next attempt. Absent means continue. */
  on_lease_loss?: "continue" | "cancel";
  /** Any JSON value, handed to the handler as it is; null when absent. */
  payload?: P;
  /** Of jobs that wait for the same nodes the ones with a higher priority come first. 0, the lowest, to 9; absent means 0. */
  priority?: number;
  /** How long the handler may tell no progress, in milliseconds, at most 30 days; then the attempt has failed as stalled, and the job is tried again while max_attempts lasts. Absent means no limit. */
  progress_timeout_ms?: number;
  /** What the node must offer besides the service. */
  requirement?: Requirement;
  /** The job does not begin before this time, in milliseconds since 1970; it is scheduled until then. Absent means at once. */
  run_at_ms?: number;
  /** Names the handler that runs the job; the node must have it installed. */
  service: string;
  /** How much of a node's capacity the job takes; absent means 1. */
  slots?: number;
  /** How long the job may take from its submission to its end, in milliseconds, at most 30 days; then it expires. Absent means no limit. */
  timeout_ms?: number;
  /** The W3C trace context of the submitter. */
  traceparent?: string;
}

/** Why a job failed. */
export interface JobError {
  /** One of freeslot's own codes, or one that the handler chose. */
  code: string;
  /** For people. */
  message: string;
}

/** What the scheduler knows about a job. */
export interface JobStatus<R = unknown> {
  /** When the last attempt began, by the store's clock, in milliseconds since 1970; 0 means not yet. */
  assigned_at_ms: number;
  /** Which try that is, from 1; 0 before the first. */
  attempt: number;
  /** The last attempts that did not end the job well, the oldest first; absent in results that are sent by themselves. */
  attempts?: PastAttempt[];
  /** The id of the job's class: jobs with the same requirement. */
  class?: string;
  /** When the job expires, by the store's clock, in milliseconds since 1970; absent means never. */
  deadline_ms?: number;
  /** What failed last: in the states failed and dead, and in retry_wait and expired where an attempt had failed; in expired also for lack of a node. */
  error?: JobError;
  /** How many attempts failed; absent means none. */
  failures?: number;
  /** The store's clock, in milliseconds since 1970; absent means not yet. */
  finished_at_ms?: number;
  /** The scheduler's name for the job. */
  job_id: string;
  /** Where the job runs or ran last; empty before its first attempt, and while it waits for the next. */
  node: string;
  /** The job's place among those that wait for the same nodes, from 1, when it was looked up; absent when it does not wait, and in listings. */
  position?: number;
  /** As submitted; absent means 0. */
  priority?: number;
  /** What a handler of the job told last; absent where none has, and in listings. */
  progress?: Progress;
  /** The id of the job as which this one was submitted again. */
  requeued_as?: string;
  /** The id of the job that this one repeats. */
  requeued_from?: string;
  /** What the handler returned; only in state succeeded. */
  result?: R;
  /** When a job that is scheduled or in retry_wait begins to wait for a slot, by the store's clock, in milliseconds since 1970; absent otherwise. */
  run_at_ms?: number;
  /** The schedule that made the job; absent for a client's job. */
  schedule?: string;
  /** As submitted. */
  service: string;
  /** How many slots the job takes. */
  slots: number;
  /** The last five are terminal. Treat a state that you do not know as not terminal. */
  state: "scheduled" | "waiting" | "moving" | "retry_wait" | "running" | "cancelling" | "succeeded" | "failed" | "cancelled" | "expired" | "dead";
  /** The store's clock, in milliseconds since 1970. */
  submitted_at_ms: number;
  /** The tenant that submitted the job. */
  tenant: string;
}

/** Compares one label of the node. */
export interface LabelRule {
  /** The label's name. A label that the node does not have fails all operators but not_in and not_exists. */
  label: string;
  /** gt, ge, lt and le compare decimal numbers. */
  operator: "in" | "not_in" | "exists" | "not_exists" | "gt" | "ge" | "lt" | "le";
  /** 1 to 64 for in and not_in, none for exists and not_exists, one decimal number for the others. */
  values?: string[];
}

/** An attempt that did not end its job well. */
export interface PastAttempt {
  /** The number of the try, from 1. */
  attempt: number;
  /** By Redis' clock, in milliseconds since 1970; 0 if it is not known. */
  began_at_ms: number;
  /** The code of its error; absent if there was none or it has other characters than letters, digits and ._:/-. */
  code?: string;
  /** How it ended. */
  ended: "failed" | "lost" | "handed_back" | "cancelled" | "expired";
  /** By Redis' clock, in milliseconds since 1970. */
  ended_at_ms: number;
  /** The node that ran it. */
  node: string;
}

/** Answered by pong; for clients that cannot send WebSocket pings. */
export interface PingMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  type: "ping";
}

/** The answer to ping. */
export interface PongMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  type: "pong";
}

/** What the handler of the job reported last. */
export interface Progress<V = unknown> {
  /** When it was reported, by the store's clock, in milliseconds since 1970. */
  at_ms: number;
  /** Which try of the job told it, from 1. */
  attempt: number;
  /** Counts what the attempt told, from 1; numbers are missing where something later took their place. */
  seq: number;
  /** Any JSON value of at most 4 KiB. */
  value: V;
}

/** Progress that the handler of the running attempt reported. Of several reports in quick succession only the latest is sent, and none after the job's result. */
export interface ProgressMessage {
  /** When it was reported, by Redis' clock, in milliseconds since 1970. */
  at_ms: number;
  /** Which try of the job it is, from 1. */
  attempt: number;
  /** The scheduler's name for the job. */
  job_id: string;
  /** Counts the reports of the attempt, from 1; numbers are missing where a later report took the place of one. */
  seq: number;
  type: "progress";
  /** Any JSON value of at most 4 KiB. */
  value: unknown;
}

/** One message, or an array of messages. */
export type ReplicaFrame = ReplicaMessage | ReplicaMessage[];

/** Any message of a replica. Arrays are sent only to clients that asked for frames=batch. */
export type ReplicaMessage = WelcomeMessage | AcceptedMessage | AssignedMessage | ProgressMessage | ResultMessage | StatusMessage | DetachedMessage | ErrorMessage | PongMessage | GoawayMessage;

/** What the node must offer besides the service. */
export interface Requirement {
  /** Features that the node must have. */
  features?: string[];
  /** Comparisons of the node's labels. All of them must hold. */
  label_rules?: LabelRule[];
  /** Labels that the node must have, with these very values. */
  labels?: Record<string, string>;
  /** Only nodes of this pool. */
  pool?: string;
  /** Fitting nodes of this pool come first, the other fitting nodes after them. */
  preferred_pool?: string;
  /** Further services that the node must have installed, each optionally with a range of versions: asr@>=1.2 <2. */
  services?: string[];
  /** A BCP 47 tag of a language that the node must understand. */
  source_language?: string;
  /** A BCP 47 tag of a language that the node must produce. */
  target_language?: string;
}

/** The job has ended; its state is terminal. */
export interface ResultMessage {
  /** The job at its end. */
  job: JobStatus;
  type: "result";
}

/** The answer to cancel and attach: the job as it is now. */
export interface StatusMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  /** The job now. */
  job: JobStatus;
  type: "status";
}

/** Submits one job ("job") or a batch ("jobs"). */
export interface SubmitMessage {
  /** The client's name for the request, printable ASCII. Every answer repeats it. */
  id: string;
  /** The job. */
  job?: Job;
  /** 1 to max_batch jobs. Every answer carries the index of its job. */
  jobs?: Job[];
  type: "submit";
}

/** The first message of a session. */
export interface WelcomeMessage {
  /** The most jobs of one submit. */
  max_batch: number;
  /** The largest frame that the replica reads. */
  max_frame_bytes: number;
  /** The largest payload of a job. */
  max_payload_bytes: number;
  /** The subprotocol. */
  protocol: "freeslot.v1";
  /** The replica's name. */
  replica: string;
  /** Names the session in the replica's log. */
  session_id: string;
  type: "welcome";
  /** The replica's release. */
  version: string;
}
