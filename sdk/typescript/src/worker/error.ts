import { FreeslotError } from "../error.js";

/** Why a handler was told to stop; `job.signal.reason` has it. */
export type StopCause = "cancelled" | "not_owned" | "stopping" | "stalled" | "lease_lost" | "superseded";

const causes: Record<StopCause, string> = {
  cancelled: "the job was cancelled, or its deadline has passed",
  not_owned: "the node does not own this job any more",
  stopping: "the node is stopping",
  stalled: "the handler reported no progress in time",
  lease_lost: "the node has lost its lease, because no gateway answers",
  superseded: "another process has registered this node, each needs a node id of its own",
};

export class StopReason extends Error {
  override readonly name: string = "StopReason";
  constructor(readonly reason: StopCause) {
    super(causes[reason]);
  }

  /** True if the node itself stopped the attempt. Another attempt may mend such a failure. */
  get here(): boolean {
    return this.reason === "stalled" || this.reason === "lease_lost";
  }
}

export function superseded(): FreeslotError {
  return new FreeslotError("superseded", causes.superseded);
}

/** Returns the text of whatever a handler threw. Its message can be of any type, and reading it can fail. */
export function messageOf(err: unknown): string {
  try {
    return String(err instanceof Error ? err.message : err);
  } catch {
    return "the handler threw a value without a text";
  }
}

/** Returns the same with the stack, if there is one. */
export function stackOf(err: unknown): string {
  try {
    return String((err instanceof Error && err.stack) || messageOf(err));
  } catch {
    return messageOf(err);
  }
}

/** A handler's error with a code of its own. It fails the job for good, unless `retryable` marks it. */
export class HandlerError extends Error {
  override readonly name: string = "HandlerError";
  constructor(
    /** 1 to 64 characters of `A-Z a-z 0-9 . _ -`, beginning with a letter or digit. */
    readonly code: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** An error that another attempt may mend. */
export class RetryableError extends Error {
  override readonly name: string = "RetryableError";
  /** The pause before the next attempt; undefined lets the worker choose one. */
  readonly afterMs: number | undefined;
  constructor(
    override readonly cause: unknown,
    afterMs: number | undefined,
  ) {
    super(messageOf(cause));
    this.afterMs = Number.isFinite(afterMs) ? afterMs : undefined; // a header that is no number makes a NaN
  }
}

/**
 * Marks a temporary error: the job is retried on any node that fits, until it has failed `max_attempts` times. The pause
 * before the next attempt is `afterMs` (0 to an hour), or random: up to a second, doubled with each attempt.
 */
export function retryable(error: unknown, options: { afterMs?: number } = {}): RetryableError {
  return new RetryableError(error, options.afterMs);
}
