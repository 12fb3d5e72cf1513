// The frames of docs/protocol.md. Names are the wire's, so that the pages of the protocol apply.

import type { ErrorMessage, JobStatus } from "./schema.js";

export type {
  Admission,
  Job,
  JobError,
  JobStatus,
  LabelRule,
  PastAttempt,
  Progress,
  ReplicaMessage,
  Requirement,
  WelcomeMessage,
} from "./schema.js";

export type State = JobStatus["state"];

/** A refusal, of a frame or by HTTP. Later releases can have further codes. */
export type ErrorBody = Partial<Omit<ErrorMessage, "type" | "id" | "code">> & { code?: string };

/** Reports whether a job in this state will never change again. */
export function isTerminal(state: State): boolean {
  return ["succeeded", "failed", "cancelled", "expired", "dead"].includes(state);
}
