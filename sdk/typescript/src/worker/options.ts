import { readFile } from "node:fs/promises";
import { invalid } from "../error.js";
import { isPlain, list, positive, safe } from "../options.js";
import type { TlsOptions } from "../socket.js";

/** BCP 47 tags by stage: what a node understands, produces, and translates. */
export interface Languages {
  asr?: string[];
  tts?: string[];
  semantic?: string[];
}

export interface WorkerOptions {
  /** `wss://host[:port]` of replicas that have a gateway, several with commas between or as a list. */
  gateway: string | string[];
  /** Proves who the node is. `tokenFile` names a file that holds it instead, which is read again at each connect. */
  token?: string | undefined;
  tokenFile?: string | undefined;
  /** The node's id: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, beginning with a letter or digit. */
  node: string;
  /** How many jobs run at a time; a job that takes several slots counts so often. 1 if absent. */
  slots?: number | undefined;
  labels?: Record<string, string>;
  /** Pools to join, whatever the rules of the pools say. */
  pools?: string[];
  features?: Record<string, boolean>;
  languages?: Languages;
  /** Certificates for wss://. */
  tls?: TlsOptions;
  /** The interval of heartbeats: 3,000. It must be at most half of the gateway's heartbeat limit. */
  heartbeatMs?: number | undefined;
  /** How long a stop lets running handlers go on: 30,000. 0 interrupts them at once. */
  stopTimeoutMs?: number | undefined;
  /** How long a stop waits for handlers that were interrupted: 5,000. */
  interruptGraceMs?: number | undefined;
  /** The shortest time between two reports of one job's progress: 100. */
  progressMs?: number;
  /** Bound the pauses between attempts to connect, and to report: 50 and 2,000. */
  minBackoffMs?: number | undefined;
  maxBackoffMs?: number | undefined;
  /** The largest result, as JSON: 1 MiB. A larger one fails the job with `result_too_large`. */
  maxResultBytes?: number;
  /** Is called with what operators should know; to standard error if absent. */
  log?: (event: string, fields: Record<string, unknown>) => void;
}

export interface ResolvedWorker {
  addresses: URL[];
  token: () => Promise<string>;
  tokenField: string;
  node: string;
  slots: number;
  heartbeatMs: number;
  stopTimeoutMs: number;
  interruptGraceMs: number;
  progressMs: number;
  minBackoffMs: number;
  maxBackoffMs: number;
  maxResultBytes: number;
  tls: TlsOptions | undefined;
  log: (event: string, fields: Record<string, unknown>) => void;
}

const maxResultBytes = 16 << 20;
const maxSlots = 1024;
const nameForm = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Refuses what is no name, as ids of nodes and services are. */
export function checkName(field: string, name: string): void {
  if (nameForm.test(name)) return;
  throw invalid(
    field,
    `is ${JSON.stringify(name)}, expected 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit`,
  );
}

export function resolve(o: WorkerOptions): ResolvedWorker {
  checkName("node", o.node);
  const slots = o.slots ?? 1;
  if (!Number.isInteger(slots) || slots < 1 || slots > maxSlots) {
    throw invalid("slots", `is ${slots}, expected 1 to ${maxSlots}`);
  }
  if ((o.token === undefined) === (o.tokenFile === undefined)) {
    throw invalid("token", "and tokenFile: expected one of them");
  }
  const min = positive("minBackoffMs", o.minBackoffMs, 50);
  const size = positive("maxResultBytes", o.maxResultBytes, 1 << 20);
  if (size > maxResultBytes) throw invalid("maxResultBytes", `is ${size}, expected at most ${maxResultBytes}`);
  const stopTimeoutMs = o.stopTimeoutMs ?? 30_000;
  if (!(stopTimeoutMs >= 0)) throw invalid("stopTimeoutMs", `is ${stopTimeoutMs}, expected 0 or more`);
  return {
    addresses: parse(o.gateway),
    token: tokenOf(o),
    tokenField: o.tokenFile === undefined ? "token" : "tokenFile",
    node: o.node,
    slots,
    heartbeatMs: positive("heartbeatMs", o.heartbeatMs, 3_000),
    stopTimeoutMs,
    interruptGraceMs: positive("interruptGraceMs", o.interruptGraceMs, 5_000),
    progressMs: positive("progressMs", o.progressMs, 100),
    minBackoffMs: min,
    maxBackoffMs: positive("maxBackoffMs", o.maxBackoffMs, Math.max(2_000, min)),
    maxResultBytes: size,
    tls: o.tls,
    log: safe(o.log ?? toStderr),
  };
}

function parse(gateway: string | string[]): URL[] {
  const addresses = list(gateway).map((text) => {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (!url?.hostname || !/^wss?:$/.test(url.protocol)) {
      throw invalid(
        "gateway",
        "has an entry that is no address, expected wss://host[:port], several with commas between",
      );
    }
    if (url.username || url.pathname !== "/" || url.search || url.hash) {
      throw invalid("gateway", `has more than a host and a port, expected wss://${url.host}`);
    }
    return url;
  });
  if (addresses.length === 0) throw invalid("gateway", "is empty, expected wss://host[:port]");
  return addresses;
}

function tokenOf(o: WorkerOptions): () => Promise<string> {
  const check = (field: string, token: string) => {
    if (!/^[!-~]+$/.test(token)) {
      throw invalid(field, "has no token, expected one line of letters, digits and punctuation");
    }
    return token;
  };
  if (o.tokenFile === undefined) {
    const token = check("token", o.token ?? "");
    return async () => token;
  }
  const file = o.tokenFile;
  return async () => {
    const text = await readFile(file, "utf8").catch((err) => {
      throw invalid("tokenFile", `cannot be read: ${err.message}`);
    });
    return check("tokenFile", text.replace(/^\ufeff/, "").trim());
  };
}

/** The first address to which the token goes in the clear. */
export function plainOf(addresses: URL[]): URL | undefined {
  return addresses.find(isPlain);
}

function toStderr(event: string, fields: Record<string, unknown>): void {
  const text = Object.entries(fields).map(([key, value]) => `${key}=${value instanceof Error ? value.message : value}`);
  console.error(["freeslot:", event, ...text].join(" "));
}
