import { until } from "./async.js";
import type { Connection } from "./connection.js";
import { JobFailedError } from "./error.js";
import type { JobStatus, Progress } from "./frames.js";

export interface CallOptions {
  /** Gives the call up, with the signal's reason. The job goes on: use `Client.cancel` to stop it. */
  signal?: AbortSignal | undefined;
}

export interface ProgressOptions extends CallOptions {
  /** How many values wait for a slow reader. When more come, the oldest is dropped. 1, the latest, if absent. */
  keep?: number;
}

/** Where a job runs. */
export interface Assignment {
  node: string;
  /** The number of the try, from 1. */
  attempt: number;
}

/** An accepted job. It outlives the connection by which it was submitted. */
export class Handle<R = unknown> {
  readonly id: string;
  /** The job's place in the queue, from 1, when it was accepted or attached to; 0 if it did not wait. */
  readonly position: number;
  /** The latest attempt that this client knows about; undefined before the first. */
  assignment: Assignment | undefined;

  /** @internal The connection that brings the job's messages. */
  conn: Connection;
  /** @internal What a lost submit calls the job, see keyName. */
  name = "";
  /** @internal True if a lost request took the job away. */
  taken = false;
  #ended: JobStatus<R> | Error | undefined;
  #finish!: (end: JobStatus<R> | Error) => void;
  readonly #end: Promise<JobStatus<R> | Error>;
  #latest: Progress | undefined;
  readonly #readers = new Set<(value: Progress | undefined) => void>();

  /** @internal */
  constructor(conn: Connection, id: string, position: number) {
    this.conn = conn;
    this.id = id;
    this.position = position;
    this.#end = new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /**
   * Waits for the job's end and returns its status, whatever the end is. It fails only if the end will not come:
   * `unavailable` if another client attached to the job, `not_found` if its record is gone, or `ClosedError`.
   */
  async wait(options: CallOptions = {}): Promise<JobStatus<R>> {
    const end = await until(this.#end, options.signal);
    if (end instanceof Error) throw end;
    return end;
  }

  /** Waits for the job's result. A job that ends otherwise makes it fail with a `JobFailedError`. */
  async result(options: CallOptions = {}): Promise<R> {
    const status = await this.wait(options);
    if (status.state !== "succeeded") throw new JobFailedError(status);
    return status.result as R;
  }

  /**
   * The progress that the job's handler reports, from the latest known one on. It ends with the job. Progress can be
   * lost: replicas send at most one value in 100 ms for each job, and a slow reader misses values (see `keep`).
   */
  async *progress<V = unknown>(options: ProgressOptions = {}): AsyncGenerator<Progress<V>, void, undefined> {
    const keep = Math.max(options.keep ?? 1, 1);
    const values: Progress[] = this.#latest ? [this.#latest] : [];
    let over = this.#ended !== undefined;
    let wake = () => {};
    const reader = (value: Progress | undefined) => {
      if (value) values.push(value);
      else over = true;
      if (values.length > keep) values.shift();
      wake();
    };
    this.#readers.add(reader);
    try {
      for (;;) {
        const next = values.shift();
        if (next) yield next as Progress<V>;
        else if (over) return;
        else {
          const more = new Promise<void>((resolve) => {
            wake = resolve;
          });
          await until(more, options.signal);
        }
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  /** @internal */
  get done(): boolean {
    return this.#ended !== undefined;
  }

  /** @internal */
  assign(node: string, attempt: number): void {
    if (attempt > (this.assignment?.attempt ?? 0)) this.assignment = { node, attempt };
  }

  /** @internal Takes a value, unless a later one is known. */
  report(value: Progress | undefined): void {
    const last = this.#latest;
    if (!value || this.done) return;
    if (last && (value.attempt < last.attempt || (value.attempt === last.attempt && value.seq <= last.seq))) return;
    this.#latest = value;
    for (const reader of this.#readers) reader(value);
  }

  /** @internal Only the first call counts. */
  end(end: JobStatus | Error): void {
    if (this.done) return;
    if (!(end instanceof Error)) this.assign(end.node, end.attempt);
    this.#ended = end as JobStatus<R> | Error;
    this.#finish(this.#ended);
    for (const reader of this.#readers) reader(undefined);
  }
}
