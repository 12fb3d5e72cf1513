export { ClosedError, type Code, FreeslotError } from "../error.js";
export type { Job, Requirement } from "../frames.js";
export type { TlsOptions } from "../socket.js";
export { HandlerError, RetryableError, retryable, type StopCause, StopReason } from "./error.js";
export type { Handler, RunningJob } from "./job.js";
export type { Languages, WorkerOptions } from "./options.js";
export { type ServiceOptions, Worker } from "./worker.js";
