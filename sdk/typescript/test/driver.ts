// The program by which test/conformance drives this package: one JSON object a line, commands in, answers out.
//
//   node driver.mjs client|worker

import { createInterface } from "node:readline";
import { Client, ClosedError, FreeslotError, type Handle, type Job } from "@freeslot/client";
import { HandlerError, type RunningJob, retryable, Worker } from "@freeslot/client/worker";

/** A command of the suite; `do` tells which fields are there. */
// biome-ignore lint/suspicious/noExplicitAny: the suite is trusted to send what its protocol says
type Command = { id: number; do: string } & Record<string, any>;

function put(line: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function errorOf(err: unknown): Record<string, unknown> {
  if (err instanceof AggregateError) return errorOf(err.errors[0]);
  const { code, field, retryAfterMs } = err as FreeslotError;
  if (err instanceof FreeslotError) return { code, message: err.message, field, retry_after_ms: retryAfterMs };
  const kind = err instanceof ClosedError ? "closed" : err instanceof Abandoned ? "aborted" : "failed";
  return { code: kind, message: String((err as Error)?.message ?? err) };
}

class Abandoned extends Error {}

/** Where a command's answers go, and what tells it to give up. */
interface Call {
  signal: AbortSignal;
  answer: (fields?: Record<string, unknown>) => void;
}

class ClientDriver {
  #client: Client | undefined;
  #token = "";
  readonly #handles = new Map<string, Handle>();
  readonly #calls = new Map<number, AbortController>();

  async command(c: Command): Promise<void> {
    const control = new AbortController();
    this.#calls.set(c.id, control);
    const answer = (fields = {}) => put({ id: c.id, ...fields });
    try {
      await this.#do(c, { signal: control.signal, answer });
    } catch (err) {
      answer({ error: errorOf(err) });
    } finally {
      this.#calls.delete(c.id);
    }
  }

  async #do(c: Command, { signal, answer }: Call): Promise<void> {
    switch (c.do) {
      case "dial":
        return answer(await this.#dial(c, signal));
      case "submit": {
        const handle = this.#know(await this.client.submit(c.job, { signal }));
        return answer({ job_id: handle.id, ...(handle.position > 0 ? { position: handle.position } : {}) });
      }
      case "batch": {
        const submitted = await this.client.batch(c.jobs as Job[], { signal });
        const jobs = submitted.map(({ handle, error }) =>
          handle ? { job_id: this.#know(handle).id } : { error: errorOf(error) },
        );
        return answer({ jobs });
      }
      case "wait":
        return answer({ job: await this.#handle(c.job_id).wait({ signal }) });
      case "progress":
        for await (const progress of this.#handle(c.job_id).progress({ signal, keep: 1000 })) answer({ progress });
        return answer({ done: true });
      case "attach":
        return answer({ job_id: this.#know(await this.client.attach(c.job_id, { signal })).id });
      case "cancel":
        return answer({ job: await this.client.cancel(c.job_id, { signal }) });
      case "abandon":
        this.#calls.get(c.of)?.abort(new Abandoned("the call was given up"));
        return answer();
      case "token":
        this.#token = c.token;
        return answer();
      case "close":
        await this.client.close();
        return answer();
      default:
        throw new Error(`unknown command ${c.do}`);
    }
  }

  async #dial(c: Command, signal: AbortSignal): Promise<Record<string, unknown>> {
    this.#token = c.token ?? "";
    this.#client = await Client.connect(c.url, {
      tokenSource: () => this.#token,
      signal,
      minBackoffMs: c.min_backoff_ms,
      maxBackoffMs: c.max_backoff_ms,
      pingIntervalMs: c.ping_interval_ms,
      pingTimeoutMs: c.ping_timeout_ms,
      dialTimeoutMs: c.dial_timeout_ms,
      maxMessageBytes: c.max_message_bytes,
      log: (event) => console.error(JSON.stringify({ ...event, error: event.error && String(event.error) })),
    });
    return {};
  }

  get client(): Client {
    if (!this.#client) throw new Error("not dialled");
    return this.#client;
  }

  #know(handle: Handle): Handle {
    this.#handles.set(handle.id, handle);
    return handle;
  }

  #handle(id: string): Handle {
    const handle = this.#handles.get(id);
    if (!handle) throw new Error(`no handle of job ${id}`);
    return handle;
  }

  async end(): Promise<void> {
    await this.#client?.close();
  }
}

class WorkerDriver {
  #worker: Worker | undefined;
  readonly #running = new Map<string, { job: RunningJob; finish: (c: Command) => void }>();

  async command(c: Command): Promise<void> {
    try {
      await this.#do(c);
      put({ id: c.id });
    } catch (err) {
      put({ id: c.id, error: errorOf(err) });
    }
  }

  async #do(c: Command): Promise<void> {
    switch (c.do) {
      case "start":
        return this.#start(c);
      case "progress":
        this.#running.get(c.attempt)?.job.progress(c.value);
        return;
      case "finish":
        this.#running.get(c.attempt)?.finish(c);
        return;
      case "stop":
        void this.#worker?.stop();
        return;
      default:
        throw new Error(`unknown command ${c.do}`);
    }
  }

  async #start(c: Command): Promise<void> {
    const worker = new Worker({
      gateway: c.gateway,
      token: c.token,
      tokenFile: c.token_file,
      node: c.node,
      slots: c.slots,
      heartbeatMs: c.heartbeat_ms,
      stopTimeoutMs: c.stop_timeout_ms,
      minBackoffMs: c.min_backoff_ms,
      maxBackoffMs: c.max_backoff_ms,
    });
    for (const { name, version } of c.services) {
      worker.service(name, version ? { version } : {}, (job) => this.#handle(job));
    }
    this.#worker = worker;
    await worker.start();
    worker.done().then(
      () => put({ event: "stopped" }),
      (err) => put({ event: "stopped", error: errorOf(err) }),
    );
  }

  async #handle(job: RunningJob): Promise<unknown> {
    const attempt = `${job.id}:${job.attempt}`;
    const finished = new Promise<Command>((finish) => this.#running.set(attempt, { job, finish }));
    const { id, tenant, service, payload } = job;
    put({ event: "job", attempt, job_id: id, number: job.attempt, tenant, service, payload });
    const tell = () => put({ event: "cancelled", attempt });
    if (job.signal.aborted) tell();
    else job.signal.addEventListener("abort", tell, { once: true });
    const { error, result } = await finished;
    job.signal.removeEventListener("abort", tell);
    this.#running.delete(attempt);
    if (!error) return result;
    const failure = new HandlerError(error.code, error.message);
    if (!error.retryable) throw failure;
    throw retryable(failure, error.retry_delay_ms === undefined ? {} : { afterMs: error.retry_delay_ms });
  }

  async end(): Promise<void> {
    await this.#worker?.stop({ interrupt: true });
  }
}

const driver = process.argv[2] === "worker" ? new WorkerDriver() : new ClientDriver();
for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim()) void driver.command(JSON.parse(line));
}
await driver.end();
process.exit(0);
