import type { paths } from "../api/schema.d.ts";
import { idleHeaders } from "./idle.ts";
import { parseJSON } from "./json.ts";
import { expired, readSession, sawBuild, session, signedIn } from "./session.ts";

type Method = "get" | "post" | "put" | "delete";
type Has<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, infer O> ? (O extends object ? P : never) : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Content<R> = R extends { content: { "application/json": infer B } } ? B : undefined;
type Success<O> = O extends { responses: infer R } ? Content<R[Extract<keyof R, 200 | 201 | 202 | 204>]> : never;
type Params<O> = O extends { parameters: infer P } ? P : never;
type Query<O> = Params<O> extends { query?: infer Q } ? Exclude<Q, undefined> : never;

/** What a call sends: parameters of its path and query, a body, which is JSON or bytes, and a reason for the audit. */
export interface Sent {
  path?: Record<string, string>;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  reason?: string | undefined;
  signal?: AbortSignal;
}

/** An answer of the API that is an error. code is `unreachable` if no replica answered. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly field = "",
    readonly status = 0,
    /** Every bad field, where the API names several. */
    readonly errors: { field: string; message: string }[] = [],
  ) {
    super(message);
  }
}

/** Reads by the documented API. */
export function get<P extends Has<"get">>(
  path: P,
  sent: Omit<Sent, "body" | "query"> & { query?: Query<Operation<P, "get">> } = {},
): Promise<Success<Operation<P, "get">>> {
  return call("get", path, sent as Sent) as Promise<Success<Operation<P, "get">>>;
}

/** Changes by the documented API. */
export function change<M extends Exclude<Method, "get">, P extends Has<M>>(
  method: M,
  path: P,
  sent: Sent = {},
): Promise<Success<Operation<P, M>>> {
  return call(method, path, sent) as Promise<Success<Operation<P, M>>>;
}

/** Calls a route. Addresses are relative, so that any prefix of a proxy works. */
export async function call(method: Method, path: string, sent: Sent): Promise<unknown> {
  const headers = idleHeaders();
  if (method !== "get") headers["Freeslot-Console"] = "1";
  const raw = sent.body instanceof Uint8Array;
  if (sent.body !== undefined) headers["Content-Type"] = raw ? "application/octet-stream" : "application/json";
  if (sent.reason) headers["Freeslot-Reason"] = utf8Header(sent.reason);
  const init: RequestInit = { method: method.toUpperCase(), headers, cache: "no-store" };
  if (sent.body !== undefined) init.body = raw ? (sent.body as BodyInit) : JSON.stringify(sent.body);
  const limit = AbortSignal.timeout(30_000);
  init.signal = sent.signal ? AbortSignal.any([sent.signal, limit]) : limit;
  const answer = await reach(address(path, sent), init);
  sawBuild(answer.headers.get("Freeslot-Build"));
  if (answer.ok) return answer.status === 204 ? undefined : parseJSON(await answer.text());
  const error = await toError(answer);
  if (error.status !== 401 || session.peek()?.open) throw error;
  // The view stays as it is below the dialog, with all that was typed.
  expired.value = true;
  // What only reads goes on after the sign-in. A change is for its user to repeat, who may be another one.
  if (method !== "get") throw error;
  await signedIn(sent.signal ?? new AbortController().signal);
  return call(method, path, sent);
}

/** Fills a path's parameters in, and adds the query. */
export function address(path: string, sent: Pick<Sent, "path" | "query">): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(sent.path?.[name] ?? ""));
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(sent.query ?? {})) {
    if (Array.isArray(value)) for (const v of value) query.append(key, String(v));
    else if (value !== undefined && value !== "") query.set(key, String(value));
  }
  const tail = query.toString();
  return `..${filled}${tail && `?${tail}`}`;
}

/** A header value whose bytes are the text's UTF-8. fetch takes one character for each byte. */
export function utf8Header(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** Signs in by a token. */
export async function signIn(token: string): Promise<void> {
  const answer = await reach("sign-in", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Freeslot-Console": "1" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw await toError(answer);
  await readSession();
}

export async function signOut(): Promise<void> {
  await reach("sign-out", { method: "POST", headers: { "Freeslot-Console": "1" } });
  await readSession(true);
}

async function reach(to: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(to, init);
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ApiError("unreachable", "The replica does not answer.");
  }
}

async function toError(answer: Response): Promise<ApiError> {
  try {
    const body = (await answer.json()) as { error?: Body } & Body;
    const e = body.error ?? body;
    return new ApiError(e.code ?? "internal", e.message ?? answer.statusText, e.field, answer.status, e.errors);
  } catch {
    return new ApiError("internal", `The replica answered ${answer.status}.`, "", answer.status);
  }
}

interface Body {
  code?: string;
  message?: string;
  field?: string;
  errors?: { field: string; message: string }[];
}
