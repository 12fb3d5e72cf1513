import { longestTimer } from "./async.js";
import { invalid } from "./error.js";
import type { TlsOptions } from "./socket.js";

export interface ClientOptions {
  /** Sent as bearer token; in browsers as `access_token` in the address. */
  token?: string | undefined;
  /** Returns the token of each connection, in place of `token`, so that a client whose token ends comes back with another. */
  tokenSource?: ((signal: AbortSignal) => string | Promise<string>) | undefined;
  /** Gives `Client.connect` up; it does not end a client that is connected. */
  signal?: AbortSignal | undefined;
  /** Put into the User-Agent, for the logs of proxies. Browsers send their own. */
  userAgent?: string;
  /** Certificates for wss:// in Node. */
  tls?: TlsOptions | undefined;
  /** Bounds one attempt to connect, from its token to the welcome: 10,000. */
  dialTimeoutMs?: number | undefined;
  /** Bound the pauses once every address has failed: 100 and 5,000. */
  minBackoffMs?: number | undefined;
  maxBackoffMs?: number | undefined;
  /** How often the replica is pinged, and how long it may take to answer: 20,000 and 10,000. */
  pingIntervalMs?: number | undefined;
  pingTimeoutMs?: number | undefined;
  /** The largest frame that the client reads: 64 MiB. It must be larger than the largest result. */
  maxMessageBytes?: number | undefined;
  /** The most requests at a time, waiting or under way: 16,384. Further ones fail at once as `overloaded`. */
  maxRequests?: number | undefined;
  /** Is called for each connect and disconnect. */
  log?: (event: ClientEvent) => void;
}

export interface ClientEvent {
  event: "client.connected" | "client.disconnected" | "client.connect_failed" | "client.told_to_go" | "client.plain";
  host: string;
  replica?: string;
  error?: unknown;
}

export interface ResolvedOptions {
  urls: URL[];
  token: string | undefined;
  tokenSource: ((signal: AbortSignal) => string | Promise<string>) | undefined;
  userAgent: string;
  tls: TlsOptions | undefined;
  dialTimeoutMs: number;
  minBackoffMs: number;
  maxBackoffMs: number;
  pingIntervalMs: number;
  pingTimeoutMs: number;
  maxMessageBytes: number;
  maxRequests: number;
  log: (event: ClientEvent) => void;
}

export function resolve(addresses: string | string[], o: ClientOptions): ResolvedOptions {
  const min = o.minBackoffMs ?? 100;
  return {
    urls: parse(addresses),
    token: o.token,
    tokenSource: o.tokenSource,
    userAgent: o.userAgent ?? "",
    tls: o.tls,
    dialTimeoutMs: positive("dialTimeoutMs", o.dialTimeoutMs, 10_000),
    minBackoffMs: positive("minBackoffMs", o.minBackoffMs, 100),
    maxBackoffMs: positive("maxBackoffMs", o.maxBackoffMs, Math.max(5_000, min)),
    pingIntervalMs: positive("pingIntervalMs", o.pingIntervalMs, 20_000),
    pingTimeoutMs: positive("pingTimeoutMs", o.pingTimeoutMs, 10_000),
    maxMessageBytes: positive("maxMessageBytes", o.maxMessageBytes, 64 << 20),
    maxRequests: positive("maxRequests", o.maxRequests, 16_384),
    log: safe(o.log ?? (() => {})),
  };
}

/** Returns the number, cut to what timers take, or its default; refuses what is not above 0. */
export function positive(field: string, value: number | undefined, standard: number): number {
  if (value === undefined) return standard;
  if (!(value > 0 && Number.isFinite(value))) throw invalid(field, `is ${value}, expected a number above 0`);
  return Math.min(value, longestTimer);
}

/** Makes a log function that cannot fail: what it tells about goes on. */
export function safe<A extends unknown[]>(log: (...event: A) => unknown): (...event: A) => void {
  return (...event) => {
    (async () => log(...event))().catch((err) => console.error("freeslot: the log function failed:", err));
  };
}

/** Reads the addresses of replicas. An error names no address: it can hold a secret. */
function parse(addresses: string | string[]): URL[] {
  const urls: URL[] = [];
  for (const text of list(addresses)) {
    const what = `has address ${urls.length + 1}`;
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (!url?.host || !/^(ws|http)s?:$/.test(url.protocol)) {
      throw invalid("urls", `${what}, which is no address, expected one such as ws://127.0.0.1:7480`);
    }
    if (url.pathname === "/") url.pathname = "/v1/ws";
    url.searchParams.set("frames", "batch");
    urls.push(url);
  }
  if (urls.length === 0) throw invalid("urls", "is empty, expected one such as ws://127.0.0.1:7480");
  return urls;
}

export function list(addresses: string | string[]): string[] {
  const all = typeof addresses === "string" ? addresses.split(",") : addresses;
  return all.map((text) => text.trim()).filter((text) => text !== "");
}

/** Reports whether a secret goes there in the clear, over a network. */
export function isPlain(url: URL): boolean {
  return /^(ws|http):$/.test(url.protocol) && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(url.hostname);
}
