import type { components } from "../api/schema.d.ts";
import type { Action } from "../parts/act.tsx";
import { type ApiError, change } from "./api.ts";
import type { Fault } from "./document.ts";
import { outcome } from "./lists.ts";
import { go, href } from "./route.ts";
import { schedctl } from "./text.ts";

type Schemas = components["schemas"];
export type Chain = Schemas["ChainDocument"];
export type ChainVersion = Schemas["ChainVersion"];
export type Subject = Schemas["ChainSubject"];

/** An edit of a document: the version that it was made from with its text, and the text as it is now. */
export interface Draft {
  from: number;
  was: string;
  text: string;
}

const line = (verb: string, flags: Record<string, string | number>, args: string[]) => (reason: string) =>
  schedctl(["lists", "chain", verb], { ...flags, note: reason, reason }, args);

/** Says what came of a change, and leads to the request where it waits for approval. */
function settled(answer: unknown, done: string): string {
  const asked = (answer as { request?: { id: string } } | undefined)?.request;
  if (asked) go(href(["lists"], { part: "requests", request: asked.id }));
  return outcome(answer, done);
}

const versionOf = (answer: object) => ("version" in answer ? Number(answer.version) : 0);

async function restore(chain: string, version: number, seen: number, note: string): Promise<[string, number]> {
  const sent = { path: { chain }, body: { version: seen, restore: version, note }, reason: note };
  const answer = await change("post", "/v1/chains/{chain}/rollback", sent);
  const made = versionOf(answer);
  return [settled(answer, `${chain} serves version ${made}, the document of version ${version}.`), made];
}

/** Writes the draft as the newest version. failed gets the refusal, for the lines of the editor. */
export function applyDraft(
  chain: string,
  draft: Draft,
  document: unknown,
  failed: (error: ApiError) => void,
  done: () => void,
): Pick<Action, "command" | "run" | "undo"> {
  let made = 0;
  return {
    command: line("apply", { seen: draft.from }, [chain, `${chain}.json`]),
    run: async (note) => {
      const sent = { path: { chain }, body: { version: draft.from, document, note }, reason: note };
      const answer = await change("put", "/v1/chains/{chain}", sent).catch((cause) => {
        failed(cause);
        throw cause;
      });
      made = versionOf(answer);
      if (made) done();
      return settled(answer, `${chain} serves version ${made}.`);
    },
    ...(draft.from > 0
      ? {
          undo: {
            label: `Back to ${draft.from}`,
            run: async () => (await restore(chain, draft.from, made, "undo"))[0],
          },
        }
      : {}),
  };
}

async function shadow(chain: string, version: number, document: unknown, note: string): Promise<string> {
  const sent = { path: { chain }, body: { version, document, note }, reason: note };
  await change("post", "/v1/chains/{chain}/shadow", sent);
  return document === undefined ? `${chain} has no shadow any more.` : `${chain} has a shadow.`;
}

export function startShadow(
  chain: string,
  draft: Draft,
  document: unknown,
  not: string | undefined,
  failed: (error: ApiError) => void,
): Action {
  return {
    label: "Run it beside",
    title: `Shadow chain ${chain} with this document`,
    needs: "change",
    not,
    consequence:
      "Clients and replicas evaluate it beside the version that serves, and count what it decides otherwise. It decides nothing itself, replaces a shadow from before, and ends with the next version.",
    command: line("shadow", { seen: draft.from }, [chain, `${chain}.json`]),
    run: (note) =>
      shadow(chain, draft.from, document, note).catch((cause) => {
        failed(cause);
        throw cause;
      }),
    undo: { label: "End it", run: () => shadow(chain, draft.from, undefined, "undo") },
  };
}

export function endShadow(c: Chain): Action {
  return {
    label: "End it",
    title: `End the shadow of chain ${c.name}`,
    needs: "change",
    consequence: "It is not evaluated any more. What was counted stays.",
    command: line("shadow", { seen: c.version }, [c.name]),
    run: (note) => shadow(c.name, c.version, undefined, note),
    undo: { label: "Undo", run: () => shadow(c.name, c.version, c.shadow?.document, "undo") },
  };
}

export function rollBack(c: Chain, to: ChainVersion): Action {
  let made = 0;
  return {
    label: `Roll back to ${to.version}`,
    title: `Roll chain ${c.name} back to version ${to.version}`,
    needs: "change",
    not: to.version === c.version ? "It serves." : undefined,
    consequence: `Its document becomes the newest version, which serves at once${c.shadow ? ", and ends the shadow" : ""}. The lists that it asks must still exist.`,
    command: line("rollback", { seen: c.version }, [c.name, String(to.version)]),
    run: async (note) => {
      const [text, version] = await restore(c.name, to.version, c.version, note);
      made = version;
      return text;
    },
    undo: { label: `Back to ${c.version}`, run: async () => (await restore(c.name, c.version, made, "undo"))[0] },
  };
}

export function deleteChain(c: Chain): Action {
  return {
    label: "Delete",
    title: `Delete chain ${c.name}`,
    needs: "change",
    danger: true,
    typed: c.name,
    consequence: "It decides unknown from then on. Its versions and counts go, too. This cannot be undone.",
    command: line("rm", { seen: c.version }, [c.name]),
    run: async (note) => {
      const sent = { path: { chain: c.name }, query: { version: c.version, note }, reason: note };
      const answer = await change("delete", "/v1/chains/{chain}", sent);
      go(href(["chains"]));
      return settled(answer, `Chain ${c.name} is deleted.`);
    },
  };
}

/** Subjects of a text: in each line a key, or JSON with key and attributes. lines has the line of each subject. */
export function subjectsOf(text: string): { subjects: Subject[]; lines: number[]; faults: Fault[] } {
  const subjects: Subject[] = [];
  const lines: number[] = [];
  const faults: Fault[] = [];
  text.split("\n").forEach((raw, i) => {
    const one = raw.trim();
    if (one === "") return;
    const subject = one.startsWith("{") ? parsed(one) : { key: one };
    if (typeof subject?.key === "string") {
      subjects.push(subject as Subject);
      lines.push(i + 1);
    } else {
      faults.push({ line: i + 1, message: 'This is neither a key nor JSON such as {"key":"user-1","attributes":{}}' });
    }
  });
  return { subjects, lines, faults };
}

function parsed(text: string): { key?: unknown } | undefined {
  try {
    return JSON.parse(text) as { key?: unknown };
  } catch {
    return undefined;
  }
}

/** The refusal of subjects, at their lines. */
export function subjectFaults(error: ApiError, lines: number[]): Fault[] {
  const all = error.errors.length > 0 ? error.errors : [{ field: error.field, message: error.message }];
  return all.map(({ field, message }) => {
    const at = /^subjects\[(\d+)\]/.exec(field);
    return { line: at ? (lines[Number(at[1])] ?? 0) : 0, message };
  });
}
