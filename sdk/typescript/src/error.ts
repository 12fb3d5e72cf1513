import type { ErrorBody, JobStatus } from "./frames.js";

/** The codes of docs/protocol.md and docs/node-protocol.md. A later release can add others. */
export type Code =
  | "invalid_argument"
  | "payload_too_large"
  | "no_matching_node"
  | "overloaded"
  | "rate_limited"
  | "unavailable"
  | "unauthenticated"
  | "permission_denied"
  | "not_admitted"
  | "not_found"
  | "conflict"
  | "internal"
  | "superseded"
  | "unknown_node"
  | "node_in_use"
  | "stale_connection"
  | (string & {});

/** A failure as every interface of freeslot reports it. `code` is for programs, `message` for people. */
export class FreeslotError extends Error {
  override readonly name: string = "FreeslotError";
  readonly code: Code;
  /** The path of the bad input, such as `job.requirement.pool`. */
  readonly field: string | undefined;
  /** The pause before the next try, in milliseconds; undefined if the scheduler has no estimate. */
  readonly retryAfterMs: number | undefined;
  /** With `no_matching_node`: counts the nodes by the first part of the requirement that they fail. */
  readonly breakdown: Record<string, number> | undefined;

  constructor(code: Code, message: string, more: FreeslotErrorFields = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.field = more.field;
    this.retryAfterMs = more.retryAfterMs;
    this.breakdown = more.breakdown;
  }

  /** Reports whether the same request may succeed later unchanged. */
  get temporary(): boolean {
    return isTemporary(this.code);
  }
}

export interface FreeslotErrorFields {
  field?: string | undefined;
  retryAfterMs?: number | undefined;
  breakdown?: Record<string, number> | undefined;
  cause?: unknown;
}

/** Every call of a closed client fails with it, and so does each handle without a result. */
export class ClosedError extends Error {
  override readonly name: string = "ClosedError";
  constructor(what = "client") {
    super(`the ${what} is closed`);
  }
}

/** A job that ended without a result: it failed, was cancelled, expired, or is dead. */
export class JobFailedError extends Error {
  override readonly name: string = "JobFailedError";
  /** The code of the job's error, such as `handler_error`; without one, the job's state. */
  readonly code: string;
  readonly status: JobStatus;

  constructor(status: JobStatus) {
    super(`job ${status.job_id} ${status.state}${status.error ? `: ${status.error.message}` : ""}`);
    this.code = status.error?.code ?? status.state;
    this.status = status;
  }
}

export function isTemporary(code: Code): boolean {
  return code === "overloaded" || code === "rate_limited" || code === "unavailable";
}

/** Makes the error of an answer. */
export function errorOf(body: ErrorBody): FreeslotError {
  return new FreeslotError(body.code ?? "internal", body.message ?? "the replica gave no reason", {
    field: body.field,
    retryAfterMs: body.retry_after_ms,
    breakdown: body.breakdown,
  });
}

export function invalid(field: string, text: string): FreeslotError {
  return new FreeslotError("invalid_argument", `${field} ${text}`, { field });
}
