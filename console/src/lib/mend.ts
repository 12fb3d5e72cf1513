import { count, plural, words } from "./text.ts";

/** What a mend needs of an explanation. */
export interface Why {
  job: { state: string; service: string; tenant: string; held_by?: string };
  placement?: Placement;
}

interface Placement {
  fits: number;
  qualify: number;
  total: number;
  max_slots: number;
  paused_by?: string;
  breakdown: Record<string, number>;
  nodes: { node: string; fits: boolean; reason?: string; detail?: string; pools?: string[] }[];
}

/** Something that would help: in words, and where it is one call, as that call. */
export interface Mend {
  text: string;
  call?: { do: "undrain"; node: string } | { do: "resume"; kind: "pool" | "service" | "class"; name: string };
  /** Jobs to look at. */
  jobs?: Record<string, string>;
  node?: string;
}

const offered = 3;

/** What would help a job that waits, the nearest first. Nothing for other jobs. */
export function mends(why: Why): Mend[] {
  const p = why.placement;
  if (!p) return [];
  return [...held(why), ...paused(p), ...nodes(p), ...nothingFits(why, p)];
}

function held({ job }: Why): Mend[] {
  switch (job.held_by) {
    case "max_running":
      return [
        {
          text: `Wait for a running job of tenant ${job.tenant} to end, cancel one, or raise its max_running in the configuration.`,
          jobs: { state: "running", tenant: job.tenant },
        },
      ];
    case "concurrency_key":
      return [
        {
          text: "Wait for the running job with the same concurrency_key to end, or cancel it.",
          jobs: { state: "running", tenant: job.tenant, service: job.service },
        },
      ];
    default:
      return [];
  }
}

function paused(p: Placement): Mend[] {
  const [kind, name] = [p.paused_by?.split(" ")[0], p.paused_by?.split(" ").slice(1).join(" ")];
  if (name && (kind === "service" || kind === "class")) {
    return [{ text: `Resume ${kind} ${name}.`, call: { do: "resume", kind, name } }];
  }
  const pools = new Set<string>();
  for (const n of p.nodes) {
    if (n.reason !== "paused") continue;
    for (const pool of n.pools ?? []) if (n.detail?.includes(pool)) pools.add(pool);
  }
  return [...pools].slice(0, offered).map((name) => ({
    text: `Resume pool ${name}: it pauses nodes that fit.`,
    call: { do: "resume", kind: "pool", name },
  }));
}

function nodes(p: Placement): Mend[] {
  const out: Mend[] = [];
  const by = (reason: string) => p.nodes.filter((n) => n.fits && n.reason === reason);
  for (const n of by("draining").slice(0, offered)) {
    out.push({
      text: `Undrain ${n.node}: it fits, and takes no new jobs.`,
      call: { do: "undrain", node: n.node },
      node: n.node,
    });
  }
  for (const n of by("silent").slice(0, offered)) {
    out.push({ text: `Look at the agent of ${n.node}: it fits, and ${n.detail ?? "is silent"}.`, node: n.node });
  }
  if (p.breakdown.unreachable) out.push({ text: "A cell does not answer; its nodes get no jobs until Redis is back." });
  const full = p.breakdown.full ?? 0;
  if (full > 0 && p.qualify === 0) {
    out.push({
      text: `Wait for a slot, or add nodes: ${plural(full, "node")} that would fit ${full === 1 ? "is" : "are"} full.`,
    });
  }
  return out;
}

const profile = [
  "service",
  "service_version",
  "pool",
  "source_language",
  "target_language",
  "language_pair",
  "labels",
  "features",
];

// The nearest nodes fail the last check: reasons come in the order in which a node is looked at.
function nothingFits({ job }: Why, p: Placement): Mend[] {
  if (p.fits > 0) return [];
  if (p.total === 0) return [{ text: "Start a node: there is none." }];
  if (p.breakdown.slots) {
    return [{ text: `Ask for fewer slots: the largest node that fits has ${count(p.max_slots)}.` }];
  }
  const nearest = [...profile].reverse().find((reason) => p.breakdown[reason]);
  if (!nearest) return [];
  const near = p.nodes.find((n) => n.reason === nearest);
  const detail = near?.detail ? `; nearest is ${near.node}: ${near.detail}` : "";
  return [
    {
      text: `Start a node that fits, or change the job: ${count(p.breakdown[nearest] ?? 0)} of ${plural(p.total, "node")} fail by ${words(nearest)} for ${job.service}${detail}.`,
    },
  ];
}
