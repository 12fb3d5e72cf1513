import { Latch } from "../async.js";
import type { Job } from "../frames.js";
import { StopReason } from "./error.js";

/**
 * Bound the ended attempts, and the early cancels, that are remembered; the oldest is forgotten first. An attempt can
 * be offered again until a heartbeat that was sent after its end is answered, so this is far more than needed.
 */
const maxEnded = 1 << 16;
const maxEarlyCancels = 1 << 12;
/** The attempts that may be held for each slot: as many again as Redis grants, for those that it no longer counts. */
const heldPerSlot = 2;

/** One try of one job that the process holds. */
export class Attempt {
  readonly control = new AbortController();
  /** Opens when Redis has answered that the node does not own the attempt. */
  readonly lost = new Latch();
  phase: "waiting" | "running" | "finishing" = "waiting";
  /** True once a cancel of the job has come. */
  asked = false;
  /** True once the attempt's end is decided, by the handler that returns or by the watcher that gives it up. */
  left = false;
  /** True if the node runs no such service. */
  moot = false;

  constructor(
    /** `<job id>:<number>` */
    readonly id: string,
    /** Undefined until the spec has come. */
    public job: Job | undefined,
    public tenant: string,
  ) {}

  get jobId(): string {
    return this.id.slice(0, this.id.lastIndexOf(":"));
  }

  get number(): number {
    return Number(this.id.slice(this.id.lastIndexOf(":") + 1));
  }

  get disowned(): boolean {
    return this.lost.done;
  }

  get signal(): AbortSignal {
    return this.control.signal;
  }

  /** Why the attempt was told to stop; undefined if it was not. */
  get cause(): StopReason | undefined {
    return this.signal.aborted ? (this.signal.reason as StopReason) : undefined;
  }

  stop(reason: StopReason): void {
    this.control.abort(reason);
  }

  disown(reason: StopReason): void {
    this.lost.open();
    this.stop(reason);
  }
}

/** A bounded set of attempts that forgets the oldest first. */
class Remembered extends Set<string> {
  constructor(readonly limit: number) {
    super();
  }

  override add(id: string): this {
    super.add(id);
    if (this.size > this.limit) this.delete(this.values().next().value as string);
    return this;
  }
}

/**
 * Knows which attempts the process holds, which have ended, and for which a cancel came before the attempt. It does no
 * I/O and has no clock.
 */
export class Ledger {
  readonly held = new Map<string, Attempt>();
  /** Opens when nothing is held after drain. */
  readonly idle = new Latch();
  closed = false;
  /** True while no heartbeat has been answered for the heartbeat limit. */
  cutOff = false;
  readonly #ended = new Remembered(maxEnded);
  readonly #cancels = new Remembered(maxEarlyCancels);
  #refused = false;
  #stopping: StopReason | undefined;

  constructor(readonly slots: number) {}

  get draining(): boolean {
    return this.#stopping !== undefined;
  }

  /** Takes in an attempt that the node owns. It returns undefined if the attempt is known, or there is no room: then the next heartbeat brings it again. */
  offer(id: string, job: Job | undefined, tenant: string): Attempt | undefined {
    if (this.closed || this.held.has(id) || this.#ended.has(id)) return undefined;
    if (this.held.size >= heldPerSlot * this.slots) {
      this.#refused = true;
      return undefined;
    }
    const attempt = new Attempt(id, job, tenant);
    if (this.#cancels.has(id)) {
      this.#cancels.delete(id);
      attempt.asked = true;
      attempt.stop(new StopReason("cancelled"));
    }
    if (this.#stopping) attempt.stop(this.#stopping);
    this.held.set(id, attempt);
    return attempt;
  }

  /** Records that the attempt is to be cancelled. One that has not come yet is cancelled when it arrives. */
  ask(id: string): void {
    const attempt = this.held.get(id);
    if (attempt) {
      if (attempt.phase === "finishing") return;
      attempt.asked = true;
      attempt.stop(new StopReason("cancelled"));
    } else if (!this.#ended.has(id) && !this.#cancels.has(id)) this.#cancels.add(id);
  }

  /** Stops an attempt that the node does not own. If its end is being reported, the answer to the report decides. */
  disown(id: string): void {
    const attempt = this.held.get(id);
    if (attempt && attempt.phase !== "finishing") attempt.disown(new StopReason("not_owned"));
  }

  /** Moves the attempt to running, unless it was stopped before. */
  begin(attempt: Attempt): boolean {
    if (this.cutOff && attempt.job?.on_lease_loss === "cancel") attempt.stop(new StopReason("lease_lost"));
    if (attempt.signal.aborted) return false;
    attempt.phase = "running";
    return true;
  }

  /** Decides the attempt's end: a later cancel or loss of ownership does not count. */
  finish(attempt: Attempt): void {
    if (!attempt.disowned) attempt.phase = "finishing";
  }

  /** Lets go of an attempt. It returns true if a heartbeat is due because another one was turned away before. */
  remove(attempt: Attempt): boolean {
    this.held.delete(attempt.id);
    this.#ended.add(attempt.id);
    const due = this.#refused;
    this.#refused = false;
    this.#checkIdle();
    return due;
  }

  /** The attempts that a heartbeat names. */
  running(): string[] {
    return [...this.held.values()].filter((attempt) => !attempt.disowned).map((attempt) => attempt.id);
  }

  /** Stops the attempts that have not begun, and every attempt that is offered from now on. */
  drain(): void {
    this.#stopping ??= new StopReason("stopping");
    for (const attempt of this.held.values()) if (attempt.phase === "waiting") attempt.stop(this.#stopping);
    this.#checkIdle();
  }

  /** Stops all held attempts of a draining worker. */
  interrupt(): void {
    for (const attempt of this.held.values()) attempt.stop(this.#stopping as StopReason);
  }

  /** Disowns all attempts, because the node belongs to another process. */
  abandon(): void {
    for (const attempt of this.held.values()) attempt.disown(new StopReason("superseded"));
  }

  /** Stops the running jobs that ask for it. No such job begins until the lease is back. */
  loseLease(): string[] {
    this.cutOff = true;
    const stopped = [...this.held.values()].filter(
      (attempt) => attempt.phase === "running" && attempt.job?.on_lease_loss === "cancel" && !attempt.signal.aborted,
    );
    for (const attempt of stopped) attempt.stop(new StopReason("lease_lost"));
    return stopped.map((attempt) => attempt.jobId);
  }

  #checkIdle(): void {
    if (this.#stopping && this.held.size === 0) this.idle.open();
  }
}
