import { Latch, until } from "../async.js";
import { errorOf, type FreeslotError } from "../error.js";
import { CLOSE_BROKEN, type Socket } from "../socket.js";
import type { Answer, Request, Welcome } from "./frames.js";
import { Slots } from "./slots.js";

/** About the largest frame of several messages: a heartbeat may have to wait for one frame. */
const arrayChars = 16 << 10;
/** While that many bytes wait to be sent, messages wait here, so that a heartbeat can go first. */
const fullBytes = 32 << 10;
/** Bounds the complete requests under way: others share the line with them. */
const reportBytes = 256 << 10;
/** The requests of a session that are kept for other types than complete and spec. */
const sparePlaces = 8;
/** The spec requests under way. */
const specsAtOnce = 8;
/** Divides the heartbeat limit into the parts that a move may take: the silence, the pause, and the connect. */
const moveParts = 8;
const minPartMs = 100;
/** The longest wait for the answer to a complete, from the time at which it was sent, and to a spec. */
export const callMs = 2_000;
const specMs = 4 * callMs;

/** The connection ended before the answer. Every request may be repeated. */
export class LinkLost extends Error {
  constructor() {
    super("the connection to the gateway was lost");
  }
}

/** Why a connection ended. */
export class LinkEnd extends Error {
  constructor(
    readonly code: number,
    /** The error that preceded the close. */
    readonly refusal: FreeslotError | undefined,
    reason: string,
  ) {
    super(refusal?.message ?? (reason || (code === CLOSE_BROKEN ? "the connection broke" : `closed with ${code}`)));
  }
}

interface PendingCall {
  beat: boolean;
  text: string;
  /** Is called in the order of the messages, before anything that comes behind the answer. */
  take: ((answer: Answer) => void) | undefined;
  written: Latch;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
}

/** What a link tells its gateway. */
export interface LinkOwner {
  /** Reports whether the message counts: only the present connection does, and one that may become it. */
  counts(link: Link, message: Answer): boolean;
  push(link: Link, message: Answer): void;
  /** Something happened that the loop of connections has to look at. */
  ring(): void;
  dropped(link: Link): void;
}

/** One connection to one gateway, from its welcome on. */
export class Link {
  readonly ended = new Latch();
  readonly #gone = new AbortController();
  end: LinkEnd | undefined;
  goaway = false;
  /** True once a heartbeat has been answered. */
  beaten = false;
  refusal: FreeslotError | undefined;
  /** Why the last heartbeat was not carried out; undefined if it was. */
  doubt: "unanswered" | "refused" | undefined;
  /** True if nobody has looked at the doubt yet. */
  doubted = false;
  /** The shortest pause before another gateway is tried. */
  calm = 0;
  readonly #owner: LinkOwner;
  readonly #socket: Socket;
  readonly #pending = new Map<number, PendingCall>();
  #out: PendingCall[] = [];
  #flushing = false;
  #lastId = 0;
  #lost = false;
  #left = false;
  #late: ReturnType<typeof setTimeout> | undefined;
  readonly #places: Slots;
  readonly #room = new Slots(reportBytes);
  readonly #specs = new Slots(specsAtOnce);

  constructor(
    owner: LinkOwner,
    socket: Socket,
    readonly url: URL,
    readonly token: string,
    readonly welcome: Welcome,
  ) {
    this.#owner = owner;
    this.#socket = socket;
    this.#places = new Slots(Math.max(welcome.max_requests - sparePlaces, 1));
  }

  /** An eighth of the heartbeat limit. */
  get partMs(): number {
    return Math.max(this.welcome.heartbeat_limit_ms / moveParts, minPartMs);
  }

  /** Is aborted when nothing counts any more that belongs to the session. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Says goodbye; `ended` opens soon. */
  leave(): void {
    this.#left = true;
    this.#socket.close();
  }

  /** Ends the calls under way without an answer. */
  lose(): void {
    this.#lost = true;
    this.#gone.abort(new LinkLost());
    this.#out = [];
    this.#endAwaitBeat();
    const calls = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of calls) call.reject(new LinkLost());
  }

  /** The socket has closed. */
  close(code: number, reason: string): void {
    if (!this.#left) this.end = new LinkEnd(code, this.refusal, reason);
    this.#owner.dropped(this);
    this.ended.open();
    this.#owner.ring();
  }

  /** Sends a request and waits for its answer. The errors: LinkLost, the signal's reason, or a FreeslotError. */
  async roundTrip(request: Request, signal: AbortSignal, take?: (answer: Answer) => void): Promise<Answer> {
    return this.#send(JSON.stringify(request), request.type === "heartbeat", signal, take);
  }

  /** As roundTrip, for a spec: a few at a time, because heartbeats wait behind them. */
  async spec(jobId: string, signal: AbortSignal): Promise<Answer> {
    return this.#within(this.#specs, 1, signal, (limit) =>
      this.#within(this.#places, 1, limit, () =>
        withLimit(specMs, limit, (late) => this.#send(JSON.stringify({ type: "spec", job_id: jobId }), false, late)),
      ),
    );
  }

  /** As roundTrip, for a complete. Its time begins when it was sent: on a slow line it waits long before that. */
  async complete(text: string, signal: AbortSignal, take: (answer: Answer) => void): Promise<Answer> {
    return this.#within(this.#places, 1, signal, () =>
      this.#within(this.#room, text.length, signal, () => this.#send(text, false, signal, take, callMs)),
    );
  }

  async #within<T>(slots: Slots, n: number, signal: AbortSignal, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if (this.#lost) throw new LinkLost();
    await slots.acquire(n, signal);
    try {
      return await run(signal);
    } finally {
      slots.release(n);
    }
  }

  async #send(
    text: string,
    beat: boolean,
    signal: AbortSignal,
    take?: (answer: Answer) => void,
    sentMs?: number,
  ): Promise<Answer> {
    signal.throwIfAborted();
    if (this.#lost) throw new LinkLost();
    const id = ++this.#lastId;
    const written = new Latch();
    let call: PendingCall | undefined;
    const answered = new Promise<Answer>((resolve, reject) => {
      call = { beat, text: `{"id":${id},${text.slice(1)}`, take, written, resolve, reject };
      this.#pending.set(id, call);
      if (beat) {
        this.#awaitBeat();
        this.#out.unshift(call);
      } else this.#out.push(call);
    });
    this.#flushSoon();
    try {
      if (sentMs === undefined) return await until(answered, signal);
      await until(Promise.race([written.opened, answered]), signal);
      return await withLimit(sentMs, signal, (late) => until(answered, late));
    } catch (err) {
      answered.catch(() => {});
      this.#pending.delete(id); // a later answer is void
      this.#out = this.#out.filter((one) => one !== call);
      throw err;
    }
  }

  /** Sends in a moment: messages of the same moment share a frame. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => void this.#flush());
  }

  async #flush(): Promise<void> {
    while (this.#out.length > 0) {
      await this.#socket.drained(fullBytes);
      const calls: PendingCall[] = [];
      let size = 0;
      for (
        let next = this.#out[0];
        next && (calls.length === 0 || size + next.text.length < arrayChars);
        next = this.#out[0]
      ) {
        size += next.text.length;
        calls.push(next);
        this.#out.shift();
      }
      const [only] = calls;
      if (!only) break;
      this.#socket.send(calls.length === 1 ? only.text : `[${calls.map((call) => call.text).join()}]`);
      for (const call of calls) call.written.open();
    }
    this.#flushing = false;
  }

  /** Carries out one message. Unknown types are for later releases. */
  receive(message: Answer): void {
    if (!this.#owner.counts(this, message)) return;
    if (message.id) return this.#answer(message.id, message);
    if (message.type === "goaway") {
      this.goaway = true;
      this.#owner.ring();
    } else if (message.type === "error") this.refusal = errorOf(message);
    else this.#owner.push(this, message);
  }

  #answer(id: number, answer: Answer): void {
    const call = this.#pending.get(id);
    if (!call) return;
    this.#pending.delete(id);
    if (call.beat) this.#heard(answer);
    if (answer.type === "beat") this.beaten = true;
    if (answer.type === "error") return call.reject(errorOf(answer));
    call.take?.(answer);
    call.resolve(answer);
  }

  /** Makes the node look for another gateway if no heartbeat is answered in time, from the first unanswered one on. */
  #awaitBeat(): void {
    this.#late ??= setTimeout(() => {
      this.#late = undefined;
      this.#doubtIt("unanswered");
    }, this.partMs);
  }

  #endAwaitBeat(): void {
    clearTimeout(this.#late);
    this.#late = undefined;
  }

  #heard(answer: Answer): void {
    this.#endAwaitBeat();
    if (answer.type === "error" && answer.code === "unavailable") return this.#doubtIt("refused");
    this.doubt = undefined;
    this.doubted = false;
    this.calm = 0;
  }

  #doubtIt(why: "unanswered" | "refused"): void {
    this.doubt = why;
    this.doubted = true;
    this.#owner.ring();
  }
}

/** Runs with a limit of time beside the signals. */
export async function withLimit<T>(
  ms: number,
  signals: AbortSignal | AbortSignal[],
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const control = new AbortController();
  const timer = setTimeout(() => control.abort(new Error(`no answer within ${ms} ms`)), ms);
  const watched = [signals].flat().map((signal) => {
    const giveUp = () => control.abort(signal.reason);
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    return () => signal.removeEventListener("abort", giveUp);
  });
  try {
    return await run(control.signal);
  } finally {
    clearTimeout(timer);
    for (const unwatch of watched) unwatch();
  }
}
