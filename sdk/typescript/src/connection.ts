import { dial } from "#socket";
import { Latch, until } from "./async.js";
import { errorOf, FreeslotError } from "./error.js";
import type { ReplicaMessage, WelcomeMessage } from "./frames.js";
import type { ResolvedOptions } from "./options.js";
import { Refused, type Socket } from "./socket.js";
import { version } from "./version.js";

const protocol = "freeslot.v1";
/** While that many bytes wait to be sent, requests wait in the client. */
const fullBytes = 1 << 20;

/** One request that waits for its answers. */
export interface Call {
  /** Takes an answer and returns true once none is missing. */
  answer(message: ReplicaMessage): boolean;
  /** Ends every part without an answer. `broken` is true if the connection ended. */
  fail(error: Error, broken: boolean): void;
  /** Names the jobs that this request may yet take to its connection, if no answer has come. */
  lost(): string[];
}

/** What a connection tells its client. */
export interface Owner {
  /** A message that answers no request. */
  push(conn: Connection, message: ReplicaMessage): void;
  /** The connection takes no more requests. */
  left(conn: Connection): void;
  /** The connection ended before these were answered. */
  lose(names: string[]): void;
  /** An answer came, or the connection ended: jobs may want another connection. */
  moved(conn: Connection): void;
}

/** One connection to one replica, from its welcome on. */
export class Connection {
  /** The time of the welcome. */
  since = 0;
  welcome!: WelcomeMessage;
  /** True if the replica sent goaway, if all answers have come and it is being closed, if it has ended. */
  leaving = false;
  closing = false;
  dead = false;
  /** Opens when the connection takes no more requests. */
  readonly over = new Latch();
  /** Opens when nothing more comes. */
  readonly ended = new Latch();
  readonly #pending = new Map<string, Call>();
  #socket!: Socket;
  #pings: ReturnType<typeof setInterval> | undefined;
  /** Fires when the ping under way is late. */
  #late: ReturnType<typeof setTimeout> | undefined;

  private constructor(
    readonly owner: Owner,
    readonly options: ResolvedOptions,
    /** The index of its address. */
    readonly index: number,
  ) {}

  get host(): string {
    return this.options.urls[this.index]?.host ?? "";
  }

  /** Connects to one replica and takes its welcome. The errors have a code; none has the address, which can hold a secret. */
  static async open(owner: Owner, options: ResolvedOptions, index: number, signal: AbortSignal): Promise<Connection> {
    const conn = new Connection(owner, options, index);
    const url = options.urls[index] as URL;
    const limit = new AbortController();
    const giveUp = () => limit.abort(signal.reason);
    let awaited = "token";
    const late = setTimeout(
      () => limit.abort(new FreeslotError("unavailable", `connect to ${url.host}: no ${awaited} in time`)),
      options.dialTimeoutMs,
    );
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    try {
      limit.signal.throwIfAborted();
      const source = options.tokenSource;
      const token = source ? await until(Promise.resolve(source(limit.signal)), limit.signal) : options.token;
      awaited = "welcome";
      await conn.#connect(url, token, limit.signal);
    } catch (err) {
      throw err instanceof Refused ? refusalOf(url.host, err) : err;
    } finally {
      clearTimeout(late);
      signal.removeEventListener("abort", giveUp);
    }
    conn.#pings = setInterval(() => conn.#ping(), options.pingIntervalMs);
    return conn;
  }

  async #connect(url: URL, token: string | undefined, signal: AbortSignal): Promise<void> {
    const welcomed = new Latch();
    let failed: Error | undefined;
    const { tls, maxMessageBytes, userAgent } = this.options;
    await dial({
      url,
      protocol,
      token,
      tls,
      maxMessageBytes,
      signal,
      userAgent: `freeslot-typescript/${version}${userAgent ? ` (${userAgent})` : ""}`,
      onOpen: (socket) => {
        this.#socket = socket;
      },
      onMessage: (text) => {
        try {
          this.#read(text);
        } catch {
          failed = new Refused(`this is no replica that speaks ${protocol}`, 101);
          this.#socket.cut();
        }
        if (this.welcome) welcomed.open();
      },
      onClose: (code, reason) => {
        failed ??= new Refused(reason || `the connection closed with ${code}`, 101);
        welcomed.open();
        this.#drop();
      },
    });
    const giveUp = () => {
      failed = signal.reason;
      this.#socket.cut();
    };
    signal.addEventListener("abort", giveUp, { once: true });
    if (signal.aborted) giveUp();
    await welcomed.opened;
    signal.removeEventListener("abort", giveUp);
    if (!this.welcome || this.dead) throw failed ?? new Refused("the connection broke", 101);
  }

  /** True while requests can be sent. */
  get usable(): boolean {
    return !this.leaving && !this.closing && !this.dead;
  }

  /** True if so much waits to be sent that requests have to wait. */
  get full(): boolean {
    return this.#socket.bufferedAmount >= fullBytes;
  }

  get idle(): boolean {
    return this.#pending.size === 0;
  }

  drained(): Promise<void> {
    return this.#socket.drained(fullBytes);
  }

  send(id: string, call: Call, text: string): void {
    this.#pending.set(id, call);
    this.#socket.send(text);
  }

  /** Gives a request up: a later answer is ignored. */
  forget(id: string): void {
    this.#pending.delete(id);
    if (this.leaving) this.owner.moved(this);
  }

  /** Ends the requests under way. */
  fail(error: Error, broken: boolean): void {
    const calls = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of calls) {
      if (broken) this.owner.lose(call.lost());
      call.fail(error, broken);
    }
  }

  /** Closes in good order. `ended` opens within some seconds. */
  close(): void {
    this.closing = true;
    this.#socket.close();
  }

  #read(text: string): void {
    const frame = JSON.parse(text) as ReplicaMessage | ReplicaMessage[];
    if (Array.isArray(frame)) for (const message of frame) this.#receive(message);
    else this.#receive(frame);
  }

  #receive(message: ReplicaMessage): void {
    if (!this.welcome) {
      if (message.type !== "welcome" || message.protocol !== protocol) throw new Error("no welcome");
      this.welcome = message;
      this.since = performance.now();
      return;
    }
    if (message.type === "goaway") {
      if (this.leaving) return;
      this.leaving = true;
      this.over.open();
      this.owner.left(this);
      return;
    }
    const id = "id" in message ? message.id : undefined;
    if (id === undefined) return this.owner.push(this, message);
    const call = this.#pending.get(id);
    if (!call?.answer(message)) return;
    this.#pending.delete(id);
    if (this.leaving) this.owner.moved(this);
  }

  /** A replica that does not answer in time, but sends, is alive: it reads nothing while it is busy. */
  #ping(): void {
    if (this.#late) return;
    const before = this.#socket.received;
    if (this.#socket.ping) this.#socket.ping();
    else this.#socket.send('{"type":"ping","id":"ping"}');
    this.#late = setTimeout(() => {
      this.#late = undefined;
      if (this.#socket.received === before) this.#socket.cut();
    }, this.options.pingTimeoutMs);
  }

  #drop(): void {
    clearInterval(this.#pings);
    clearTimeout(this.#late);
    this.dead = true;
    this.over.open();
    this.owner.left(this);
    this.fail(
      new FreeslotError(
        "unavailable",
        "the connection broke before the replica answered, the request may have been carried out",
      ),
      true,
    );
    this.owner.moved(this);
    this.ended.open();
  }
}

/** Makes the error of a refused handshake. */
function refusalOf(host: string, refused: Refused): FreeslotError {
  try {
    const body = JSON.parse(refused.body);
    if (body.code) return errorOf({ ...body, message: `connect to ${host}: ${body.message}` });
  } catch {
    // no body of a replica
  }
  return new FreeslotError("unavailable", `connect to ${host}: ${refused.message}`, { cause: refused });
}
