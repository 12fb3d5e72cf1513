import type { components } from "../api/schema.d.ts";
import type { Action } from "../parts/act.tsx";
import { change } from "./api.ts";
import { go, href } from "./route.ts";
import { cut, plural, schedctl } from "./text.ts";

export type Instance = components["schemas"]["RegistryInstance"];
export type Lock = components["schemas"]["Lock"];

/** What an operator sets of an instance. What is absent is as its provider says. */
export interface Settings {
  weight?: number | undefined;
  enabled?: boolean | undefined;
  draining?: boolean | undefined;
}

const pathOf = (i: Instance) => ({ serviceName: i.service, instanceId: i.id });
const overridePath = "/admin/registry/services/{serviceName}/instances/{instanceId}/override";

function settingsOf(i: Instance): Settings {
  const { weight, enabled, draining } = i.override ?? {};
  return { weight, enabled, draining };
}

/** What is set on the screen, by its time. */
const seenOf = (i: Instance) => String(i.override?.at_ms ?? 0);

async function put(i: Instance, set: Settings, note: string, seen?: string): Promise<void> {
  const path = pathOf(i);
  const body = { ...set, note: note || undefined };
  const query = { seen };
  if (Object.values(set).every((v) => v === undefined))
    await change("delete", overridePath, { path, query, reason: note });
  else await change("put", overridePath, { path, query, body, reason: note });
}

const undo = (i: Instance, again: () => void) => ({
  label: "Undo",
  run: async () => {
    await put(i, settingsOf(i), "undo");
    again();
    return `${i.id} is as it was set before.`;
  },
});

/** Sets one thing of an instance over its provider, and keeps what was set besides. */
export function setInstance(
  i: Instance,
  one: Settings,
  { label, consequence, not }: { label: string; consequence: string; not?: string | undefined },
  again: () => void,
): Action {
  const set = { ...settingsOf(i), ...one };
  const flags = {
    weight: set.weight,
    enabled: set.enabled === true,
    "no-enabled": set.enabled === false,
    draining: set.draining === true,
    "no-draining": set.draining === false,
  };
  return {
    label,
    title: `${label}: ${i.id}`,
    needs: "change",
    not,
    consequence: `${consequence} It stays so until it is reset, also over a restart of the instance.`,
    command: (note) =>
      schedctl(["registry", "set"], { ...flags, seen: seenOf(i), note, reason: note }, [i.service, i.id]),
    run: async (reason) => {
      await put(i, set, reason, seenOf(i));
      again();
      return `${i.id} is set.`;
    },
    undo: undo(i, again),
  };
}

export function resetInstance(i: Instance, again: () => void): Action {
  return {
    label: "Reset",
    title: `Reset ${i.id}`,
    needs: "change",
    not: i.override ? undefined : "Nothing is set.",
    consequence: "Weight and state are as its provider says again.",
    command: (reason) => schedctl(["registry", "reset"], { seen: seenOf(i), reason }, [i.service, i.id]),
    run: async (reason) => {
      await change("delete", overridePath, { path: pathOf(i), query: { seen: seenOf(i) }, reason });
      again();
      return `${i.id} is reset.`;
    },
    undo: undo(i, again),
  };
}

export function removeInstance(i: Instance): Action {
  const epoch = i.epoch ?? "";
  return {
    label: "Remove",
    title: `Remove ${i.id}`,
    needs: "change",
    danger: true,
    typed: i.id,
    consequence: i.persistent
      ? "It leaves all lists at once. Only an operator registers it again."
      : "It leaves all lists at once. If its provider lives, it registers again: to keep traffic away, disable it.",
    command: (reason) => schedctl(["registry", "rm"], { "if-epoch": epoch, reason }, [i.service, i.id]),
    run: async (reason) => {
      await change("delete", "/admin/registry/services/{serviceName}/instances/{instanceId}", {
        path: pathOf(i),
        query: { epoch },
        reason,
      });
      go(href(["services", i.service]));
      return `${i.id} is removed.`;
    },
  };
}

/** Ends the hold that is on the screen, and no other. With force the lock is free at once. */
export function releaseLock(l: Lock, force: boolean, again: () => void): Action {
  const token = l.token ?? "";
  const next = l.waiting > 0 ? ` ${plural(l.waiting, "process", "processes")} wait.` : "";
  return {
    label: force ? "Force release" : "Ask to release",
    title: `${force ? "Force the release of" : "Ask to release"} ${cut(l.key, 80)}`,
    needs: "administer",
    danger: true,
    ...(force ? { typed: l.key } : {}),
    not: l.held ? undefined : "It is free.",
    consequence: force
      ? `The lock is free at once. Until its next check, within 5 s, ${cut(l.holder ?? "", 80)} may work beside the next holder: only what checks tokens tells them apart.${next}`
      : `${cut(l.holder ?? "", 80)} stops at its next check or renewal and gives the lock back. If it has died, the lock is free when its lease is over.${next}`,
    command: (reason) => schedctl(["lock", "rm"], { "if-token": token, now: force, reason }, [l.key]),
    run: async (reason) => {
      const done = await change("post", "/v1/locks/{key}/revoke", {
        path: { key: l.key },
        body: { reason, token, now: force },
        reason,
      });
      again();
      return `${cut(l.key, 80)}: ${done.text}`;
    },
  };
}
