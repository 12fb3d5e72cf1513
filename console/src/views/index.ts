import type { ComponentType } from "preact";
import type { Right } from "../lib/rights.ts";
import type { IconName } from "../parts/icon.tsx";
import { Audit } from "./audit.tsx";
import { Bulk } from "./bulk.tsx";
import { Chains } from "./chains.tsx";
import { DeadLetters } from "./dead.tsx";
import { Documents } from "./documents.tsx";
import { Fleet } from "./fleet.tsx";
import { Jobs } from "./jobs.tsx";
import { Lists } from "./lists.tsx";
import { Locks } from "./locks.tsx";
import { Nodes } from "./nodes.tsx";
import { Overview } from "./overview.tsx";
import { Pools } from "./pools.tsx";
import { Queues } from "./queues.tsx";
import { Replicas } from "./replicas.tsx";
import { Schedules } from "./schedules.tsx";
import { Services } from "./services.tsx";
import { Tenants } from "./tenants.tsx";

/** A view: a row here and a file beside it are all that it takes. */
export interface View {
  /** The first part of its address: `jobs` for `#/jobs`. The rest of the address is the view's own. */
  path: string;
  name: string;
  /** Opens it behind `g`. */
  key: string;
  icon: IconName;
  needs: Right;
  component: ComponentType;
}

export const views: View[] = [
  { path: "", name: "Overview", key: "o", icon: "overview", needs: "see", component: Overview },
  { path: "jobs", name: "Jobs", key: "j", icon: "jobs", needs: "seeJob", component: Jobs },
  { path: "fleet", name: "Fleet", key: "f", icon: "fleet", needs: "see", component: Fleet },
  { path: "nodes", name: "Nodes", key: "n", icon: "nodes", needs: "see", component: Nodes },
  { path: "queues", name: "Queues", key: "q", icon: "queues", needs: "see", component: Queues },
  { path: "dead", name: "Dead letters", key: "d", icon: "dead", needs: "seeJob", component: DeadLetters },
  { path: "bulk", name: "Bulk", key: "b", icon: "bulk", needs: "seeJob", component: Bulk },
  { path: "pools", name: "Pools", key: "p", icon: "pools", needs: "see", component: Pools },
  { path: "tenants", name: "Tenants", key: "t", icon: "tenants", needs: "seeJob", component: Tenants },
  { path: "schedules", name: "Schedules", key: "s", icon: "schedules", needs: "seeJob", component: Schedules },
  { path: "lists", name: "Lists", key: "l", icon: "lists", needs: "seeOwn", component: Lists },
  { path: "services", name: "Services", key: "v", icon: "services", needs: "see", component: Services },
  { path: "documents", name: "Documents", key: "e", icon: "documents", needs: "see", component: Documents },
  { path: "locks", name: "Locks", key: "k", icon: "locks", needs: "see", component: Locks },
  { path: "chains", name: "Chains", key: "c", icon: "chains", needs: "see", component: Chains },
  { path: "replicas", name: "Replicas", key: "r", icon: "replicas", needs: "see", component: Replicas },
  { path: "audit", name: "Audit", key: "a", icon: "audit", needs: "see", component: Audit },
];

/** The address of a view, or undefined if this build does not have it. */
export function viewAt(path: string): View | undefined {
  return views.find((v) => v.path === path);
}
