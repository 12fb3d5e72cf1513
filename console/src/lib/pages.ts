import { useSignal } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { ApiError } from "./api.ts";
import { now } from "./time.ts";

export interface Page<R> {
  rows: R[];
  cursor?: string | undefined;
  /** What the answer says about itself, such as how many records were looked at. */
  note?: Note | undefined;
}

export interface Note {
  looked: number;
  /** Everything from then on was looked at, in milliseconds; 0: only what has not ended. */
  since: number;
}

export interface Pages<R> {
  rows: R[];
  /** When the first page was read, by Redis' clock; 0 before. */
  at: number;
  busy: boolean;
  note: Note | undefined;
  error: ApiError | undefined;
  /** Reads the next page; undefined at the end. */
  more: (() => void) | undefined;
  again: () => void;
}

/** A list in a tab stops here: the filter finds what is beyond. */
const mostRows = 20_000;
/** A page can be empty and still have a cursor. So many are read in a row, then the user decides. */
const mostEmpty = 20;

/** Reads a listing page by page. key changes with the filter, and begins anew. */
export function usePages<R>(key: string, read: (cursor: string, signal: AbortSignal) => Promise<Page<R>>): Pages<R> {
  const state = useSignal<Omit<Pages<R>, "more" | "again"> & { cursor: string }>(fresh());
  const stop = useRef(new AbortController());
  const reader = useRef(read);
  reader.current = read;
  const load = useCallback(
    async (from: string) => {
      const signal = stop.current.signal;
      state.value = { ...state.peek(), busy: true, error: undefined };
      try {
        let cursor = from;
        for (let n = 0; n < mostEmpty; n++) {
          const page = await reader.current(cursor, signal);
          if (signal.aborted) return;
          cursor = page.cursor ?? "";
          const s = state.peek();
          const note = page.note && {
            looked: (s.note?.looked ?? 0) + page.note.looked,
            since: page.note.since || (s.note?.since ?? 0),
          };
          const done = cursor === "" || page.rows.length > 0 || n === mostEmpty - 1;
          state.value = {
            ...s,
            rows: [...s.rows, ...page.rows],
            cursor,
            at: s.at || now(),
            busy: !done,
            note: note ?? s.note,
          };
          if (done) return;
        }
      } catch (cause) {
        if (signal.aborted) return;
        const error = cause instanceof ApiError ? cause : new ApiError("internal", String(cause));
        state.value = { ...state.peek(), busy: false, error };
      }
    },
    [state],
  );
  const again = useCallback(() => {
    stop.current.abort();
    stop.current = new AbortController();
    state.value = fresh();
    void load("");
  }, [load, state]);
  useEffect(() => {
    again();
    return () => stop.current.abort();
  }, [key, again]);
  const s = state.value;
  const more = s.cursor && !s.busy && !s.error && s.rows.length < mostRows ? () => void load(s.cursor) : undefined;
  return { ...s, more, again };
}

function fresh() {
  return { rows: [], at: 0, busy: true, note: undefined, error: undefined, cursor: "" };
}
