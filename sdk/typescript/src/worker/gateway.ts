import { Bell, Latch, Pauses, pause, until } from "../async.js";
import { type Code, errorOf, FreeslotError, type FreeslotErrorFields } from "../error.js";
import { Refused, type Socket, type TlsOptions } from "../socket.js";
import { dial, post } from "../socket_node.js";
import { version } from "../version.js";
import { StopReason, superseded } from "./error.js";
import type { Answer, Completion, Delivery, Profile, Request, Welcome } from "./frames.js";
import { callMs, Link, LinkEnd, LinkLost, type LinkOwner, withLimit } from "./link.js";
import { Slots } from "./slots.js";

const protocol = "freeslot.node.v1";
const path = "/v1/node";
/** The largest frame from a gateway. */
const maxFrameBytes = 8 << 20;
/** Bounds dial and hello while the heartbeat limit is not known; later a quarter of the limit does. */
const firstDialMs = 5_000;
const minDialMs = 1_000;
/** Bounds the pauses while the token is refused. An address rests after a defect of either side. */
const longestRightsMs = 30_000;
const defectMs = 60_000;
/** The HTTP requests under way: heartbeats share the line with them. */
const bulkAtOnce = 2;
/** A request by HTTP has bulkMs, and a second more for each bulkBytes. The answer to a spec then has as much again. */
const bulkMs = 15_000;
const bulkBytes = 64 << 10;
const bulkReadBytes = 17 << 20;

const CLOSE_DEFECTS = [1003, 1007, 1009, 4000];
const CLOSE_RIGHTS = 4003;
const CLOSE_SUPERSEDED = 4010;

export interface GatewayOptions {
  addresses: URL[];
  /** Reads the token; called at each connect. */
  token: () => Promise<string>;
  tokenField: string;
  node: string;
  epoch: string;
  tls: TlsOptions | undefined;
  minBackoffMs: number;
  maxBackoffMs: number;
  log: (event: string, fields: Record<string, unknown>) => void;
}

/** What a gateway tells its worker, in the order of the messages. */
export interface GatewayOwner {
  jobs(deliveries: Delivery[]): void;
  cancel(attempts: string[]): void;
  /** A heartbeat is due at once. */
  beat(): void;
}

/** The error of a connect. */
export class ConnectError extends FreeslotError {
  constructor(
    code: Code,
    message: string,
    fields: FreeslotErrorFields,
    /** True if one side does not speak the protocol, so that there is no hurry. */
    readonly defect = false,
  ) {
    super(code, message, fields);
  }
}

/** Reports whether a gateway refuses the token for this node. */
export function isRefusal(err: unknown): boolean {
  if (err instanceof LinkEnd) return err.code === CLOSE_RIGHTS;
  return err instanceof FreeslotError && (err.code === "unauthenticated" || err.code === "permission_denied");
}

function isDefect(err: unknown): boolean {
  return err instanceof LinkEnd ? CLOSE_DEFECTS.includes(err.code) : err instanceof ConnectError && err.defect;
}

/**
 * Keeps one connection to one of several gateways, and replaces it when it ends, is asked to leave, or carries out no
 * heartbeat. Only the present connection counts: whatever a former one brings is void.
 */
export class Gateway implements LinkOwner {
  #current: Link | undefined;
  /** Becomes the present connection if Redis answers a heartbeat through it. */
  #candidate: Link | undefined;
  /** Opens when there is a connection, or none will come. */
  #changed = new Latch();
  #fatal: Error | undefined;
  #registered = false;
  /** The epoch that the next registration may end. */
  #replaces: string | undefined;
  #lastBeat: Request & { type: "heartbeat" } = { type: "heartbeat", status: "online", running: [] };
  #dials = 0;
  #dialMs = firstDialMs;
  readonly #rests = new Map<URL, number>();
  readonly #bell = new Bell();
  readonly #life = new AbortController();
  readonly #bulk = new Slots(bulkAtOnce);
  #loop: Promise<void> = Promise.resolve();

  constructor(
    readonly options: GatewayOptions,
    readonly owner: GatewayOwner,
  ) {}

  /** Connects to one of the gateways; each is tried once. It fails with the errors of all. */
  async start(signal: AbortSignal): Promise<void> {
    const errors: unknown[] = [];
    for (const url of shuffled(this.options.addresses)) {
      try {
        const link = await this.#dial(url, signal);
        this.#switchTo(link);
        this.#loop = this.#keepConnected(link);
        return;
      } catch (err) {
        signal.throwIfAborted();
        errors.push(err);
      }
    }
    throw errors.length === 1 ? errors[0] : new AggregateError(errors, "no gateway can be used");
  }

  /** Says goodbye and waits for the end. */
  async stop(): Promise<void> {
    this.#life.abort(new StopReason("stopping"));
    const link = this.#current;
    this.#finish(new StopReason("stopping"));
    link?.leave();
    await link?.ended.opened;
    await this.#loop;
  }

  get host(): string | undefined {
    return this.#current?.url.host;
  }

  get heartbeatLimitMs(): number {
    return this.#current?.welcome.heartbeat_limit_ms ?? 0;
  }

  /** Makes the node known. */
  async register(profile: Profile): Promise<Answer> {
    const answer = await this.#call(() => ({
      type: "register",
      profile,
      ...(this.#replaces ? { replaces: this.#replaces } : {}),
    }));
    this.#registered = true;
    this.#replaces = this.options.epoch;
    this.owner.beat(); // the gateway sends no jobs before a heartbeat
    return answer;
  }

  /** Sends a heartbeat. `take` gets the answer before anything that comes behind it. */
  heartbeat(request: Request & { type: "heartbeat" }, take: (answer: Answer) => void): Promise<Answer> {
    this.#lastBeat = request;
    return this.#call(() => request, take);
  }

  progress(request: Request & { type: "progress" }): Promise<Answer> {
    return this.#call(() => request);
  }

  deregister(): Promise<Answer> {
    return this.#call(() => ({ type: "deregister" }));
  }

  /**
   * Reports the end of an attempt; `result` is JSON. It is not repeated here: the jobs of a lost answer are lost too, so
   * the worker asks for a heartbeat with the repetition.
   */
  async complete(
    completion: Completion,
    result: string | undefined,
    signal: AbortSignal,
    take: (answer: Answer) => void,
  ): Promise<Answer> {
    const link = await withLimit(callMs, signal, (late) => this.#connection(late));
    let text = JSON.stringify({ type: "complete", ...completion });
    if (result !== undefined) text = `${text.slice(0, -1)},"result":${result}}`;
    if (result === undefined || Buffer.byteLength(result) <= link.welcome.inline_bytes) {
      return link.complete(text, signal, take);
    }
    const answer = await this.#post(link, "/complete", text, signal);
    if (link.gone.aborted) throw new LinkLost(); // its jobs would be void
    take(answer);
    return answer;
  }

  /** Reads the job of an attempt. */
  async spec(jobId: string, signal: AbortSignal): Promise<Answer> {
    for (;;) {
      const link = await this.#connection(signal);
      try {
        const answer = await link.spec(jobId, signal);
        if (!answer.large) return answer;
        return await this.#post(link, "/spec", JSON.stringify({ type: "spec", job_id: jobId }), signal);
      } catch (err) {
        if (!(err instanceof LinkLost)) throw err;
      }
    }
  }

  /** Sends a request and waits for its answer, on the next connection if one ends meanwhile. */
  #call(make: () => Request, take?: (answer: Answer) => void): Promise<Answer> {
    return withLimit(callMs, [], async (signal) => {
      for (;;) {
        const link = await this.#connection(signal);
        try {
          return await link.roundTrip(make(), signal, take);
        } catch (err) {
          if (!(err instanceof LinkLost)) throw err;
        }
      }
    });
  }

  async #connection(signal: AbortSignal): Promise<Link> {
    for (;;) {
      if (this.#fatal) throw this.#fatal;
      if (this.#current) return this.#current;
      await until(this.#changed.opened, signal);
    }
  }

  /** Sends what is too large for the connection beside it, so that no heartbeat waits behind it. */
  async #post(link: Link, to: string, body: string, signal: AbortSignal): Promise<Answer> {
    await this.#bulk.acquire(1, signal);
    try {
      const url = new URL(link.url);
      url.protocol = url.protocol.replace("ws", "http");
      url.pathname = path + to;
      const answerMs = bulkTime(body.length);
      const readMs = to === "/spec" ? bulkTime(bulkReadBytes) : 0;
      const answer = await withLimit(answerMs + readMs, [signal, link.gone], (late) =>
        post({
          url,
          body,
          tls: this.options.tls,
          maxBytes: bulkReadBytes,
          answerMs,
          signal: late,
          headers: {
            Authorization: `Bearer ${link.token}`,
            "Freeslot-Node": this.options.node,
            "Freeslot-Session": link.welcome.session,
          },
        }),
      );
      return readBulk(answer.status, answer.body);
    } finally {
      this.#bulk.release(1);
    }
  }

  // What links tell.

  counts(link: Link, message: Answer): boolean {
    if (this.#candidate === link && message.id && !this.#fatal && reachesRedis(message)) {
      this.#candidate = undefined;
      this.#switchTo(link);
    }
    return this.#current === link || this.#candidate === link;
  }

  push(link: Link, message: Answer): void {
    if (this.#current !== link) return; // a gateway pushes nothing before it has answered a heartbeat
    if (message.type === "jobs") this.owner.jobs(message.jobs ?? []);
    else if (message.type === "cancel") this.owner.cancel(message.attempts ?? []);
    else if (message.type === "sync") this.owner.beat();
  }

  ring(): void {
    this.#bell.ring();
  }

  dropped(link: Link): void {
    link.lose();
    if (this.#current !== link) return;
    this.#current = undefined;
    if (link.end?.code === CLOSE_SUPERSEDED) this.#finish(superseded());
    else this.#changed = new Latch();
  }

  /** Makes every call fail with the error from now on. */
  #finish(fatal: Error): void {
    this.#fatal ??= fatal;
    this.#changed.open();
    if (fatal instanceof FreeslotError) this.owner.beat(); // it finds out
  }

  /** Makes the link the present connection. The former one is void from then on. */
  #switchTo(link: Link): void {
    const former = this.#current;
    this.#current = link;
    former?.lose();
    former?.leave();
    if (!this.#registered) this.#replaces = link.welcome.replaces;
    this.#changed.open();
  }

  // The loop of connections.

  async #keepConnected(first: Link): Promise<void> {
    const pauses = new Pauses(this.options.minBackoffMs, this.options.maxBackoffMs);
    let link: Link | undefined = first;
    while (link && !this.#life.signal.aborted) {
      if (link.ended.done || (link.goaway && this.options.addresses.length > 1))
        link = await this.#replace(link, pauses);
      else if (link.goaway) {
        link.leave(); // behind one address, a new connection finds the next replica
        await link.ended.opened;
      } else if (link.doubted) link = await this.#tryOther(link);
      else await this.#bell.wait(undefined, this.#life.signal);
    }
  }

  /** Connects to another gateway than the former, if there is one. It returns undefined if none is wanted any more. */
  async #replace(former: Link, pauses: Pauses): Promise<Link | undefined> {
    if (former.beaten) pauses.reset();
    let why: unknown = former.end;
    let to = former.url;
    if (why) this.options.log("gateway.lost", { gateway: to.host, error: why });
    if (isDefect(why)) this.#restFrom(to);
    for (;;) {
      if (this.#fatal) return undefined;
      to = this.#other(to);
      pauses.max = isRefusal(why) ? longestRightsMs : this.options.maxBackoffMs;
      if (!(await pause(Math.max(pauses.next(), this.#rest(to)), this.#life.signal))) return undefined;
      try {
        const link = await this.#dial(to, this.#life.signal);
        if (this.#fatal) {
          link.leave();
          return undefined;
        }
        this.#switchTo(link);
        this.owner.beat(); // it brings what was missed
        this.options.log("gateway.connected", { gateway: to.host, replica: link.welcome.replica });
        return link;
      } catch (err) {
        if (this.#life.signal.aborted) return undefined;
        if (codeOf(err) !== codeOf(why)) this.options.log("gateway.connect_failed", { gateway: to.host, error: err });
        why = err;
      }
    }
  }

  /**
   * Connects to one other gateway, beside a connection whose heartbeat was not carried out, and moves there once Redis
   * has answered a heartbeat through it. Otherwise the node stays. So an outage of Redis moves no node.
   */
  async #tryOther(link: Link): Promise<Link> {
    link.doubted = false;
    const calm = link.calm;
    const longest = link.doubt === "refused" ? link.welcome.heartbeat_limit_ms : this.options.maxBackoffMs;
    link.calm = Math.min(Math.max(2 * calm, link.partMs), longest);
    const ended = new AbortController();
    void link.ended.opened.then(() => ended.abort());
    if (!(await pause(calm + Math.random() * link.partMs, this.#life.signal, ended.signal))) return link;
    const why = link.doubt;
    if (!why || link.goaway) return link;
    let candidate: Link | undefined;
    try {
      candidate = await withLimit(link.partMs, this.#life.signal, (late) => this.#dial(this.#other(link.url), late));
      await this.#moveTo(candidate, link);
      this.options.log("gateway.moved", { from: link.url.host, gateway: candidate.url.host, why });
      this.owner.beat();
      return candidate;
    } catch (error) {
      candidate?.leave();
      if (link.doubt && !link.ended.done) {
        this.options.log("gateway.stays", { gateway: link.url.host, why, error });
        link.doubted = true;
      }
      return link;
    }
  }

  /** Sends the last heartbeat again, through the candidate: with the answer it becomes the present connection. */
  async #moveTo(candidate: Link, from: Link): Promise<void> {
    const again = { ...this.#lastBeat, now: true as const };
    if (from.doubt === "refused") {
      // The candidate's welcome shows that Redis is there: maybe for both gateways.
      await withLimit(from.partMs / 2, this.#life.signal, (late) => from.roundTrip(again, late)).catch(() => {});
    }
    if (!from.doubt) {
      this.owner.beat(); // the answer may have named jobs
      throw new Error("the node's own gateway has answered");
    }
    this.#candidate = candidate;
    try {
      await withLimit(from.partMs, this.#life.signal, (late) => candidate.roundTrip(again, late));
    } catch (err) {
      if (err instanceof FreeslotError && err.code === "superseded") this.#finish(superseded());
      if (this.#current !== candidate) throw err;
    } finally {
      this.#candidate = undefined;
    }
  }

  #restFrom(url: URL): void {
    this.#rests.set(url, performance.now() + defectMs * (1 + Math.random() / 4));
  }

  #rest(url: URL): number {
    return Math.max((this.#rests.get(url) ?? 0) - performance.now(), 0);
  }

  /** Returns a random gateway that does not rest, and another one than this if there are several. */
  #other(than: URL): URL {
    let best = than;
    for (const url of shuffled(this.options.addresses)) {
      if (
        url !== than &&
        (this.#rest(url) < this.#rest(best) || (best === than && this.#rest(url) === this.#rest(than)))
      ) {
        best = url;
      }
    }
    return best;
  }

  async #dial(to: URL, signal: AbortSignal): Promise<Link> {
    try {
      const link = await withLimit(this.#dialMs, signal, (late) => this.#hello(to, late));
      this.#dialMs = Math.max(link.welcome.heartbeat_limit_ms / 4, minDialMs);
      return link;
    } catch (err) {
      signal.throwIfAborted();
      const error = this.#connectError(to, err);
      if (error.defect) this.#restFrom(to);
      throw error;
    }
  }

  /** Connects, says hello and takes the welcome. */
  async #hello(to: URL, signal: AbortSignal): Promise<Link> {
    const token = await this.options.token();
    const connection = ++this.#dials;
    const welcomed = new Latch();
    let link: Link | undefined;
    let failed: unknown;
    let socket: Socket | undefined;
    const fail = (err: unknown) => {
      failed ??= err;
      welcomed.open();
      socket?.cut();
    };
    const first = (message: Answer) => {
      if (message.type === "error") return fail(errorOf(message));
      if (message.type !== "welcome" || message.protocol !== protocol || !message.heartbeat_limit_ms) {
        return fail(new Refused(`this is no gateway that speaks ${protocol}`, 101));
      }
      link = new Link(this, socket as Socket, to, token, message as unknown as Welcome);
      welcomed.open();
    };
    const take = (message: Answer) => (link ? link.receive(message) : (failed ?? first(message)));
    await dial({
      url: new URL(path, to),
      protocol,
      token,
      tls: this.options.tls,
      userAgent: `freeslot-typescript/${version}`,
      maxMessageBytes: maxFrameBytes,
      signal,
      onOpen: (opened) => {
        socket = opened;
      },
      onMessage: (text) => {
        try {
          const frame = JSON.parse(text) as Answer | Answer[];
          if (Array.isArray(frame)) frame.forEach(take);
          else take(frame);
        } catch (err) {
          if (!(err instanceof SyntaxError)) throw err;
          fail(new Refused("the gateway sent a frame that is not JSON", 101));
        }
      },
      onClose: (code, reason) => {
        fail(new LinkEnd(code, undefined, reason));
        link?.close(code, reason);
      },
    });
    const giveUp = () => fail(signal.reason);
    signal.addEventListener("abort", giveUp, { once: true });
    (socket as Socket | undefined)?.send(
      JSON.stringify({
        type: "hello",
        node: this.options.node,
        epoch: this.options.epoch,
        connection,
        version,
      } satisfies Request),
    );
    if (signal.aborted) giveUp();
    await welcomed.opened;
    signal.removeEventListener("abort", giveUp);
    if (!link || failed) throw failed;
    return link;
  }

  /** Gives the error of a failed connect a code, and the field to blame. It names neither token nor path. */
  #connectError(to: URL, err: unknown): ConnectError {
    const where = `gateway ${to.host}`;
    if (err instanceof ConnectError) return err;
    if (err instanceof FreeslotError && err.field === this.options.tokenField) {
      return new ConnectError(err.code, err.message, { field: err.field, cause: err });
    }
    let coded = err instanceof FreeslotError ? err : undefined;
    let defect = coded?.code === "invalid_argument" || isDefect(err);
    if (defect) coded = undefined;
    if (err instanceof Refused) {
      coded = bodyError(err.body);
      const { status } = err;
      defect = !coded && status !== 0 && status < 500 && status !== 408 && status !== 429;
    }
    if (!coded) {
      const message = `${where} cannot be used: ${(err as Error).message}`;
      return new ConnectError("unavailable", message, { field: "gateway", cause: err }, defect);
    }
    if (isRefusal(coded)) {
      const field = this.options.tokenField;
      return new ConnectError(coded.code, `${field} is refused by ${where}: ${coded.message}`, { field });
    }
    const said =
      coded.code === "not_found" && err instanceof Refused
        ? "this replica is no gateway; set gateway.tokens_file there, or name its gateway.listen"
        : coded.message;
    return new ConnectError(coded.code, `${where}: ${said}`, { field: "gateway", retryAfterMs: coded.retryAfterMs });
  }
}

function codeOf(err: unknown): Code | undefined {
  return err instanceof FreeslotError ? err.code : undefined;
}

function bodyError(text: string): FreeslotError | undefined {
  try {
    const body = JSON.parse(text);
    return body.code ? errorOf(body) : undefined;
  } catch {
    return undefined;
  }
}

/** Returns how long this many bytes may take. */
function bulkTime(bytes: number): number {
  return bulkMs + (bytes / bulkBytes) * 1_000;
}

/** Reads the answer to a request by HTTP. */
function readBulk(status: number, text: string): Answer {
  const error = bodyError(text);
  // A refused token is not final: nothing was carried out, and the token's line may have changed.
  if (error && status !== 401 && status !== 403) throw error;
  if (status !== 200) throw new Error(`the gateway answered with HTTP status ${status}`);
  return JSON.parse(text) as Answer;
}

/** Reports whether the answer to a heartbeat came from Redis and allows the node to live at that gateway. */
function reachesRedis(answer: Answer): boolean {
  return answer.type === "beat" || (answer.type === "error" && answer.code === "unknown_node");
}

function shuffled<T>(all: readonly T[]): T[] {
  return all
    .map((one) => ({ one, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one);
}
