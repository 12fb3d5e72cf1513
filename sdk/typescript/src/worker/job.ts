import { invalid } from "../error.js";
import type { Requirement } from "../frames.js";

/** The largest progress value, as JSON. */
const maxProgressBytes = 4 << 10;

/** A job as a handler sees it. */
export class RunningJob<P = unknown> {
  readonly id: string;
  readonly tenant: string;
  readonly service: string;
  /** The number of the try, from 1. With `id` it names this execution. */
  readonly attempt: number;
  readonly payload: P;
  readonly requirement: Requirement;
  /** The slots that the job takes, at least 1. */
  readonly slots: number;
  /**
   * Is aborted when the job is cancelled or its deadline has passed, when the node no longer owns it, when the worker
   * stops, and, where the job asks for it, after too long a time without progress or without a gateway. `reason` is a
   * `StopReason`. A handler should then return soon: one that goes on may run beside the job's next attempt.
   */
  readonly signal: AbortSignal;
  /** W3C trace context of the submitter. */
  readonly traceparent: string | undefined;
  readonly #report: (json: string) => void;

  /** @internal */
  constructor(of: Omit<RunningJob<P>, "progress">, report: (json: string) => void) {
    this.id = of.id;
    this.tenant = of.tenant;
    this.service = of.service;
    this.attempt = of.attempt;
    this.payload = of.payload;
    this.requirement = of.requirement;
    this.slots = of.slots;
    this.signal = of.signal;
    this.traceparent = of.traceparent;
    this.#report = report;
  }

  /**
   * Reports how far the job is: any JSON value of at most 4 KiB. It does not wait. A value is sent once 100 ms have
   * passed since the one before; the next call, or the end of the job, replaces a value that has not been sent yet. It
   * throws if the value can never be sent, and does nothing once the handler has returned.
   */
  progress(value: unknown): void {
    const json = JSON.stringify(value) ?? "null";
    const size = Buffer.byteLength(json);
    if (size > maxProgressBytes) {
      throw invalid("progress", `has ${size} bytes of JSON, expected at most ${maxProgressBytes}`);
    }
    this.#report(json);
  }
}

/** Runs one job. Its result becomes the job's, as JSON. See `retryable` and `HandlerError` for errors. */
// biome-ignore lint/suspicious/noExplicitAny: a handler states the type of its service's payload
export type Handler = (job: RunningJob<any>) => unknown;
