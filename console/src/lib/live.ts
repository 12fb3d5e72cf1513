import { type ReadonlySignal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { idleHeaders } from "./idle.ts";
import { parseJSON } from "./json.ts";
import { expired, readSession, sawBuild, session } from "./session.ts";
import { learnClock, now } from "./time.ts";

/** What a topic last said. After an error data stays what it was, as of good milliseconds. */
export interface TopicState<T> {
  data?: T;
  at: number;
  error?: { code: string; message: string };
  good: number;
}

export interface Frame {
  hello?: { replica: string; build: string; now_ms: number };
  topic?: string;
  seq?: number;
  at_ms?: number;
  data?: unknown;
  error?: { code: string; message: string };
  good_ms?: number;
}

type Mode = "connecting" | "live" | "polling" | "stale" | "paused";

/** How fresh the page is, and since when. */
export const link = signal<{ mode: Mode; since: number; replica: string }>({
  mode: "connecting",
  since: Date.now(),
  replica: "",
});

const firstWait = 500;
const longestWait = 30_000;
const pollEvery = 10_000;
/** A socket that says nothing for this long is taken for dead. Topics on the screen speak every 2 s. */
const silence = 20_000;
/** From so many failures in a row on, while plain requests work, WebSockets count as blocked. */
const blockedFrom = 2;

interface Topic {
  viewers: number;
  takers: Set<(frame: Frame) => void>;
  state: ReturnType<typeof signal<TopicState<unknown>>>;
}

const topics = new Map<string, Topic>();
let socket: WebSocket | undefined;
let failures = 0;
let heard = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let poller: ReturnType<typeof setTimeout> | undefined;
/** The largest number of a frame of this connection that is on the screen. */
let drawn = 0;

const nothing: TopicState<never> = { at: 0, good: 0 };

/** Follows a topic while the component is mounted. An empty name follows nothing. */
export function useTopic<T>(name: string): ReadonlySignal<TopicState<T>> {
  const topic = topicOf(name);
  useEffect(() => hold(name, topic), [name, topic]);
  return topic.state as ReadonlySignal<TopicState<T>>;
}

/** Wants a topic until the returned function is called. */
export function hold(name: string, topic: Topic): () => void {
  topic.viewers++;
  // The last view that wanted it may have gone after this one was drawn, as where one view follows another.
  if (!topics.has(name)) topics.set(name, topic);
  want();
  return () => {
    topic.viewers--;
    if (topic.viewers === 0 && topics.get(name) === topic) topics.delete(name);
    want();
  };
}

/** Calls a function with each frame of a topic, until the returned function is called. None is left out. */
export function followTopic(name: string, take: (frame: Frame) => void): () => void {
  const topic = topicOf(name);
  topic.takers.add(take);
  const release = hold(name, topic);
  return () => {
    topic.takers.delete(take);
    release();
  };
}

/** The topic of this name. It stays known only while somebody holds it. */
export function topicOf(name: string): Topic {
  let topic = topics.get(name);
  if (!topic) {
    topic = { viewers: 0, takers: new Set(), state: signal<TopicState<unknown>>(nothing) };
    topics.set(name, topic);
  }
  return topic;
}

function wanted(): string[] {
  if (document.hidden) return [];
  return [...topics].filter(([name, t]) => name !== "" && t.viewers > 0).map(([name]) => name);
}

let asked = "";
let asking = false;

// One message for all that a change of the view mounts and unmounts.
function want(): void {
  if (asking) return;
  asking = true;
  queueMicrotask(() => {
    asking = false;
    const message = JSON.stringify({ want: wanted() });
    if (message === asked) return;
    if (poller) {
      asked = message;
      void poll();
    }
    if (socket?.readyState !== WebSocket.OPEN) return;
    asked = message;
    heard = Date.now();
    socket.send(message);
  });
}

/** Keeps the tab's one connection, which reconnect opens as soon as there is a session. */
export function startLive(): void {
  document.addEventListener("visibilitychange", () => {
    want();
    // Timers of a hidden tab sleep: after a laptop wakes up this is the first sign of life.
    if (!document.hidden && !socket) again(0);
    if (!document.hidden && link.peek().mode === "polling") void poll();
  });
  addEventListener("online", () => again(0));
  setInterval(watch, 5000);
}

/** Connects anew, such as after a sign-in. */
export function reconnect(): void {
  failures = 0;
  socket?.close();
  again(0);
}

function watch(): void {
  if (socket && !document.hidden && wanted().length > 0 && Date.now() - heard > silence) socket.close();
}

function connect(): void {
  clearTimeout(timer);
  timer = undefined;
  if (socket) return;
  const s = session.peek();
  // Who is not known yet, or not signed in, would be refused; reconnect comes once that changes.
  if (!s || (!s.open && !s.signed_in) || expired.peek()) return;
  const address = new URL("live", location.href.split("#")[0]);
  address.protocol = address.protocol.replace("http", "ws");
  const opened = new WebSocket(address, "freeslot.console.v1");
  socket = opened;
  opened.binaryType = "arraybuffer";
  asked = "";
  heard = Date.now();
  let greeted = false;
  opened.onopen = want;
  opened.onmessage = (event) => {
    heard = Date.now();
    if (typeof event.data !== "string") return take(binary(new Uint8Array(event.data as ArrayBuffer)));
    const frame = parseJSON(event.data) as Frame;
    if (!frame.hello) return take(frame);
    greeted = true;
    failures = 0;
    drawn = 0;
    stopPolling();
    sawBuild(frame.hello.build);
    learnClock(frame.hello.now_ms);
    link.value = { mode: "live", since: now(), replica: frame.hello.replica };
  };
  opened.onclose = () => {
    if (socket !== opened) return;
    socket = undefined;
    if (!greeted) failures++;
    void lost();
  };
}

// Who lost the connection asks by a plain request what there is: an end of the session, blocked WebSockets, or
// nobody at all.
async function lost(): Promise<void> {
  again(wait());
  try {
    const s = await readSession();
    if (!s.open && !s.signed_in) {
      stopPolling();
      link.value = { ...link.peek(), mode: "connecting", since: now() };
      return;
    }
    if (failures >= blockedFrom) startPolling();
  } catch {
    stale();
  }
}

/** Says that no replica answers. */
export function stale(): void {
  if (link.peek().mode !== "stale") link.value = { ...link.peek(), mode: "stale", since: now() };
}

// Full jitter: after an outage a hundred tabs come back spread out.
function wait(): number {
  const most = Math.min(longestWait, firstWait * 2 ** Math.min(failures + 1, 8));
  return Math.random() * (poller ? Math.max(most, 6 * pollEvery) : most);
}

function again(ms: number): void {
  clearTimeout(timer);
  timer = setTimeout(connect, ms);
}

function startPolling(): void {
  if (poller) return;
  link.value = { ...link.peek(), mode: "polling", since: now() };
  void poll();
}

function stopPolling(): void {
  clearTimeout(poller);
  poller = undefined;
}

async function poll(): Promise<void> {
  clearTimeout(poller);
  poller = setTimeout(() => void poll(), pollEvery);
  const names = wanted();
  if (names.length === 0) return;
  const query = new URLSearchParams(names.map((name) => ["topic", name]));
  try {
    const answer = await fetch(`snapshot?${query}`, {
      headers: idleHeaders(),
      cache: "no-store",
      signal: AbortSignal.timeout(pollEvery),
    });
    if (!answer.ok) throw new Error(String(answer.status));
    const { frames } = parseJSON(await answer.text()) as { frames: Frame[] };
    for (const frame of frames) {
      if (typeof frame.data === "string") frame.data = Uint8Array.from(atob(frame.data), (c) => c.charCodeAt(0));
      take(frame);
    }
    if (poller && link.peek().mode === "stale") link.value = { ...link.peek(), mode: "polling", since: now() };
  } catch {
    stale();
  }
}

/** The one topic with binary frames is the fleet. */
function binary(data: Uint8Array): Frame {
  if (data.length < 18) return {};
  const view = new DataView(data.buffer, data.byteOffset);
  return { topic: "fleet", seq: Number(view.getBigUint64(2, true)), at_ms: Number(view.getBigUint64(10, true)), data };
}

/** Takes in a frame, if somebody wants its topic. */
export function take(frame: Frame): void {
  const topic = topics.get(frame.topic ?? "");
  if (!topic) return;
  try {
    for (const t of topic.takers) t(frame);
  } catch (cause) {
    // What cannot be understood is asked for anew.
    console.warn(cause);
    socket?.close();
    return;
  }
  const before = topic.state.peek() ?? nothing;
  topic.state.value = frame.error
    ? { ...before, error: frame.error, good: frame.good_ms ?? before.good }
    : { data: frame.data, at: frame.at_ms ?? now(), good: frame.at_ms ?? now() };
  requestAnimationFrame(() => mark(frame.topic ?? "", frame.seq ?? 0));
}

// Tests wait for these. Signals have drawn by the next animation frame.
function mark(topic: string, seq: number): void {
  const root = document.documentElement;
  drawn = Math.max(drawn, seq);
  root.setAttribute(`data-seq-${topic.split(":")[0]}`, String(seq));
  root.setAttribute("data-seq", String(drawn));
}
