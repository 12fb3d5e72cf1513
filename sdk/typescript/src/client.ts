import { Latch, Pauses, pause, until } from "./async.js";
import { type Encoded, encode, moved, StatusCall, SubmitCall, type Submitted, split } from "./call.js";
import { type Call, Connection, type Owner } from "./connection.js";
import { ClosedError, FreeslotError, invalid } from "./error.js";
import { isTerminal, type Job, type JobStatus, type ReplicaMessage } from "./frames.js";
import { type CallOptions, Handle } from "./handle.js";
import { type ClientOptions, isPlain, type ResolvedOptions, resolve } from "./options.js";

/** A connection that lasted shorter does not reset the backoff. */
const stableMs = 1_000;
/** The attaches that are under way at a time after a reconnect. */
const adoptLimit = 32;
/** How many lost requests are remembered. */
const mostLost = 10_000;
/** The frames of one batch that are under way at a time. */
const batchCalls = 4;

/**
 * Submits jobs over one WebSocket to one replica. If the connection breaks, or the replica stops, the client connects
 * to the next of its addresses and attaches to all jobs that have no result yet: their handles go on.
 */
export class Client {
  readonly #options: ResolvedOptions;
  /** The client's life: close ends it. */
  readonly #life = new AbortController();
  /** Takes new requests; undefined if there is no connection. */
  #current: Connection | undefined;
  /** Opens when there is a connection, or the client is closed. */
  #ready = new Latch();
  /** All open connections: the current one, and those to draining replicas that still have answers to bring. */
  readonly #connections = new Set<Connection>();
  /** The accepted jobs that have no result yet. */
  readonly #jobs = new Map<string, Handle>();
  /** Counts, by name, requests without an answer that went with their connections. */
  readonly #lost = new Map<string, number>();
  #requests = 0;
  #lastId = 0;
  #failure: unknown;
  #loop: Promise<void> = Promise.resolve();
  #adopting = false;
  #attaches = 0;
  readonly #owner: Owner = {
    push: (conn, message) => this.#push(conn, message),
    left: (conn) => this.#unuse(conn),
    lose: (names) => this.#lose(names),
    moved: (conn) => this.#moved(conn),
  };

  private constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  /**
   * Connects to a replica, such as `ws://127.0.0.1:7480`. Of several addresses each is tried once in turn. It fails
   * with a FreeslotError: `unauthenticated`, `permission_denied`, `overloaded`, `unavailable`, or `invalid_argument`
   * for an option. A browser does not say why a handshake was refused, so there the code is `unavailable`.
   */
  static async connect(urls: string | string[], options: ClientOptions = {}): Promise<Client> {
    const client = new Client(resolve(urls, options));
    await client.#start(options.signal);
    return client;
  }

  async #start(signal?: AbortSignal): Promise<void> {
    const o = this.#options;
    const plain = o.token || o.tokenSource ? o.urls.find(isPlain) : undefined;
    if (plain) o.log({ event: "client.plain", host: plain.host });
    let failure: unknown;
    for (let i = 0; i < o.urls.length; i++) {
      try {
        const conn = await this.#open(i, signal ?? this.#life.signal);
        this.#loop = this.#run(conn);
        return;
      } catch (err) {
        failure ??= err;
        if (signal?.aborted) throw err;
      }
    }
    throw failure;
  }

  #open(index: number, signal: AbortSignal): Promise<Connection> {
    return Connection.open(this.#owner, this.#options, index, signal);
  }

  /**
   * Submits a job and returns when it is accepted; it may still wait for a free slot. While there is no connection,
   * submit waits for one, until `signal` is aborted.
   *
   * With the code `unavailable` the job may have been accepted, unless the message has "nothing was sent": the client
   * does not repeat a submit, because that could run the job twice. Give the job an `idempotency_key` to repeat it
   * yourself. Abort reasons leave the same doubt.
   */
  async submit<P = unknown, R = unknown>(job: Job<P>, options: CallOptions = {}): Promise<Handle<R>> {
    const [result] = await this.#submit(
      (conn) => [encode(job, "job", 0, conn.welcome)],
      (id, [one]) => `{"type":"submit","id":"${id}","job":${one?.json}}`,
      options.signal,
    );
    if (!result?.handle) throw result?.error;
    return result.handle as Handle<R>;
  }

  /** Submits a job and waits for its result: submit, then Handle.result. */
  async run<P = unknown, R = unknown>(job: Job<P>, options: CallOptions = {}): Promise<R> {
    const handle = await this.submit<P, R>(job, options);
    return handle.result(options);
  }

  /**
   * Submits jobs, in as few frames as the replica allows. It returns when each job is accepted or refused, in the order
   * of the jobs; one refused job does not affect the others. It fails only if nothing was sent.
   */
  async batch<P = unknown, R = unknown>(jobs: Job<P>[], options: CallOptions = {}): Promise<Submitted<R>[]> {
    if (jobs.length === 0) throw invalid("jobs", "is empty");
    const limits = (await this.#connected(options.signal)).welcome;
    const results: Submitted[] = new Array(jobs.length);
    const good: Encoded[] = [];
    jobs.forEach((job, i) => {
      try {
        good.push(encode(job, `jobs[${i}]`, i, limits));
      } catch (error) {
        results[i] = { error };
      }
    });
    const parts = split(good, limits);
    const worker = async () => {
      for (let part = parts.shift(); part; part = parts.shift()) await this.#submitPart(part, results, options.signal);
    };
    await Promise.all(Array.from({ length: batchCalls }, worker));
    return results as Submitted<R>[];
  }

  /** Submits a part of a batch as one frame. It never fails: errors go into the results. */
  async #submitPart(part: Encoded[], results: Submitted[], signal?: AbortSignal): Promise<void> {
    const encodePart = (id: string) => `{"type":"submit","id":"${id}","jobs":[${part.map((one) => one.json).join()}]}`;
    let got: (Submitted | undefined)[];
    try {
      got = await this.#submit(() => part, encodePart, signal);
    } catch (error) {
      got = part.map(() => ({ error }));
    }
    // A frame that cannot be read is refused as a whole, and nothing in it was submitted: its other jobs go without it.
    if (part.length > 1 && isRefusedFrame(got)) {
      const half = part.length >> 1;
      const halves = [part.slice(0, half), part.slice(half)];
      await Promise.all(halves.map((jobs) => this.#submitPart(jobs, results, signal)));
      return;
    }
    part.forEach((one, k) => {
      const result = got[k] as Submitted;
      results[one.index] = result.handle ? result : { error: moved(result.error, k, one.index) };
    });
  }

  async #submit(
    prepare: (conn: Connection) => Encoded[],
    text: (id: string, jobs: Encoded[]) => string,
    signal?: AbortSignal,
  ): Promise<(Submitted | undefined)[]> {
    let jobs: Encoded[] = [];
    const call = await this.#exchange(
      (conn, done) => {
        jobs = prepare(conn);
        const names = jobs.map((job) => job.name);
        return new SubmitCall(names, (id, position, name) => this.#accepted(conn, id, position, name), done);
      },
      (id) => text(id, jobs),
      signal,
    );
    return call.results;
  }

  /**
   * Asks for a job to be cancelled and returns its status: a running job is cancelling, a waiting one is cancelled. The
   * handle, if there is one, gets the end.
   */
  async cancel(jobId: string, options: CallOptions = {}): Promise<JobStatus> {
    return this.#repeat("cancel", jobId, (_conn, done) => new StatusCall(done), options.signal);
  }

  /**
   * Makes this client the one that gets a job's result; a client that waited for it before does not get it any more. If
   * this client already waits for the job, attach returns the same handle.
   */
  async attach<R = unknown>(jobId: string, options: CallOptions = {}): Promise<Handle<R>> {
    let handle = this.#jobs.get(jobId);
    if (!handle) {
      await this.#repeat(
        "attach",
        jobId,
        (conn, done) =>
          new StatusCall(
            done,
            (status) => {
              handle = this.#attached(conn, status, this.#jobs.get(status.job_id));
            },
            jobId,
          ),
        options.signal,
      );
    }
    return handle as Handle<R>;
  }

  /** Sends a request that may be repeated, until it is answered. */
  async #repeat(
    type: string,
    jobId: string,
    make: (conn: Connection, done: () => void) => StatusCall,
    signal?: AbortSignal,
  ): Promise<JobStatus> {
    const job = JSON.stringify(jobId);
    for (;;) {
      const call = await this.#exchange(make, (id) => `{"type":"${type}","id":"${id}","job_id":${job}}`, signal);
      if (call.status) return call.status;
      if (!call.broken) throw call.error;
    }
  }

  /**
   * Ends the connection. Calls under way and handles without a result fail with ClosedError; their jobs go on. It takes
   * up to five seconds if the replica does not answer. Only the first call does anything.
   */
  async close(): Promise<void> {
    const first = !this.#life.signal.aborted;
    this.#life.abort(new ClosedError());
    this.#ready.open();
    const open = [...this.#connections];
    if (first) {
      for (const conn of open) {
        conn.fail(new ClosedError(), false);
        conn.close();
      }
      for (const handle of this.#jobs.values()) handle.end(new ClosedError());
      this.#jobs.clear();
    }
    await Promise.all(open.map((conn) => conn.ended.opened));
    await this.#loop;
  }

  /** Sends a request and waits for its answers. If no connection took it, the next one does; nothing is sent twice. */
  async #exchange<C extends Call>(
    make: (conn: Connection, done: () => void) => C,
    text: (id: string) => string,
    signal?: AbortSignal,
  ): Promise<C> {
    if (this.#requests >= this.#options.maxRequests) {
      throw new FreeslotError(
        "overloaded",
        `the client has ${this.#requests} requests under way, which is its limit; nothing was sent`,
      );
    }
    this.#requests++;
    try {
      let conn = await this.#connected(signal);
      while (!conn.usable || conn.full) conn = await this.#connected(signal);
      const answered = new Latch();
      const call = make(conn, () => answered.open());
      const id = (++this.#lastId).toString(36);
      const frame = text(id);
      if (frame.length * 3 > conn.welcome.max_frame_bytes) checkFrame(frame, conn.welcome.max_frame_bytes);
      conn.send(id, call, frame);
      try {
        await until(answered.opened, signal);
      } catch (err) {
        conn.forget(id);
        throw err;
      }
      return call;
    } finally {
      this.#requests--;
    }
  }

  /** Waits for a connection that takes requests and has room for one. The caller uses it without waiting again. */
  async #connected(signal?: AbortSignal): Promise<Connection> {
    for (;;) {
      signal?.throwIfAborted();
      this.#life.signal.throwIfAborted();
      const conn = this.#current;
      if (!conn) await this.#awaitReady(signal);
      else if (conn.full) await until(conn.drained(), signal);
      else return conn;
    }
  }

  async #awaitReady(signal?: AbortSignal): Promise<void> {
    await until(this.#ready.opened, signal);
  }

  /** Keeps the client connected until it is closed. */
  async #run(first: Connection): Promise<void> {
    const o = this.#options;
    const pauses = new Pauses(o.minBackoffMs, o.maxBackoffMs);
    let conn: Connection | undefined = first;
    while (conn) {
      this.#use(conn);
      await until(conn.over.opened, this.#life.signal).catch(() => {});
      if (this.#life.signal.aborted) return;
      let wait = 0;
      if (performance.now() - conn.since < stableMs) wait = pauses.next();
      else {
        pauses.reset();
        // All clients of a dead replica come at the same time, so spread them a little.
        if (conn.dead) wait = Math.random() * o.minBackoffMs;
      }
      o.log({ event: conn.dead ? "client.disconnected" : "client.told_to_go", host: conn.host });
      conn = await this.#reconnect((conn.index + 1) % o.urls.length, wait, pauses);
    }
  }

  /** Tries the addresses in turn, with a pause after each round. It returns undefined if the client is closed. */
  async #reconnect(next: number, wait: number, pauses: Pauses): Promise<Connection | undefined> {
    const { urls, log } = this.#options;
    for (let tried = 1; ; tried++) {
      if (!(await pause(wait, this.#life.signal))) return undefined;
      try {
        return await this.#open(next, this.#life.signal);
      } catch (error) {
        if (this.#life.signal.aborted) return undefined;
        this.#failure = error;
        log({ event: "client.connect_failed", host: urls[next]?.host ?? "", error });
      }
      next = (next + 1) % urls.length;
      wait = tried % urls.length === 0 ? pauses.next() : 0;
    }
  }

  /** Why there is no connection, as the last attempt to connect saw it; undefined while there is one. */
  get failure(): unknown {
    return this.#current ? undefined : this.#failure;
  }

  #use(conn: Connection): void {
    if (this.#life.signal.aborted) return conn.close();
    if (conn.dead) return;
    this.#connections.add(conn);
    if (!conn.usable) return;
    this.#current = conn;
    this.#ready.open();
    this.#options.log({ event: "client.connected", host: conn.host, replica: conn.welcome.replica });
    this.#adopt();
  }

  /** Stops sending requests over the connection. Answers under way still come. */
  #unuse(conn: Connection): void {
    if (this.#current !== conn) return;
    this.#current = undefined;
    if (!this.#life.signal.aborted) this.#ready = new Latch();
  }

  #moved(conn: Connection): void {
    if (conn.dead) this.#connections.delete(conn);
    this.#adopt();
  }

  /** Looks, soon, for jobs of lost and leaving connections. */
  #adopt(): void {
    if (this.#adopting) return;
    this.#adopting = true;
    queueMicrotask(() => {
      this.#adopting = false;
      this.#takeOver();
    });
  }

  /** Moves jobs of lost and leaving connections to the current one, and closes leaving ones that brought all answers. */
  #takeOver(): void {
    const conn = this.#current;
    if (!conn) return;
    for (const old of this.#connections) if (old.leaving && old.idle && !old.closing && old !== conn) old.close();
    for (const handle of this.#jobs.values()) {
      if (this.#attaches >= adoptLimit) return;
      if (!handle.taken && (handle.conn.usable || handle.conn === conn)) continue;
      handle.conn = conn;
      handle.taken = false;
      this.#attaches++;
      void this.#adoptOne(conn, handle).finally(() => {
        this.#attaches--;
        this.#adopt();
      });
    }
  }

  /** Attaches to one job. If the connection is lost meanwhile, the job goes to the next one. */
  async #adoptOne(conn: Connection, handle: Handle): Promise<void> {
    const pauses = new Pauses(this.#options.minBackoffMs, this.#options.maxBackoffMs);
    while (conn.usable && !handle.done) {
      const answered = new Latch();
      const call = new StatusCall(
        () => answered.open(),
        (status) => this.#attached(conn, status, handle),
        handle.id,
      );
      const id = (++this.#lastId).toString(36);
      conn.send(id, call, `{"type":"attach","id":"${id}","job_id":${JSON.stringify(handle.id)}}`);
      await answered.opened;
      if (!call.error || call.broken) return;
      if (!(call.error instanceof FreeslotError) || !call.error.temporary) {
        this.#end(handle, call.error);
        return;
      }
      if (!(await pause(pauses.next(), this.#life.signal))) return;
    }
  }

  #accepted(conn: Connection, id: string, position: number, name: string): Handle {
    const known = this.#jobs.get(id); // an idempotency key can belong to a job of this client
    if (known) {
      // A leaving connection will not bring the result: the one that takes the job over does.
      if (!conn.leaving) known.conn = conn;
      known.name = name;
      return known;
    }
    const handle = new Handle(conn, id, position);
    handle.name = name;
    this.#jobs.set(id, handle);
    return handle;
  }

  #attached(conn: Connection, status: JobStatus, known: Handle | undefined): Handle {
    const handle = known ?? new Handle(conn, status.job_id, status.position ?? 0);
    const over = isTerminal(status.state);
    handle.conn = conn;
    if (!known && !over) this.#jobs.set(handle.id, handle);
    handle.report(status.progress);
    if (over) this.#end(handle, status);
    // The status of a waiting job names the node on which it ran last, if it ever did.
    else if (status.state === "running" || status.state === "cancelling") handle.assign(status.node, status.attempt);
    return handle;
  }

  #push(conn: Connection, message: ReplicaMessage): void {
    switch (message.type) {
      case "assigned":
        this.#jobs.get(message.job_id)?.assign(message.node, message.attempt);
        return;
      case "progress": {
        const { attempt, seq, at_ms, value } = message;
        this.#jobs.get(message.job_id)?.report({ attempt, seq, at_ms, value });
        return;
      }
      case "result": {
        const handle = this.#jobs.get(message.job.job_id);
        if (handle) this.#end(handle, message.job);
        return;
      }
      case "detached": {
        const handle = this.#jobs.get(message.job_id);
        // Unless this client took the job to another connection.
        if (handle?.conn === conn) this.#detached(handle);
        return;
      }
      default: // kinds of messages that only newer replicas send
    }
  }

  /** Remembers what requests without an answer may yet take away. */
  #lose(names: string[]): void {
    for (const name of names) if (this.#lost.size < mostLost) this.#lost.set(name, (this.#lost.get(name) ?? 0) + 1);
  }

  /** Ends a handle whose job another client took. If a lost request of this one can have done that, it attaches again. */
  #detached(handle: Handle): void {
    for (const name of [handle.id, handle.name]) {
      const count = this.#lost.get(name) ?? 0;
      if (count === 0) continue;
      if (count > 1) this.#lost.set(name, count - 1);
      else this.#lost.delete(name);
      handle.taken = true;
      this.#adopt();
      return;
    }
    this.#end(handle, new FreeslotError("unavailable", "another client attached to the job and gets its result"));
  }

  #end(handle: Handle, end: JobStatus | Error): void {
    if (this.#jobs.get(handle.id) === handle) this.#jobs.delete(handle.id);
    this.#lost.delete(handle.id);
    this.#lost.delete(handle.name);
    handle.end(end);
  }
}

/** Reports whether one error, which names a field of a job, is the answer to all jobs of a frame. */
function isRefusedFrame([first, ...others]: (Submitted | undefined)[]): boolean {
  const error = first?.error;
  if (!(error instanceof FreeslotError) || !error.field?.startsWith("jobs")) return false;
  return others.every((one) => one?.error === error);
}

function checkFrame(frame: string, limit: number): void {
  const bytes = new TextEncoder().encode(frame).length;
  if (bytes <= limit) return;
  throw new FreeslotError("payload_too_large", `the frame has ${bytes} bytes, the replica's limit is ${limit}`);
}
