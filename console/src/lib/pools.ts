import { signal } from "@preact/signals";
import type { components } from "../api/schema.d.ts";
import { ApiError, change, get } from "./api.ts";
import type { Fault } from "./document.ts";
import { faultsOf, parseDocument } from "./document.ts";

export type Result = components["schemas"]["ConfigResult"];
type Stored = components["schemas"]["PoolConfig"];

/** A document that is edited. It outlives the view, so that a look elsewhere loses nothing. */
interface Draft {
  text: string;
  /** What the text was before the edit, and its version. */
  base: string;
  version: number;
  faults: Fault[];
  /** What the text as it is would change, by the last check. */
  checked?: Result | undefined;
  /** The stored document, where it is newer than the base. */
  newer?: { text: string; version: number; by: string } | undefined;
}

export const draft = signal<Draft | undefined>(undefined);

function patch(change: Partial<Draft>): void {
  if (draft.value) draft.value = { ...draft.value, ...change };
}

/** The configuration as text. Pauses are left out: an edit leaves them as they are. */
export function textOf(config: components["schemas"]["Config"]): string {
  const { paused: _, ...rest } = config;
  return JSON.stringify(rest, null, 2);
}

/** Begins with the stored document. What is typed while it is read stays. */
export async function startDraft(signal?: AbortSignal): Promise<Stored> {
  const before = draft.peek()?.text;
  const stored = await get("/v1/config", signal ? { signal } : {});
  const base = textOf(stored.config);
  if (draft.peek()?.text === before) draft.value = { text: base, base, version: stored.version, faults: [] };
  return stored;
}

export function editDraft(text: string): void {
  patch({ text, faults: [], checked: undefined });
}

/** Asks what the draft would change. Refusals become faults at their lines. */
export async function checkDraft(): Promise<void> {
  await send(true, "");
}

/** Puts the draft in force. */
export async function applyDraft(note: string): Promise<string> {
  const done = await send(false, note);
  if (!done) throw new ApiError("invalid_argument", "The document has faults; they are listed below it.");
  const text = draft.value?.text ?? "";
  draft.value = { text, base: text, version: done.version, faults: [] };
  return done.unchanged ? "Nothing to change." : `Version ${done.version} is in force.`;
}

async function send(dry: boolean, note: string): Promise<Result | undefined> {
  const d = draft.value;
  if (!d) return undefined;
  const { value, faults } = parseDocument(d.text);
  if (faults.length > 0) {
    patch({ faults, checked: undefined });
    return undefined;
  }
  try {
    const done = await change("put", "/v1/config", {
      query: { dry_run: dry },
      body: { version: d.version, config: value, note },
      reason: dry ? undefined : note,
    });
    if (dry && draft.value?.text === d.text) patch({ checked: done, faults: [] });
    return done;
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause;
    if (cause.code === "conflict") await seeNewer();
    else if (cause.code === "invalid_argument")
      patch({ faults: faultsOf(d.text, cause, "config"), checked: undefined });
    if (dry && cause.code === "invalid_argument") return undefined;
    throw cause;
  }
}

async function seeNewer(): Promise<void> {
  const stored = await get("/v1/config");
  patch({
    newer: { text: textOf(stored.config), version: stored.version, by: stored.author ?? "" },
    checked: undefined,
  });
}

/** Goes on from the newest version. The text stays as it is. */
export function rebaseDraft(): void {
  const newer = draft.value?.newer;
  if (newer) patch({ base: newer.text, version: newer.version, newer: undefined, checked: undefined });
}

/** From so many nodes on a change is wide, and its count must be typed. */
export const wide = 10;
