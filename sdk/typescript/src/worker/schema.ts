// Code generated from docs/schema/node-frames.json by scripts/frames.ts. DO NOT EDIT.

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

/** One message, or an array of messages. */
export type AgentFrame = AgentMessage | AgentMessage[];

/** Any message of an agent. */
export type AgentMessage = HelloMessage | RegisterMessage | HeartbeatMessage | CompleteMessage | ProgressMessage | SpecMessage | DeregisterMessage;

/** What a token permits. An absent limit allows everything. */
export interface Allows {
  /** Languages that the node may offer. */
  capabilities?: string[];
  /** RFC 3339. */
  expires?: string;
  /** Values that labels may have. */
  labels?: Record<string, string[]>;
  /** Ids of nodes, or patterns with *. */
  nodes: string[];
  /** Pools that the node may join. */
  pools?: string[];
  /** Services that the node may offer. */
  services?: string[];
  /** The most slots. */
  slots?: number;
  /** The token's name. */
  token: string;
}

/** The answer to heartbeat. */
export interface BeatMessage {
  /** Attempts that a client asked to cancel. */
  cancel?: string[];
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** Attempts that the node owns and did not name: ask for their spec, and run them. */
  start?: string[];
  /** Attempts that the node named and does not own: stop them. */
  stop?: string[];
  type: "beat";
}

/** A client asked to cancel these attempts. */
export interface CancelMessage {
  /** The attempts. */
  attempts: string[];
  type: "cancel";
}

/** Ends an attempt. */
export interface CompleteMessage {
  /** The attempt that ends: its job's id, a colon and a number from 1. */
  attempt: string;
  /** Why it failed. */
  error?: JobError;
  /** Of the request, repeated in its answer; always sent in a frame, absent by HTTP. */
  id?: number;
  /** Of a failed attempt: whether the job is tried again; absent ends the job. */
  next?: "retry" | "hand_back";
  /** Any JSON value of at most inline_bytes; a larger one goes by HTTP. */
  result?: unknown;
  /** With retry: how long the next attempt waits, at most a year. */
  retry_delay_ms?: number;
  /** How it ended. */
  state: "succeeded" | "failed" | "cancelled";
  type: "complete";
}

/** The answer to complete; without id, to one by HTTP. */
export interface CompletedMessage {
  /** Attempts that begin in the slots that became free. */
  begun?: Delivery[];
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id?: number;
  /** Whether the end counts. Treat an outcome that you do not know as stale. */
  outcome: "completed" | "completed_before" | "stale";
  type: "completed";
}

/** An attempt that begins. */
export interface Delivery {
  /** Its job's id, a colon and a number from 1. */
  attempt: string;
  /** The job as it was submitted; absent: ask for it with spec. */
  job?: Job;
  /** The tenant that submitted the job. */
  tenant: string;
}

/** Takes the node out; its jobs wait for another node. */
export interface DeregisterMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  type: "deregister";
}

/** The answer to deregister. */
export interface DeregisteredMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** Ids of jobs that the node owned and does not own any more. */
  lost?: string[];
  type: "deregistered";
}

/** A request was refused; without id, the session ends. */
export interface ErrorMessage {
  /** What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as internal. */
  code: "superseded" | "unknown_node" | "node_in_use" | "stale_connection" | "invalid_argument" | "payload_too_large" | "overloaded" | "unavailable" | "unauthenticated" | "permission_denied" | "not_found" | "internal";
  /** The path of the input at fault. */
  field?: string;
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id?: number;
  /** For people. */
  message: string;
  /** How long to wait before a repetition. */
  retry_after_ms?: number;
  type: "error";
}

/** One message, or an array of messages. */
export type GatewayFrame = GatewayMessage | GatewayMessage[];

/** Any message of a gateway. */
export type GatewayMessage = WelcomeMessage | RegisteredMessage | BeatMessage | CompletedMessage | ProgressedMessage | SpecAnswerMessage | DeregisteredMessage | JobsMessage | CancelMessage | SyncMessage | GoawayMessage | ErrorMessage;

/** The replica stops; connect to another address, then close this connection. */
export interface GoawayMessage {
  /** For people. */
  reason?: string;
  type: "goaway";
}

/** Proves that the node lives, and compares what it runs with what it owns. */
export interface HeartbeatMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** It must not wait to share a call. */
  now?: boolean;
  /** Figures of the machine, an object of at most 16 KiB; absent, the last ones stay. */
  resources?: unknown;
  /** The attempts that the node runs, at most max_attempts. */
  running?: string[];
  /** Whether the node takes new jobs; absent, the last one stays. */
  status?: "online" | "draining";
  type: "heartbeat";
}

/** The first message of a session. */
export interface HelloMessage {
  /** Only asks what the token may do; no session begins. */
  check?: boolean;
  /** Counts the dials of this epoch, from 1. */
  connection: number;
  /** Names this start of the agent; a new one for each. */
  epoch: string;
  /** The node's id. */
  node: string;
  type: "hello";
  /** The agent's release. */
  version?: string;
}

/** A unit of work as a client submitted it. */
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
  /** Any JSON value, handed to the handler as it is. */
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

/** Why an attempt failed. */
export interface JobError {
  /** One of freeslot's own codes, or one that the handler chose. */
  code: string;
  /** For people. */
  message: string;
}

/** Attempts that begin on the node. */
export interface JobsMessage {
  /** The attempts, with their jobs. */
  jobs: Delivery[];
  type: "jobs";
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

/** BCP 47 tags by stage. An absent list offers none. */
export interface Languages {
  /** BCP 47 tags that the node understands. */
  asr_languages?: string[];
  /** BCP 47 tags of its translation stage. */
  semantic_languages?: string[];
  /** BCP 47 tags that the node produces. */
  tts_languages?: string[];
}

/** What the node can do. */
export interface Node {
  /** Languages by stage. */
  capabilities: Languages;
  /** At most 64. The node does not have a feature that is false. */
  features_supported?: Record<string, boolean>;
  /** The services that jobs can name. */
  installed_services: Service[];
  /** At most 64. */
  labels?: Record<string, string>;
  /** Slots, at most max_slots. */
  max_concurrency: number;
  /** Ignored: the session has the node's id. */
  node_id?: string;
  /** Pools that the node joins whatever their rules say. */
  pool_ids?: string[];
}

/** Reports how far attempts are. */
export interface ProgressMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** 1 to 64 reports. */
  reports: Report[];
  type: "progress";
}

/** The answer to progress. */
export interface ProgressedMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** In the order of the reports. Treat one that you do not know as taken. */
  outcomes: ("taken" | "cancel" | "stale")[];
  type: "progressed";
}

/** The node's whole profile. */
export interface RegisterMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** What the node can do. Its node_id is ignored. */
  profile: Node;
  /** The epoch that the welcome named; absent where it named none. */
  replaces?: string;
  type: "register";
}

/** The answer to register. */
export interface RegisteredMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id: number;
  /** Ids of jobs that the node owned and does not own any more. */
  lost?: string[];
  type: "registered";
}

/** One progress report of an attempt. */
export interface Report {
  /** The attempt that reports. */
  attempt: string;
  /** Counts the reports of the attempt, from 1. */
  seq: number;
  /** Any JSON value of at most 4 KiB. */
  value: unknown;
}

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

/** A service that is installed on the node. */
export interface Service {
  /** Shown with the node; jobs do not use it. */
  endpoint?: string;
  /** The service's name. */
  name: string;
  /** Compared with the ranges that jobs ask for. */
  version?: string;
}

/** The answer to spec; without id, to one by HTTP. */
export interface SpecAnswerMessage {
  /** Of a request, repeated in its answer. The agent gives no two requests under way the same one. */
  id?: number;
  /** The job as it was submitted. */
  job?: Job;
  /** The job is larger than inline_bytes; read it by HTTP. */
  large?: boolean;
  /** The tenant that submitted the job. */
  tenant?: string;
  type: "spec";
}

/** Reads the job of an attempt that came without it. */
export interface SpecMessage {
  /** Of the request, repeated in its answer; always sent in a frame, absent by HTTP. */
  id?: number;
  /** The job's id. */
  job_id: string;
  type: "spec";
}

/** Send a heartbeat at once. */
export interface SyncMessage {
  type: "sync";
}

/** The answer to hello. */
export interface WelcomeMessage {
  /** What the token may do. */
  allows: Allows;
  /** A node that is silent for longer is taken out. */
  heartbeat_limit_ms: number;
  /** The node lives under another token or as a direct agent. */
  in_use?: boolean;
  /** The largest result or job in a frame. */
  inline_bytes: number;
  /** The most attempts that a heartbeat names. */
  max_attempts: number;
  /** The largest frame that the gateway reads. */
  max_frame_bytes: number;
  /** The most requests under way. */
  max_requests: number;
  /** The most slots of a node. */
  max_slots: number;
  /** The subprotocol. */
  protocol: "freeslot.node.v1";
  /** The epoch of the node's record; absent where there is none or it is in use. */
  replaces?: string;
  /** The replica's name. */
  replica: string;
  /** The name of the session; requests by HTTP repeat it in the header Freeslot-Session. */
  session: string;
  type: "welcome";
  /** The gateway's release. */
  version: string;
}
