import { errorOf, FreeslotError } from "./error.js";
import type { Job, JobStatus, ReplicaMessage } from "./frames.js";
import type { Handle } from "./handle.js";

/** The outcome of one job of a batch: exactly one of the two is there. */
export type Submitted<R = unknown> = { handle: Handle<R>; error?: never } | { handle?: never; error: unknown };

/** Takes the answers to a submit, one for each of its jobs. */
export class SubmitCall {
  readonly results: (Submitted | undefined)[];
  #missing: number;

  constructor(
    /** What each of the jobs is called in `lost`, see keyName. */
    readonly names: readonly string[],
    /** Makes the handle of an accepted job. */
    readonly accept: (id: string, position: number, name: string) => Handle,
    readonly done: () => void,
  ) {
    this.results = new Array(names.length);
    this.#missing = names.length;
  }

  lost(): string[] {
    return this.names.filter((name, i) => name && this.#open(i));
  }

  answer(message: ReplicaMessage): boolean {
    if (message.type === "accepted") {
      const index = message.index ?? 0;
      if (this.#open(index)) {
        const name = this.names[index] as string;
        this.#put(index, { handle: this.accept(message.job_id, message.position ?? 0, name) });
      }
    } else if (message.type === "error") {
      if (message.index === undefined) this.fail(errorOf(message));
      else this.#put(message.index, { error: errorOf(message) });
    }
    return this.#missing === 0;
  }

  fail(error: unknown): void {
    for (let i = 0; i < this.results.length; i++) this.#put(i, { error });
  }

  #open(index: number): boolean {
    return index >= 0 && index < this.results.length && !this.results[index];
  }

  /** Ignores an index that the call does not have, or that was answered before. */
  #put(index: number, result: Submitted): void {
    if (!this.#open(index)) return;
    this.results[index] = result;
    if (--this.#missing === 0) this.done();
  }
}

/** Takes the status that answers a cancel or an attach. */
export class StatusCall {
  status: JobStatus | undefined;
  error: Error | undefined;
  /** True if the connection ended first: the request can be repeated. */
  broken = false;

  constructor(
    readonly done: () => void,
    /** Is called at once: the next message can be the job's result. */
    readonly take: (status: JobStatus) => void = () => {},
    /** The job that the request takes to its connection; empty if it takes none. */
    readonly job = "",
  ) {}

  lost(): string[] {
    return this.job ? [this.job] : [];
  }

  answer(message: ReplicaMessage): boolean {
    if (message.type === "status") {
      this.status = message.job;
      this.take(message.job);
      this.done();
      return true;
    }
    if (message.type === "error") {
      this.fail(errorOf(message), false);
      return true;
    }
    return false;
  }

  fail(error: Error, broken: boolean): void {
    this.error = error;
    this.broken = broken;
    this.done();
  }
}

/** Names the jobs under an idempotency key; empty without one. No job id looks like it. */
function keyName(key: string | undefined): string {
  return key ? `key ${key}` : "";
}

const encoder = new TextEncoder();

/** The bytes of a text in UTF-8, counted only if they may be over the limit. */
function bytesWithin(text: string, limit: number): number {
  return text.length * 3 <= limit ? text.length * 3 : encoder.encode(text).length;
}

/** The limits of a replica's welcome. */
export interface Limits {
  max_payload_bytes: number;
  max_frame_bytes: number;
  max_batch: number;
}

/** A job as JSON, or why it cannot be sent. */
export interface Encoded {
  index: number;
  json: string;
  bytes: number;
  name: string;
}

export function encode(job: Job, path: string, index: number, limits: Limits): Encoded {
  let json: string;
  try {
    json = JSON.stringify(job);
  } catch (err) {
    throw new FreeslotError("invalid_argument", `${path} cannot be encoded as JSON: ${(err as Error).message}`, {
      field: path,
      cause: err,
    });
  }
  if (json === undefined || json[0] !== "{") {
    throw new FreeslotError("invalid_argument", `${path} is no object, expected a job`, { field: path });
  }
  const bytes = bytesWithin(json, Math.min(limits.max_payload_bytes, limits.max_frame_bytes));
  if (bytes > limits.max_payload_bytes && job.payload !== undefined) {
    const size = encoder.encode(JSON.stringify(job.payload)).length;
    if (size > limits.max_payload_bytes) {
      const field = `${path}.payload`;
      throw new FreeslotError(
        "payload_too_large",
        `${field} has ${size} bytes, the limit is ${limits.max_payload_bytes}`,
        { field },
      );
    }
  }
  return { index, json, bytes, name: keyName(job.idempotency_key) };
}

/** The bytes of a frame beside its jobs. */
const envelope = 128;

/** Puts jobs into as few frames as the limits allow. */
export function split(jobs: Encoded[], limits: Limits): Encoded[][] {
  const parts: Encoded[][] = [];
  let part: Encoded[] = [];
  let size = envelope;
  for (const job of jobs) {
    if (part.length > 0 && (part.length === limits.max_batch || size + job.bytes + 1 > limits.max_frame_bytes)) {
      parts.push(part);
      part = [];
      size = envelope;
    }
    part.push(job);
    size += job.bytes + 1;
  }
  if (part.length > 0) parts.push(part);
  return parts;
}

/** An error about a job of a frame names the job's place in that frame; the caller knows its place in the batch. */
export function moved(error: unknown, from: number, to: number): unknown {
  if (!(error instanceof FreeslotError) || from === to) return error;
  const [here, there] = [`jobs[${from}]`, `jobs[${to}]`];
  const field = error.field?.startsWith(here) ? there + error.field.slice(here.length) : error.field;
  const message = error.message.startsWith(here) ? there + error.message.slice(here.length) : error.message;
  return new FreeslotError(error.code, message, { ...error, field, cause: error.cause });
}
