// The WebSocket of Node cannot show why a handshake was refused, ping, trust a certificate of one's own, or end a
// connection whose other side is frozen. So this is one on node:http.

import { isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import {
  CLOSE_BROKEN,
  CLOSE_NORMAL,
  type DialOptions,
  goodbyeMs,
  Refused,
  type Socket,
  type TlsOptions,
} from "./socket.js";

const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** The largest body of a refusal that is read. */
const refusalBytes = 64 << 10;

const TEXT = 1;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

interface Head {
  fin: boolean;
  opcode: number;
  length: number;
}

class NodeSocket implements Socket {
  received = 0;
  readonly #stream: Duplex;
  readonly #options: DialOptions;
  /** What has come and is not parsed yet. */
  #chunks: Buffer[] = [];
  #size = 0;
  #head: Head | undefined;
  /** The fragments of the message under way. */
  #parts: Buffer[] = [];
  #partBytes = 0;
  #goodbye: ReturnType<typeof setTimeout> | undefined;
  #code = CLOSE_BROKEN;
  #reason = "";
  #closed = false;
  #failed = false;
  #waiting: { below: number; resolve: () => void }[] = [];

  constructor(stream: Duplex, options: DialOptions) {
    this.#stream = stream;
    this.#options = options;
    stream.on("data", (chunk: Buffer) => this.#take(chunk));
    stream.on("error", (err) => {
      this.#reason ||= err.message;
    });
    stream.on("end", () => stream.destroy());
    stream.on("close", () => {
      clearTimeout(this.#goodbye);
      this.#closed = true;
      this.#wake();
      options.onClose(this.#code, this.#reason);
    });
  }

  get bufferedAmount(): number {
    return this.#closed ? 0 : this.#stream.writableLength;
  }

  send(text: string): void {
    this.#write(TEXT, Buffer.from(text));
  }

  drained(below: number): Promise<void> {
    if (this.bufferedAmount < below) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ below, resolve }));
  }

  ping(): void {
    this.#write(PING, Buffer.alloc(0));
  }

  close(): void {
    this.#sayGoodbye(CLOSE_NORMAL);
  }

  cut(): void {
    this.#stream.destroy();
  }

  #wake(): void {
    const amount = this.bufferedAmount;
    this.#waiting = this.#waiting.filter((waiter) => {
      if (amount < waiter.below) waiter.resolve();
      return amount >= waiter.below;
    });
  }

  #sayGoodbye(code: number): void {
    if (this.#goodbye || this.#closed) return;
    this.#goodbye = setTimeout(() => this.#stream.destroy(), goodbyeMs);
    const body = Buffer.alloc(2);
    body.writeUInt16BE(code);
    this.#write(CLOSE, body);
  }

  /** Ends the connection because the other side broke the protocol. */
  #fail(code: number, reason: string): void {
    this.#failed = true;
    this.#reason = reason;
    this.#sayGoodbye(code);
    this.#stream.end();
  }

  /** Writes one frame. Frames of a client are masked. */
  #write(opcode: number, body: Buffer): void {
    if (!this.#stream.writable) return;
    const extra = body.length < 126 ? 0 : body.length < 1 << 16 ? 2 : 8;
    const at = 6 + extra;
    const frame = Buffer.allocUnsafe(at + body.length);
    frame[0] = 0x80 | opcode;
    frame[1] = 0x80 | (extra === 0 ? body.length : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(body.length, 2);
    if (extra === 8) frame.writeBigUInt64BE(BigInt(body.length), 2);
    const mask = randomBytes(4);
    mask.copy(frame, at - 4);
    for (let i = 0; i < body.length; i++) frame[at + i] = (body[i] as number) ^ (mask[i & 3] as number);
    this.#stream.write(frame, () => this.#wake());
  }

  #take(chunk: Buffer): void {
    if (this.#failed) return;
    this.received += chunk.length;
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    for (;;) {
      this.#head ??= this.#readHead();
      if (!this.#head) return;
      const body = this.#read(this.#head.length);
      if (!body) return;
      const head = this.#head;
      this.#head = undefined;
      this.#frame(head, body);
      if (this.#failed) return;
    }
  }

  /** Returns the next bytes, once all of them have come. Each byte is copied at most once. */
  #read(n: number): Buffer | undefined {
    if (this.#size < n) return undefined;
    let first = this.#chunks[0] ?? Buffer.alloc(0);
    if (first.length < n) {
      let have = 0;
      let count = 0;
      while (have < n) have += (this.#chunks[count++] as Buffer).length;
      first = Buffer.concat(this.#chunks.slice(0, count));
      this.#chunks.splice(0, count, first);
    }
    this.#size -= n;
    if (first.length === n) this.#chunks.shift();
    else this.#chunks[0] = first.subarray(n);
    return first.subarray(0, n);
  }

  #readHead(): Head | undefined {
    if (this.#size < 2) return undefined;
    const start = this.#peek(Math.min(this.#size, 10));
    const short = (start[1] as number) & 0x7f;
    const extra = short === 126 ? 2 : short === 127 ? 8 : 0;
    if (start.length < 2 + extra) return undefined;
    const head = this.#read(2 + extra) as Buffer;
    const first = head[0] as number;
    const length = extra === 0 ? short : extra === 2 ? head.readUInt16BE(2) : Number(head.readBigUInt64BE(2));
    if ((first & 0x70) !== 0 || ((head[1] as number) & 0x80) !== 0) {
      this.#fail(1002, "the other side broke the WebSocket protocol");
      return undefined;
    }
    if (length + this.#partBytes > this.#options.maxMessageBytes) {
      this.#fail(1009, `a frame of ${length} bytes is over the limit of ${this.#options.maxMessageBytes}`);
      return undefined;
    }
    return { fin: (first & 0x80) !== 0, opcode: first & 0x0f, length };
  }

  #peek(n: number): Buffer {
    const first = this.#chunks[0] as Buffer;
    if (first.length >= n) return first.subarray(0, n);
    return Buffer.concat(this.#chunks).subarray(0, n);
  }

  #frame(head: Head, body: Buffer): void {
    switch (head.opcode) {
      case 0:
      case TEXT:
        this.#parts.push(body);
        this.#partBytes += body.length;
        if (head.fin) this.#message();
        return;
      case CLOSE:
        if (!this.#goodbye) {
          this.#code = body.length >= 2 ? body.readUInt16BE(0) : 1005;
          this.#reason = body.subarray(2).toString();
          this.#write(CLOSE, body.subarray(0, 2));
        } else if (!this.#failed) this.#code = CLOSE_NORMAL;
        this.#goodbye ??= setTimeout(() => this.#stream.destroy(), goodbyeMs);
        this.#stream.end();
        return;
      case PING:
        this.#write(PONG, body);
        return;
      case PONG:
        return;
      default:
        this.#fail(head.opcode === 2 ? 1003 : 1002, "the other side sent a frame that is not text");
    }
  }

  #message(): void {
    const message = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#partBytes = 0;
    if (!isUtf8(message)) return this.#fail(1007, "the other side sent a frame that is not UTF-8");
    this.#options.onMessage(message.toString());
  }
}

function secure(url: URL): boolean {
  return url.protocol === "wss:" || url.protocol === "https:";
}

function requestOptions(url: URL, tls: TlsOptions | undefined) {
  const query = { path: url.pathname + url.search, host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port };
  return { ...query, ...(secure(url) ? tls : {}), agent: false as const };
}

async function bodyOf(response: IncomingMessage, limit: number): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > limit) break;
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

/** Connects. It follows no redirects: the token is for this host alone. */
export function dial(options: DialOptions): Promise<void> {
  const key = randomBytes(16).toString("base64");
  const headers: Record<string, string> = {
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": key,
    "Sec-WebSocket-Protocol": options.protocol,
    "User-Agent": options.userAgent,
  };
  if (options.token) headers.Authorization = `Bearer ${options.token}`;
  return new Promise((resolve, reject) => {
    const send = secure(options.url) ? httpsRequest : httpRequest;
    if (options.signal.aborted) return reject(options.signal.reason);
    const req = send({ ...requestOptions(options.url, options.tls), headers });
    // The request's own signal would also end the connection that it becomes.
    const giveUp = () => req.destroy();
    options.signal.addEventListener("abort", giveUp, { once: true });
    req.on("close", () => options.signal.removeEventListener("abort", giveUp));
    req.on("error", (err) => {
      reject(options.signal.aborted ? options.signal.reason : new Refused(messageOf(err), 0));
    });
    req.on("response", (response) => {
      const status = response.statusCode ?? 0;
      bodyOf(response, refusalBytes)
        .catch(() => "")
        .then((body) => {
          req.destroy();
          reject(new Refused(`HTTP status ${status} ${response.statusMessage ?? ""}`.trim(), status, body));
        });
    });
    req.on("upgrade", (response, stream, head) => {
      options.signal.removeEventListener("abort", giveUp);
      const accept = createHash("sha1")
        .update(key + acceptSuffix)
        .digest("base64");
      if (
        response.headers["sec-websocket-accept"] !== accept ||
        response.headers["sec-websocket-protocol"] !== options.protocol
      ) {
        stream.destroy();
        return reject(new Refused("the answer is no handshake of this protocol", 101));
      }
      if ("setNoDelay" in stream) (stream as import("node:net").Socket).setNoDelay(true);
      if (head.length > 0) stream.unshift(head);
      options.onOpen(new NodeSocket(stream, options));
      resolve();
    });
    req.end();
  });
}

/** An error of several addresses has no message of its own. */
function messageOf(err: Error & { errors?: Error[]; code?: string }): string {
  return err.message || err.errors?.map((one) => one.message).join("; ") || err.code || "the connection failed";
}

export interface PostOptions {
  url: URL;
  headers: Record<string, string>;
  body: string;
  tls: TlsOptions | undefined;
  maxBytes: number;
  /** Bounds the time until the answer begins; `signal` ends all of it. */
  answerMs: number;
  signal: AbortSignal;
}

/** Sends a request and returns the answer's status and body. */
export function post(options: PostOptions): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const send = secure(options.url) ? httpsRequest : httpRequest;
    const body = Buffer.from(options.body);
    const req = send({
      ...requestOptions(options.url, options.tls),
      method: "POST",
      headers: { ...options.headers, "Content-Type": "application/json", "Content-Length": String(body.length) },
      signal: options.signal,
    });
    const late = setTimeout(() => req.destroy(new Error("the answer did not begin in time")), options.answerMs);
    req.on("close", () => clearTimeout(late));
    req.on("error", reject);
    req.on("response", (response) => {
      clearTimeout(late);
      bodyOf(response, options.maxBytes)
        .then((text) => resolve({ status: response.statusCode ?? 0, body: text }), reject)
        .finally(() => req.destroy());
    });
    req.end(body);
  });
}
