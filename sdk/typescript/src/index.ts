export type { Submitted } from "./call.js";
export { Client } from "./client.js";
export { ClosedError, type Code, FreeslotError, type FreeslotErrorFields, JobFailedError } from "./error.js";
export type {
  Admission,
  Job,
  JobError,
  JobStatus,
  LabelRule,
  PastAttempt,
  Progress,
  Requirement,
  State,
} from "./frames.js";
export { isTerminal } from "./frames.js";
export type { Assignment, CallOptions, Handle, ProgressOptions } from "./handle.js";
export type { ClientEvent, ClientOptions } from "./options.js";
export type { TlsOptions } from "./socket.js";
