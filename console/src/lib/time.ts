import { signal } from "@preact/signals";
import { type Zone, zone } from "./prefs.ts";

/** What to add to this machine's clock to get the clock of Redis, in milliseconds. */
const offset = signal(0);

/** The time by Redis' clock, once a second. */
export const clock = signal(Date.now());

/** Learns the offset from an answer that holds the server's time. A wrong clock here changes no age. */
export function learnClock(serverMS: number): void {
  if (serverMS > 0) offset.value = serverMS - Date.now();
  clock.value = now();
}

export function now(): number {
  return Date.now() + offset.peek();
}

/** From this jump of this machine's clock on the clock of Redis is asked again, in milliseconds. */
const jump = 2000;

/** Keeps the clock going. jumped is called when this machine's clock was set, or the machine slept. */
export function startClock(jumped: () => void): void {
  let before = Date.now() - performance.now();
  setInterval(() => {
    const apart = Date.now() - performance.now();
    if (Math.abs(apart - before) > jump) jumped();
    before = apart;
    clock.value = now();
  }, 1000);
}

const units: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** A span in words of at most two units: `450 ms`, `3.2 s`, `4 min 10 s`, `2 d 3 h`. */
export function span(ms: number): string {
  const size = Math.abs(ms);
  const sign = ms < 0 ? "-" : "";
  if (size < 1000) return `${sign}${Math.round(size)} ms`;
  if (size < 9_950) return `${sign}${(size / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(size / 1000) * 1000;
  const first = units.findIndex(([, unit]) => whole >= unit);
  const [name, unit] = units[first] ?? ["s", 1000];
  const count = Math.floor(whole / unit);
  const next = units[first + 1];
  const rest = next ? Math.floor((whole - count * unit) / next[1]) : 0;
  return `${sign}${count} ${name}${next && rest > 0 ? ` ${rest} ${next[0]}` : ""}`;
}

/** An age in one unit: `now`, `12 s`, `3 min`, `5 h`, `9 d`. Times ahead read `in 3 min`. */
export function age(atMS: number, nowMS: number): string {
  const ms = nowMS - atMS;
  if (Math.abs(ms) < 1500) return "now";
  const size = Math.abs(ms);
  const [name, unit] = units.find(([, u]) => size >= u) ?? ["s", 1000];
  const text = `${Math.max(1, Math.floor(size / unit))} ${name}`;
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

/** The time of day, with the date where that is not today's. */
export function moment(ms: number, in_: Zone = zone.value, nowMS = now()): string {
  const [date, time] = parts(ms, in_);
  return date === parts(nowMS, in_)[0] ? time : `${date} ${time}`;
}

/** Date, time and zone in full. */
export function full(ms: number, in_: Zone = zone.value): string {
  const [date, time] = parts(ms, in_);
  return `${date} ${time}${in_ === "utc" ? " UTC" : offsetName(ms)}`;
}

/** Date and time in a named time zone, such as Europe/Berlin. In one that this browser does not know: unknown. */
export function inZone(ms: number, timeZone: string): string {
  try {
    // Of all languages this one writes dates as the other functions here.
    return new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "medium" }).format(ms);
  } catch {
    return "unknown";
  }
}

function parts(ms: number, in_: Zone): [string, string] {
  const shifted = new Date(in_ === "utc" ? ms : ms - new Date(ms).getTimezoneOffset() * 60_000);
  if (Number.isNaN(shifted.getTime())) return ["", "unknown"];
  const iso = shifted.toISOString();
  return [iso.slice(0, 10), iso.slice(11, 19)];
}

function offsetName(ms: number): string {
  const minutes = -new Date(ms).getTimezoneOffset();
  const size = Math.abs(minutes);
  const pad = (n: number) => String(n).padStart(2, "0");
  return ` ${minutes < 0 ? "-" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** The ranges that charts and lists offer, in milliseconds. */
export const ranges: Record<string, number> = {
  "5m": 300_000,
  "15m": 900_000,
  "1h": 3_600_000,
  "3h": 10_800_000,
  "12h": 43_200_000,
  "24h": 86_400_000,
};
