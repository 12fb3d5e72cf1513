import { signal } from "@preact/signals";
import { idleHeaders } from "./idle.ts";
import { learnClock } from "./time.ts";

/** Who looks, and at which replica. */
export interface Session {
  open: boolean;
  signed_in: boolean;
  name: string;
  tenant: string;
  role: string;
  expires_ms: number;
  idle_ms: number;
  oidc: boolean;
  replica: string;
  build: string;
  payloads: boolean;
  long_history?: boolean;
  links?: { name: string; url: string }[];
  now_ms: number;
}

/** The session as last read; undefined before the first answer. */
export const session = signal<Session | undefined>(undefined);

/** Whether the dialog that asks for a sign-in is to be seen over the view. */
export const expired = signal(false);

/** The build of the first answer, and the latest one. They differ after an upgrade of the replica. */
export const builds = signal<{ first: string; now: string }>({ first: "", now: "" });

/** Waits until somebody has signed in again. It throws if the signal comes first. */
export async function signedIn(signal: AbortSignal): Promise<void> {
  let stop = () => {};
  try {
    await new Promise<void>((done, fail) => {
      stop = expired.subscribe((waits) => {
        if (!waits) done();
      });
      signal.addEventListener("abort", () => fail(signal.reason));
    });
  } finally {
    stop();
  }
}

export function sawBuild(build: string | null): void {
  if (!build || build === builds.peek().now) return;
  builds.value = { first: builds.peek().first || build, now: build };
}

/**
 * Reads the session. It throws if no replica answers. If a session has ended without a sign-out, the page keeps what it
 * knew of it, and asks for another sign-in over the view.
 */
export async function readSession(signedOut = false): Promise<Session> {
  const answer = await fetch("session", {
    headers: idleHeaders(),
    cache: "no-store",
    signal: AbortSignal.timeout(10_000),
  });
  if (!answer.ok) throw new Error(`the replica answered ${answer.status}`);
  const read = (await answer.json()) as Session;
  learnClock(read.now_ms);
  sawBuild(answer.headers.get("Freeslot-Build") ?? read.build);
  const known = read.open || read.signed_in;
  expired.value = !known && !signedOut && session.peek()?.signed_in === true;
  if (!expired.value) session.value = read;
  return read;
}
