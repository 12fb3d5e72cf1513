import type { components } from "../api/schema.d.ts";

type Status = components["schemas"]["ReplicaStatus"];
type Seen = components["schemas"]["ServerStatus"];

/** Values that not more than half have, if there are several: with them something differs. */
export function odd<V>(values: V[]): Set<V> {
  const counts = new Map<V, number>();
  for (const v of values) counts.set(v, (counts.get(v) ?? 0) + 1);
  if (counts.size < 2) return new Set();
  return new Set([...counts].filter(([, n]) => n * 2 <= values.length).map(([v]) => v));
}

/** Which replicas have each value, in the order in which values come. */
export function holders(replicas: Status[], of: (r: Status) => string): [value: string, names: string[]][] {
  const by = new Map<string, string[]>();
  for (const r of replicas) by.set(of(r), [...(by.get(of(r)) ?? []), r.name]);
  return [...by];
}

/** A server of Redis, as all replicas together see it. */
export interface Server {
  key: string;
  /** Empty on a cluster. */
  address: string;
  cells: number[];
  /** The replicas that know of it, and those of them that it does not answer. */
  seenBy: string[];
  away: string[];
  roles: string[];
  /** More than one: the replicas speak to different processes. */
  runs: number;
  /** The least and the most that a replica measured, in milliseconds; undefined if it answers no replica. */
  latency: [least: number, most: number] | undefined;
  used: number | undefined;
  /** Its maxmemory; 0 without one. */
  max: number;
}

/** The servers of Redis, in the order of their cells. Replicas name a server by its address, or else by its cells. */
export function servers(replicas: Status[]): Server[] {
  const by = new Map<string, { replica: string; seen: Seen }[]>();
  for (const r of replicas)
    for (const seen of r.redis ?? []) {
      const key = seen.address || `cells ${(seen.cells ?? []).join(" ")}`;
      by.set(key, [...(by.get(key) ?? []), { replica: r.name, seen }]);
    }
  return [...by].map(([key, all]) => merge(key, all)).sort((a, b) => (a.cells[0] ?? 0) - (b.cells[0] ?? 0));
}

function merge(key: string, all: { replica: string; seen: Seen }[]): Server {
  const up = all.filter((a) => a.seen.connected).map((a) => a.seen);
  const times = up.map((s) => s.latency_ms ?? 0);
  return {
    key,
    address: all[0]?.seen.address ?? "",
    cells: [...new Set(all.flatMap((a) => a.seen.cells ?? []))].sort((a, b) => a - b),
    seenBy: all.map((a) => a.replica),
    away: all.filter((a) => !a.seen.connected).map((a) => a.replica),
    roles: [...new Set(up.map((s) => s.role ?? "").filter(Boolean))],
    runs: new Set(up.map((s) => s.run ?? "").filter(Boolean)).size,
    latency: up.length > 0 ? [Math.min(...times), Math.max(...times)] : undefined,
    used: up.length > 0 ? Math.max(...up.map((s) => s.used_bytes ?? 0)) : undefined,
    max: Math.max(0, ...up.map((s) => s.max_bytes ?? 0)),
  };
}
