import { randomUUID } from "node:crypto";
import { Bell, Latch, longestTimer, Pauses, pause } from "../async.js";
import { FreeslotError, invalid } from "../error.js";
import type { Job, JobError } from "../frames.js";
import { HandlerError, messageOf, RetryableError, StopReason, stackOf, superseded } from "./error.js";
import type { Answer, Completion, Delivery, Profile, Report } from "./frames.js";
import { ConnectError, Gateway, isRefusal } from "./gateway.js";
import { type Handler, RunningJob } from "./job.js";
import { type Attempt, Ledger } from "./ledger.js";
import { withLimit } from "./link.js";
import { checkName, type Languages, plainOf, type ResolvedWorker, resolve, type WorkerOptions } from "./options.js";
import { ProgressSender, type Reports } from "./progress.js";
import { Slots } from "./slots.js";

/** Bounds how often requests can make the heartbeat loop beat. */
const minBeatGapMs = 20;
/** How long an attempt waits for slots before it is handed back. */
const slotPatienceMs = 10_000;
/** How long a stopped handler may go on before its attempt ends without it. */
const stopGraceMs = 30_000;
/** How long a job that is handed back waits for the heartbeat by which Redis learns that the node stops. */
const drainingMs = 1_000;
/** Bounds, while stopping, the reports of interrupted jobs. */
const reportMs = 2_000;
const maxErrorBytes = 8 << 10;
const firstRetryMs = 1_000;
const longestRetryMs = 300_000;
const maxRetryAfterMs = 3_600_000;

export interface ServiceOptions {
  /** A semantic version, for jobs that ask for a range. */
  version?: string;
  /** Added to the node's languages. */
  languages?: Languages;
}

interface Returned {
  result?: string;
  error?: unknown;
  failure?: JobError;
  /** True if the handler has not returned and was given up. */
  stuck?: boolean;
}

/**
 * Makes the process a node: it takes the jobs that schedulers place there, by a replica's gateway, calls the handler of
 * their service and reports the result. A job can be executed several times, but only one end counts.
 */
export class Worker {
  readonly #options: ResolvedWorker;
  readonly #profile: Profile;
  readonly #handlers = new Map<string, Handler>();
  readonly #ledger: Ledger;
  readonly #slots: Slots;
  readonly #progress: ProgressSender;
  readonly #beatNow = new Bell();
  #gateway!: Gateway; // of the last attempt to start
  #limitMs = 0;
  #lease: ReturnType<typeof setTimeout> | undefined;
  #attempts = 0;
  readonly #noAttempts = new Bell();
  #handling = 0;
  /** The slots of handlers that were given up and have not returned. */
  #withheld = 0;
  /** The slots of the last registration. */
  #offered = 0;
  #state: "new" | "started" | "ended" = "new";
  #fatal: Error | undefined;
  /** Opens to drain and end; not to wait for running handlers; when fatal is set; not to wait for interrupted handlers. */
  readonly #stopping = new Latch();
  readonly #hurry = new Latch();
  readonly #failed = new Latch();
  readonly #abandon = new AbortController();
  /** Opens once no more jobs are placed here. */
  readonly #draining = new Latch();
  readonly #done = new Latch();
  /** Bounds the loops, and the reports of ended jobs: the loops end before them. */
  readonly #loops = new AbortController();
  readonly #life = new AbortController();

  /** Checks the options; it does no I/O. */
  constructor(options: WorkerOptions) {
    this.#options = resolve(options);
    const { slots, progressMs } = this.#options;
    this.#ledger = new Ledger(slots);
    this.#slots = new Slots(slots);
    this.#progress = new ProgressSender(progressMs, (reports) => this.#sendProgress(reports));
    this.#profile = {
      max_concurrency: slots,
      installed_services: [],
      capabilities: {},
      ...(options.pools ? { pool_ids: options.pools } : {}),
      ...(options.labels ? { labels: options.labels } : {}),
      ...(options.features ? { features_supported: options.features } : {}),
    };
    this.#addLanguages(options.languages ?? {});
  }

  /** Makes the function the handler of a service. Call it before start. */
  service(name: string, handler: Handler): this;
  service(name: string, options: ServiceOptions, handler: Handler): this;
  service(name: string, second: ServiceOptions | Handler, third?: Handler): this {
    const [options, handler] = typeof second === "function" ? [{}, second] : [second, third];
    checkName("service", name);
    if (typeof handler !== "function") throw invalid("service", `${name} has no handler, expected a function`);
    if (this.#handlers.has(name)) throw invalid("service", `${name} has a handler already`);
    if (this.#state !== "new") throw invalid("service", `${name} comes after the start, expected before`);
    this.#handlers.set(name, handler);
    this.#profile.installed_services.push({ name, ...(options.version ? { version: options.version } : {}) });
    this.#addLanguages(options.languages ?? {});
    return this;
  }

  #addLanguages(languages: Languages): void {
    for (const stage of ["asr", "tts", "semantic"] as const) {
      const tags = languages[stage];
      if (!tags?.length) continue;
      const key = `${stage}_languages` as const;
      this.#profile.capabilities[key] = [...new Set([...(this.#profile.capabilities[key] ?? []), ...tags])];
    }
  }

  /**
   * Connects, registers the node and starts to take jobs. While no gateway can be reached it logs that and tries again,
   * until `signal` is aborted or the worker is stopped. It fails if a gateway refuses the node. Another process that has
   * registered the node ends.
   */
  async start(options: { signal?: AbortSignal } = {}): Promise<void> {
    if (this.#state !== "new") throw invalid("start", "comes a second time, expected once");
    this.#state = "started";
    const plain = plainOf(this.#options.addresses);
    if (plain)
      this.#log("gateway.plain", { gateway: plain.host, reason: "the token goes there in the clear; use wss://" });
    const control = new AbortController();
    const giveUp = () => control.abort(options.signal?.reason);
    options.signal?.addEventListener("abort", giveUp, { once: true });
    if (options.signal?.aborted) giveUp();
    void this.#stopping.opened.then(() => control.abort(new StopReason("stopping")));
    try {
      await this.#connect(control.signal);
    } catch (err) {
      this.#state = "ended";
      this.#done.open();
      throw err;
    } finally {
      options.signal?.removeEventListener("abort", giveUp);
    }
    void this.#supervise();
  }

  /**
   * Starts the worker, and stops it in order at SIGTERM and SIGINT: it takes no new jobs, running ones get
   * `stopTimeoutMs`, and those that have not ended are handed back. A second signal interrupts them at once. It returns
   * when the worker has ended, and fails if it could not start or another process took the node over.
   */
  async run(): Promise<void> {
    const signals = ["SIGTERM", "SIGINT"] as const;
    const stop = () => void this.stop({ interrupt: this.#stopping.done });
    for (const signal of signals) process.on(signal, stop);
    try {
      await this.start();
      await this.done();
    } catch (err) {
      if (!(err instanceof StopReason && err.reason === "stopping")) throw err;
    } finally {
      for (const signal of signals) process.off(signal, stop);
    }
  }

  /** Stops in order, and waits for the end. `interrupt` does not let running handlers end. */
  async stop(options: { interrupt?: boolean } = {}): Promise<void> {
    this.#stopping.open();
    if (options.interrupt) this.#hurry.open();
    if (this.#state === "new") {
      this.#state = "ended";
      this.#done.open();
    }
    await this.#done.opened;
  }

  /** Waits for the worker's end. It fails with the code `superseded` if another process took the node over. */
  async done(): Promise<void> {
    await this.#done.opened;
    if (this.#fatal) throw this.#fatal;
  }

  /** The host of the gateway that the node is connected to; undefined while there is none. */
  get gateway(): string | undefined {
    return this.#gateway?.host;
  }

  #log(event: string, fields: Record<string, unknown> = {}): void {
    this.#options.log(event, { node: this.#options.node, ...fields });
  }

  #pauses(): Pauses {
    return new Pauses(this.#options.minBackoffMs, this.#options.maxBackoffMs);
  }

  // The start.

  async #connect(signal: AbortSignal): Promise<void> {
    const pauses = this.#pauses();
    for (let first = true; ; first = false) {
      // Each attempt is an incarnation of its own: an earlier one whose answer was lost may have registered the node.
      const gateway = new Gateway(
        { ...this.#options, epoch: randomUUID(), log: (event, fields) => this.#log(event, fields) },
        {
          jobs: (deliveries) => this.#takeAll(deliveries),
          cancel: (attempts) => {
            for (const id of attempts) this.#ledger.ask(id);
          },
          beat: () => this.#beatNow.ring(),
        },
      );
      this.#gateway = gateway;
      try {
        await gateway.start(signal);
        await this.#register();
        this.#limitMs = gateway.heartbeatLimitMs || this.#limitMs;
        if (2 * this.#options.heartbeatMs > this.#limitMs) {
          this.#log("gateway.heartbeat_interval_long", {
            heartbeat_limit_ms: this.#limitMs,
            reason: "one late heartbeat can cost the node its jobs; make heartbeatMs at most half of the limit",
          });
        }
        return;
      } catch (err) {
        await gateway.stop();
        if (signal.aborted) throw signal.reason;
        if (!isUnreachable(err)) throw err;
        if (first)
          this.#log("node.connect_failed", { error: err, reason: "the node tries again until it is registered" });
      }
      if (!(await pause(pauses.next(), signal))) throw signal.reason;
    }
  }

  /** The slots that the node has for jobs. */
  get #offers(): number {
    return Math.max(this.#options.slots - this.#withheld, 0);
  }

  async #register(): Promise<void> {
    const slots = Math.max(this.#offers, 1); // a node that offers no slot is draining
    const answer = await this.#gateway.register({ ...this.#profile, max_concurrency: slots });
    this.#offered = slots;
    if (answer.lost?.length) {
      this.#log("node.jobs_lost", { jobs: answer.lost, reason: "the node's earlier process left them unfinished" });
    }
  }

  // The end.

  async #supervise(): Promise<void> {
    this.#renew(performance.now());
    const loops = [this.#heartbeats(), this.#progress.run(this.#loops.signal, this.#pauses())];
    await Promise.race([this.#stopping.opened, this.#failed.opened]);
    if (!this.#fatal) await this.#drain();
    this.#loops.abort();
    await Promise.all(loops);
    clearTimeout(this.#lease);
    this.#ledger.closed = true;
    if (this.#fatal) await this.#endSuperseded();
    this.#life.abort(new StopReason("stopping"));
    while (this.#attempts > 0) await this.#noAttempts.wait(undefined, new AbortController().signal);
    await this.#leave();
    this.#state = "ended";
    this.#done.open();
  }

  /** Lets running handlers end, then interrupts them, then gives up those that do not return. */
  async #drain(): Promise<void> {
    this.#ledger.drain();
    this.#beatNow.ring();
    if (await this.#idleWithin(this.#options.stopTimeoutMs, this.#hurry)) return;
    this.#ledger.interrupt();
    if (await this.#idleWithin(this.#options.interruptGraceMs)) return;
    this.#abandon.abort();
    await this.#idleWithin(reportMs);
  }

  /** Waits until nothing is held, or the worker is superseded. It returns false when the time is up. */
  async #idleWithin(ms: number, sooner = new Latch()): Promise<boolean> {
    const cut = new AbortController();
    const idle = Promise.race([this.#ledger.idle.opened, this.#failed.opened]).then(() => true);
    const late = pause(ms, cut.signal).then(() => false);
    try {
      return await Promise.race([idle, late, sooner.opened.then(() => false)]);
    } finally {
      cut.abort();
    }
  }

  /** Stops every handler and waits a little for them; their results are dropped. */
  async #endSuperseded(): Promise<void> {
    this.#log("node.superseded", { error: this.#fatal });
    this.#ledger.drain();
    this.#ledger.abandon();
    const cut = new AbortController();
    await Promise.race([this.#ledger.idle.opened, pause(this.#options.interruptGraceMs, cut.signal)]);
    cut.abort();
    this.#abandon.abort();
  }

  /** Takes the node out of the fleet and closes the connection. */
  async #leave(): Promise<void> {
    if (this.#handling > 0) this.#log("node.handlers_left", { handlers: this.#handling });
    if (!this.#fatal) {
      await this.#gateway.deregister().catch((error) => this.#log("node.deregister_failed", { error }));
    }
    await this.#gateway.stop();
  }

  #fail(err: Error): void {
    this.#fatal ??= err;
    this.#failed.open();
  }

  // Heartbeats.

  /** Sends a heartbeat each interval, and at once when asked. No two are under way. */
  async #heartbeats(): Promise<void> {
    const { heartbeatMs, maxBackoffMs, minBackoffMs } = this.#options;
    const pauses = new Pauses(minBackoffMs, Math.min(maxBackoffMs, heartbeatMs));
    const { signal } = this.#loops;
    let wait = Math.random() * heartbeatMs;
    for (let failing = false; ; ) {
      // After a failure only the pause counts: the requests then have the same cause.
      let asked = true;
      if (failing) await pause(wait, signal);
      else asked = await this.#beatNow.wait(wait, signal);
      if (signal.aborted) return;
      const begun = performance.now();
      try {
        await this.#beat(asked);
        if (failing) this.#log("heartbeat.recovered");
        failing = false;
        pauses.reset();
      } catch (err) {
        if (isSuperseded(err)) return this.#fail(superseded());
        if (signal.aborted) return;
        if (!failing) this.#log("heartbeat.failed", { error: err });
        failing = true;
        wait = pauses.next();
        continue;
      }
      if (!(await pause(minBeatGapMs, signal))) return;
      // All nodes of a gateway may have been asked at once: they must not stay in step.
      const next = asked ? Math.random() * heartbeatMs : heartbeatMs * (1 - Math.random() / 10);
      wait = Math.max(begun + next - performance.now(), 0);
    }
  }

  async #beat(asked: boolean): Promise<void> {
    const running = this.#ledger.running();
    const stopping = this.#ledger.draining;
    const begun = performance.now();
    const status = stopping || this.#offers === 0 ? "draining" : "online";
    try {
      await this.#gateway.heartbeat(
        { type: "heartbeat", status, running, ...(asked ? { now: true } : {}) },
        (answer) => {
          this.#renew(begun);
          this.#apply(answer);
        },
      );
    } catch (err) {
      if (!(err instanceof FreeslotError) || err.code !== "unknown_node") throw err;
      // A draining node stays away: the answers to its completions tell whether it owned what it runs.
      if (!stopping) {
        this.#log("node.forgotten", { reason: "Redis does not know the node any more; it registers again" });
        return this.#register();
      }
    }
    if (stopping) this.#draining.open();
    else if (Math.max(this.#offers, 1) !== this.#offered) await this.#register();
  }

  /** Cancels come before starts: an attempt that is to start and to be cancelled must not run. */
  #apply(answer: Answer): void {
    for (const id of answer.stop ?? []) this.#ledger.disown(id);
    for (const id of answer.cancel ?? []) this.#ledger.ask(id);
    for (const id of answer.start ?? []) this.#take(id, undefined, "");
  }

  /** Records that a heartbeat that began then has been answered. The limit counts from its beginning. */
  #renew(begun: number): void {
    this.#ledger.cutOff = false;
    clearTimeout(this.#lease);
    this.#lease = setTimeout(
      () => {
        const jobs = this.#ledger.loseLease();
        if (jobs.length > 0) this.#log("node.lease_lost", { cancelled: jobs });
      },
      Math.max(begun + this.#limitMs - performance.now(), 0),
    );
  }

  // Attempts.

  #takeAll(deliveries: Delivery[]): void {
    for (const { attempt, job, tenant } of deliveries) this.#take(attempt, job, tenant);
  }

  /** Starts an attempt that the node owns, unless it is known. */
  #take(id: string, job: Job | undefined, tenant: string): void {
    const attempt = this.#ledger.offer(id, job, tenant);
    if (!attempt) return;
    this.#attempts++;
    this.#attempt(attempt).catch(() => {
      const error = { code: "handler_error", message: "what the handler threw cannot be read" };
      return this.#end(attempt, { attempt: id, state: "failed", error });
    });
  }

  async #attempt(a: Attempt): Promise<void> {
    if (!(await this.#readSpec(a)) || !(await this.#acquire(a))) return this.#end(a, this.#unbegun(a));
    const job = a.job as Job;
    if (!this.#ledger.begin(a)) {
      this.#slots.release(job.slots ?? 1);
      return this.#end(a, this.#unbegun(a));
    }
    await this.#call(a, job);
  }

  async #acquire(a: Attempt): Promise<boolean> {
    const n = a.job?.slots ?? 1;
    return withLimit(slotPatienceMs, a.signal, (late) => this.#slots.acquire(n, late)).then(
      () => true,
      () => false,
    );
  }

  /** Reads the job of an attempt that came without it, until it succeeds or the attempt is stopped. */
  async #readSpec(a: Attempt): Promise<boolean> {
    for (const pauses = this.#pauses(); !a.job; ) {
      try {
        const answer = await this.#gateway.spec(a.jobId, a.signal);
        a.job = answer.job;
        a.tenant = answer.tenant ?? "";
        if (a.job) return true;
      } catch (err) {
        if (err instanceof FreeslotError && (err.code === "not_found" || err.code === "invalid_argument")) {
          // The record is gone. If the node still owns the attempt, a later heartbeat offers it again.
          this.#log("job.record_missing", { job: a.jobId, error: err });
          this.#ledger.disown(a.id);
          return false;
        }
      }
      if (!(await pause(pauses.next(), a.signal))) return false;
    }
    return true;
  }

  /** Calls the handler, and ends the attempt unless its watcher has given it up meanwhile. */
  async #call(a: Attempt, spec: Job): Promise<void> {
    const reports = this.#progress.begin(a.id);
    const slots = spec.slots ?? 1;
    const job = new RunningJob(
      {
        id: a.jobId,
        tenant: a.tenant,
        service: spec.service,
        attempt: a.number,
        payload: spec.payload ?? null,
        requirement: spec.requirement ?? {},
        slots,
        signal: a.signal,
        traceparent: spec.traceparent,
      },
      (json) => this.#progress.report(reports, json),
    );
    const returned = new Latch();
    void this.#watch(a, spec, reports, returned);
    this.#handling++;
    const outcome = await this.#handle(job);
    this.#handling--;
    this.#slots.release(slots);
    this.#progress.end(reports);
    returned.open();
    if (a.left) this.#withhold(-slots);
    else {
      a.left = true;
      await this.#end(a, this.#completionOf(a, spec, outcome));
    }
  }

  async #handle(job: RunningJob): Promise<Returned> {
    const handler = this.#handlers.get(job.service);
    if (!handler) {
      const message = `node ${this.#options.node} runs no service ${job.service}`;
      return { failure: { code: "no_handler", message } };
    }
    try {
      return this.#encode(await handler(job));
    } catch (error) {
      return { error };
    }
  }

  /** Turns a handler's result into the job's. */
  #encode(value: unknown): Returned {
    let result: string;
    try {
      result = JSON.stringify(value) ?? "null";
    } catch (err) {
      return {
        failure: {
          code: "handler_error",
          message: bounded(`the handler's result cannot be encoded: ${messageOf(err)}`),
        },
      };
    }
    const size = Buffer.byteLength(result);
    if (size <= this.#options.maxResultBytes) return { result };
    const message = `the result has ${size} bytes, the node's limit is ${this.#options.maxResultBytes}`;
    return { failure: { code: "result_too_large", message } };
  }

  /** Stops a handler that reports no progress, and gives up one that does not return after it was stopped. */
  async #watch(a: Attempt, spec: Job, reports: Reports, returned: Latch): Promise<void> {
    const stall = spec.progress_timeout_ms ? this.#stopQuiet(a, spec.progress_timeout_ms, reports) : () => {};
    const stopped = new Promise<void>((resolve) => a.signal.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([returned.opened, stopped]);
    stall();
    if (returned.done || !(await this.#isStuck(a, returned))) return;
    if (a.left) return;
    a.left = true;
    this.#log("job.handler_stuck", { job: a.jobId, service: spec.service });
    this.#progress.end(reports);
    this.#withhold(spec.slots ?? 1);
    await this.#end(a, this.#completionOf(a, spec, { stuck: true }));
  }

  /** Stops the handler when it has reported nothing for that long. */
  #stopQuiet(a: Attempt, limitMs: number, reports: Reports): () => void {
    let timer: ReturnType<typeof setTimeout>;
    const look = () => {
      const left = reports.heard + limitMs - performance.now();
      if (left > 0) timer = setTimeout(look, Math.min(left, longestTimer));
      else if (a.phase === "running") {
        this.#log("job.stalled", { job: a.jobId, attempt: a.number });
        a.stop(new StopReason("stalled"));
      }
    };
    look();
    return () => clearTimeout(timer);
  }

  /** Returns true if a stopped handler has not returned in time. */
  async #isStuck(a: Attempt, returned: Latch): Promise<boolean> {
    const cut = new AbortController();
    const abandoned = pause(longestTimer, this.#abandon.signal, cut.signal).then(() => true);
    const waits = [returned.opened.then(() => false), abandoned];
    const grace = () => pause(stopGraceMs, cut.signal);
    if (a.cause?.here) waits.push(grace());
    // From the loss on, Redis gives its slots to other jobs. The node's own stop has a limit of its own.
    else if (a.cause?.reason !== "stopping") {
      waits.push(a.lost.opened.then(() => (this.#fatal ? new Promise<boolean>(() => {}) : grace())));
    }
    try {
      return await Promise.race(waits);
    } finally {
      cut.abort();
    }
  }

  /** Records that stuck handlers keep that many slots more: the node offers fewer. */
  #withhold(slots: number): void {
    this.#withheld += slots;
    this.#beatNow.ring();
  }

  /** The completion of an attempt whose handler was never called; undefined for none. */
  #unbegun(a: Attempt): Completion | undefined {
    this.#ledger.finish(a);
    if (a.disowned) return undefined;
    if (a.asked) return { attempt: a.id, state: "cancelled" };
    switch (a.cause?.reason) {
      case undefined:
        return handBack(a, "the node's slots did not come free in time");
      case "lease_lost":
        return handBack(a, "the node was cut off from its gateways before the job began");
      default:
        return handBack(a, "the node stopped before the job began");
    }
  }

  /** Decides what the handler's return means for the job; undefined means nothing. */
  #completionOf(a: Attempt, spec: Job, r: Returned): (Completion & { result?: string }) | undefined {
    this.#ledger.finish(a);
    const cause = a.cause;
    const failed = { attempt: a.id, state: "failed" as const };
    if (a.disowned) return undefined;
    if (r.stuck && !cause?.here) {
      return handBack(a, "the node stopped while the job ran, and its handler did not return");
    }
    if (r.failure) return { ...failed, error: r.failure };
    if (r.result !== undefined) return { attempt: a.id, state: "succeeded", result: r.result };
    if (cause?.here) return this.#stoppedHere(a, spec, r, cause);
    if (a.asked && cause) return { attempt: a.id, state: "cancelled" };
    if (cause?.reason === "stopping") {
      return handBack(a, bounded(`the node stopped while the job ran: ${messageOf(r.error)}`));
    }
    if (!(r.error instanceof HandlerError || r.error instanceof RetryableError)) {
      const stack = bounded(stackOf(r.error));
      this.#log("job.handler_failed", { job: a.jobId, service: spec.service, stack });
    }
    return { ...failed, error: jobError(r.error), ...nextTry(r.error, a.number) };
  }

  /** Completes an attempt that its own node has stopped. */
  #stoppedHere(a: Attempt, spec: Job, r: Returned, cause: StopReason): Completion {
    let message =
      cause.reason === "stalled"
        ? `the handler reported no progress for ${spec.progress_timeout_ms} ms`
        : `node ${this.#options.node} could reach no gateway for ${this.#limitMs} ms`;
    if (r.stuck) message += ", and has not returned since";
    else if (r.error !== cause) message = bounded(`${message}: ${messageOf(r.error)}`);
    const error = { code: cause.reason, message };
    return { attempt: a.id, state: "failed", error, next: "retry", retry_delay_ms: retryDelay(a.number) };
  }

  // Reports.

  /** Reports how an attempt ended, and lets go of it. */
  async #end(a: Attempt, completion: (Completion & { result?: string }) | undefined): Promise<void> {
    if (completion) {
      if (completion.next === "hand_back" && a.signal.aborted) await this.#awaitFleet();
      await this.#report(a, completion);
    }
    if (this.#ledger.remove(a)) this.#beatNow.ring();
    if (--this.#attempts === 0) this.#noAttempts.ring();
  }

  /** Waits until Redis knows that the node takes no more jobs: it would give the slot to the same job. */
  async #awaitFleet(): Promise<void> {
    const cut = new AbortController();
    await Promise.race([this.#draining.opened, this.#failed.opened, pause(drainingMs, this.#life.signal, cut.signal)]);
    cut.abort();
  }

  /** Repeats a report until it is acknowledged or refused, or the worker's life ends. The first report wins. */
  async #report(a: Attempt, { result, ...completion }: Completion & { result?: string }): Promise<void> {
    const pauses = this.#pauses();
    for (let tries = 1; ; tries++) {
      try {
        const answer = await this.#gateway.complete(completion, result, this.#life.signal, (got) =>
          this.#takeAll(got.begun ?? []),
        );
        // The lost answer to an earlier try may have begun jobs.
        if (tries > 1 && answer.outcome !== "completed") this.#beatNow.ring();
        return;
      } catch (err) {
        if (isSuperseded(err)) return this.#fail(superseded());
        const code = err instanceof FreeslotError ? err.code : "";
        if (code === "unknown_node") return this.#beatNow.ring(); // the node's attempts are gone with it
        if ((code === "invalid_argument" || code === "payload_too_large") && completion.state === "succeeded") {
          completion.state = "failed";
          completion.error = { code: "handler_error", message: bounded(`the result was refused: ${messageOf(err)}`) };
          result = undefined;
        }
        this.#beatNow.ring();
        if (!(await pause(pauses.next(), this.#life.signal))) {
          return this.#log("job.report_abandoned", { job: a.jobId, error: err });
        }
      }
    }
  }

  async #sendProgress(reports: Report[]): Promise<void> {
    const answer = await this.#gateway.progress({ type: "progress", reports });
    answer.outcomes?.forEach((outcome, i) => {
      const id = reports[i]?.attempt ?? "";
      if (outcome === "stale") this.#ledger.disown(id);
      else if (outcome === "cancel") this.#ledger.ask(id);
    });
  }
}

function isSuperseded(err: unknown): boolean {
  return err instanceof FreeslotError && err.code === "superseded";
}

/** Reports whether an error of the start may pass by itself. */
function isUnreachable(err: unknown): boolean {
  if (err instanceof AggregateError) return !err.errors.some(isRefusal) && err.errors.some(isUnreachable);
  if (err instanceof ConnectError && err.defect) return false;
  if (err instanceof FreeslotError) return err.code === "unavailable" || err.code === "overloaded";
  return true; // no answer
}

function handBack(a: Attempt, message: string): Completion {
  return { attempt: a.id, state: "failed", next: "hand_back", error: { code: "interrupted", message } };
}

/** Keeps a handler's own code, if it is a valid one. */
function jobError(err: unknown): JobError {
  const of = err instanceof RetryableError ? err.cause : err;
  const code =
    of instanceof HandlerError && /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(of.code) ? of.code : "handler_error";
  return { code, message: bounded(messageOf(of)) };
}

function nextTry(err: unknown, attempt: number): Pick<Completion, "next" | "retry_delay_ms"> {
  if (!(err instanceof RetryableError)) return {};
  const after = err.afterMs === undefined ? retryDelay(attempt) : Math.min(Math.max(err.afterMs, 0), maxRetryAfterMs);
  return { next: "retry", retry_delay_ms: Math.round(after) };
}

/** A pause with full jitter: jobs that failed together for one cause must not come back together. */
function retryDelay(attempt: number): number {
  return Math.round(Math.random() * Math.min(firstRetryMs * 2 ** (attempt - 1), longestRetryMs));
}

/** Cuts a message to what is kept of it. */
function bounded(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxErrorBytes) return bytes.toString();
  return `${bytes
    .subarray(0, maxErrorBytes)
    .toString()
    .replace(/\ufffd+$/, "")}…`;
}
