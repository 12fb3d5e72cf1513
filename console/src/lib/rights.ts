import { session } from "./session.ts";

/**
 * The kinds of rights, named as in the table of the replicas (internal/identity/rights.go). The page greys what a
 * role may not do; the replica refuses it.
 */
const rights = {
  see: ["viewer", "operator", "admin"],
  seeJob: ["viewer", "client", "tenant-operator", "operator", "admin"],
  changeJob: ["client", "tenant-operator", "operator", "admin"],
  operateJob: ["viewer", "tenant-operator", "operator", "admin"],
  change: ["operator", "admin"],
  administer: ["admin"],
  seeOwn: ["viewer", "tenant-operator", "operator", "admin"],
  apply: ["tenant-operator", "admin"],
  changeOwn: ["tenant-operator", "operator", "admin"],
} as const;

export type Right = keyof typeof rights;

/** Reports whether the viewer may use a right. */
export function may(right: Right): boolean {
  const s = session.value;
  return s !== undefined && (s.open || (rights[right] as readonly string[]).includes(s.role));
}

/** Says who may, for what is greyed. */
export function whoMay(right: Right): string {
  return `Only for ${rights[right].join(", ")}.`;
}
