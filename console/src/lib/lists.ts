import type { components } from "../api/schema.d.ts";
import type { Action } from "../parts/act.tsx";
import { change } from "./api.ts";
import { go, href } from "./route.ts";
import { plural, schedctl } from "./text.ts";

export type List = components["schemas"]["NameList"];
export type Version = components["schemas"]["Version"];
type Entry = components["schemas"]["Change"];

/** Says what came of a change: where it needs approval, the answer is the request that waits for it. */
export function outcome(answer: unknown, done: string): string {
  const asked = (answer as { request?: { id: string } } | undefined)?.request;
  return asked ? `It waits for approval, as request ${asked.id}.` : done;
}

const busy = (l: List) => (l.operation ? `${l.operation.kind} goes on.` : undefined);

async function switchTo(list: string, version: number, serving: number, note: string): Promise<string> {
  const body = { version, serving, note };
  const answer = await change("post", "/v1/lists/{list}/switch", { path: { list }, body, reason: note });
  return outcome(answer, `${list} switches to version ${version}; clients that have not loaded it are waited for.`);
}

/** Makes a version the one that answers; an older one is a rollback. */
export function switchList(l: List, to: Version): Action {
  const serving = l.serving?.number ?? 0;
  const back = to.number < serving;
  const line = back ? ["lists", "rollback"] : ["lists", "switch"];
  const ids = to.count - (l.serving?.count ?? 0);
  return {
    label: back ? `Roll back to ${to.number}` : `Switch to ${to.number}`,
    title: `${back ? "Roll back" : "Switch"} ${l.name} to version ${to.number}`,
    needs: "changeOwn",
    not:
      to.number === serving
        ? "It serves already."
        : to.damaged
          ? "It is damaged."
          : to.doubt
            ? "It must be accepted first."
            : busy(l),
    consequence: `All clients load version ${to.number} first, and then answer from it: ${plural(to.count, "id")}, ${ids < 0 ? plural(-ids, "fewer", "fewer") : plural(ids, "more", "more")} than now. Edits that it does not have are taken back if it replaces.`,
    command: (reason) =>
      schedctl(line, back ? { note: reason, reason } : { serving, note: reason, reason }, [l.name, String(to.number)]),
    run: (reason) => switchTo(l.name, to.number, serving, reason),
    ...(serving > 0
      ? { undo: { label: `Back to ${serving}`, run: () => switchTo(l.name, serving, to.number, "undo") } }
      : {}),
  };
}

export function acceptVersion(l: List, v: Version): Action {
  return {
    label: "Accept",
    title: `Accept version ${v.number} of ${l.name}`,
    needs: "changeOwn",
    danger: true,
    typed: l.name,
    consequence: `${v.doubt}. Accepted, it can be switched to. This cannot be taken back.`,
    command: (reason) => schedctl(["lists", "accept"], { reason }, [l.name, String(v.number)]),
    run: async (reason) => {
      const path = { list: l.name, version: String(v.number) };
      await change("post", "/v1/lists/{list}/versions/{version}/accept", { path, reason });
      return `Version ${v.number} is accepted.`;
    },
  };
}

async function setFrozen(list: string, frozen: boolean, note: string): Promise<string> {
  if (frozen) await change("post", "/v1/lists/{list}/freeze", { path: { list }, body: { note }, reason: note });
  else await change("post", "/v1/lists/{list}/unfreeze", { path: { list }, reason: note });
  return frozen ? `${list} refuses changes.` : `${list} takes changes again.`;
}

export function freezeList(l: List): Action {
  const frozen = l.state === "frozen";
  return {
    label: frozen ? "Unfreeze" : "Freeze",
    title: `${frozen ? "Unfreeze" : "Freeze"} list ${l.name}`,
    needs: "change",
    not: frozen ? undefined : busy(l),
    consequence: frozen
      ? "Edits, imports and switches are taken again."
      : "Edits, imports and switches are refused until it is unfrozen. It goes on to serve.",
    command: (reason) =>
      schedctl(["lists", frozen ? "unfreeze" : "freeze"], frozen ? { reason } : { note: reason, reason }, [l.name]),
    run: (reason) => setFrozen(l.name, !frozen, reason),
    undo: { label: "Undo", run: () => setFrozen(l.name, frozen, "undo") },
  };
}

export function cancelOperation(l: List): Action {
  const operation = l.operation?.id ?? "";
  return {
    label: "Cancel",
    title: `End what runs on ${l.name}`,
    needs: "changeOwn",
    danger: true,
    consequence: `${l.operation?.kind} ends, and the list is as before it.`,
    command: (reason) => schedctl(["lists", "cancel"], { note: reason, reason }, [l.name]),
    run: async (note) => {
      const path = { list: l.name };
      await change("post", "/v1/lists/{list}/cancel", { path, body: { operation, note }, reason: note });
      return "It has ended.";
    },
  };
}

export function deleteList(l: List, clients: number): Action {
  return {
    label: "Delete",
    title: `Delete list ${l.name}`,
    needs: "changeOwn",
    danger: true,
    typed: l.name,
    not: clients > 0 ? `${plural(clients, "live client")} use${clients === 1 ? "s" : ""} it.` : busy(l),
    consequence: `All ${plural(l.serving?.count ?? 0, "id")} and versions go, and clients answer unknown from then on. This cannot be undone.`,
    command: (reason) => schedctl(["lists", "rm"], { note: reason, reason }, [l.name]),
    run: async (note) => {
      const sent = { path: { list: l.name }, query: { note }, reason: note };
      const text = outcome(await change("delete", "/v1/lists/{list}", sent), `${l.name} is deleted.`);
      go(href(["lists"]));
      return text;
    },
  };
}

async function edit(list: string, entries: Entry[], note: string): Promise<string> {
  const sent = { path: { list }, body: { entries, note }, reason: note };
  const answer = await change("post", "/v1/lists/{list}/entries", sent);
  const at = "revision" in answer ? answer.revision : 0;
  return outcome(answer, `${list} is at revision ${at}: ${plural(entries.length, "id")} edited.`);
}

/** What an id's entry must be for the list to be as it is now. */
async function restoring(list: string, ids: string[]): Promise<Entry[]> {
  const answer = await change("post", "/v1/lists/{list}/query", { path: { list }, body: { ids } });
  return (answer.found ?? []).map((f) =>
    f.member ? { id: f.id, ...(f.expires_ms ? { expires_ms: f.expires_ms } : {}) } : { id: f.id, remove: true },
  );
}

/** Adds ids, for a time where forMS is more than 0, or removes them. Undo brings each back as it was. */
export function editEntries(l: List, ids: string[], remove: boolean, forMS: number, nowMS: () => number): Action {
  let before: Entry[] = [];
  const what = plural(ids.length, "id");
  return {
    label: remove ? "Remove" : "Add",
    title: `${remove ? "Remove" : "Add"} ${what} ${remove ? "from" : "to"} ${l.name}`,
    needs: "changeOwn",
    not: ids.length === 0 ? "Write an id first." : ids.length > 1000 ? "At most 1000 at once." : busy(l),
    consequence: remove
      ? `Clients answer no for ${what} as soon as they have the edit.`
      : `Clients answer yes for ${what} as soon as they have the edit${forMS > 0 ? ", until that time is over" : ""}.`,
    command: (reason) =>
      schedctl(
        ["lists", remove ? "remove" : "add"],
        { for: forMS > 0 && !remove ? `${forMS / 60_000}m` : "", note: reason, reason },
        [l.name, ...ids],
      ),
    run: async (reason) => {
      before = await restoring(l.name, ids);
      const expires = forMS > 0 && !remove ? { expires_ms: Math.round(nowMS() + forMS) } : {};
      return edit(
        l.name,
        ids.map((id) => (remove ? { id, remove } : { id, ...expires })),
        reason,
      );
    },
    undo: { label: "Undo", run: () => edit(l.name, before, "undo") },
  };
}
