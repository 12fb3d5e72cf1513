import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { components } from "../api/schema.d.ts";
import { ApiError, get } from "./api.ts";
import { followTopic } from "./live.ts";
import { span } from "./time.ts";

export type Node = components["schemas"]["NodeStatus"];

/** The states of nodes by their codes in frames. */
export const states = ["gone", "online", "draining", "drained", "silent"] as const;

/** A share or an age that is not known. */
export const unknown = 255;

const head = 46;
const mostPlaces = 1 << 20;

/** The figures of all nodes, by place, as the frames of the topic `fleet` tell them (docs/console.md). */
export class Places {
  /** The number of places. Some may be empty. */
  size = 0;
  names: string[] = [];
  state = new Uint8Array(0);
  cell = new Uint8Array(0);
  used = new Uint16Array(0);
  max = new Uint16Array(0);
  cpu = new Uint8Array(0);
  memory = new Uint8Array(0);
  gpu = new Uint8Array(0);
  age = new Uint8Array(0);
  through = 0;
  /** The age in milliseconds up to which a node counts as fresh. */
  unit = 0;
  /** How old the state of the least fresh cell is; 0 while all cells answer. */
  staleMS = 0;

  /**
   * Applies a frame, and returns the places that changed, and whether names came or went. A frame that is no frame, or
   * does not follow what is here, changes nothing and throws.
   */
  apply(bytes: Uint8Array): { changed: number[]; named: boolean } {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < head || bytes[0] !== 1) throw new Error("not a frame of the fleet");
    const anew = bytes[1] === 1;
    if (!anew && big(view, 18) > this.through) throw new Error("a frame is missing");
    // The first pass only checks, so that a broken frame changes nothing.
    this.read(view, bytes, () => {});
    if (anew) this.size = this.names.length = 0;
    const changed: number[] = [];
    let named = anew;
    this.read(view, bytes, (place, state, at, name) => {
      this.grow(place + 1);
      named ||= name !== undefined || state === 0;
      changed.push(place);
      this.state[place] = state;
      if (state === 0) {
        this.names[place] = "";
        return;
      }
      this.used[place] = view.getUint16(at, true);
      this.max[place] = view.getUint16(at + 2, true);
      this.cpu[place] = view.getUint8(at + 4);
      this.memory[place] = view.getUint8(at + 5);
      this.gpu[place] = view.getUint8(at + 6);
      this.age[place] = view.getUint8(at + 7);
      if (name === undefined) return;
      this.cell[place] = view.getUint8(at + 8);
      this.names[place] = name;
    });
    this.through = big(view, 26);
    this.unit = view.getUint32(34, true);
    this.staleMS = view.getUint32(38, true);
    return { changed, named };
  }

  private read(
    view: DataView,
    bytes: Uint8Array,
    take: (place: number, state: number, at: number, name: string | undefined) => void,
  ): void {
    const count = view.getUint32(42, true);
    const anew = bytes[1] === 1;
    let at = head;
    let place = 0;
    for (let n = 0; n < count; n++) {
      let gap = 0;
      for (let shift = 0; ; shift += 7) {
        const b = view.getUint8(at++);
        gap += (b & 127) * 2 ** shift;
        if (b < 128) break;
        if (shift > 21) throw new Error("a place is too far");
      }
      place += gap;
      const code = view.getUint8(at++);
      const state = code & 127;
      if (place >= mostPlaces || state >= states.length) throw new Error("no such place or state");
      let name: string | undefined;
      const from = at;
      if (state === 0) {
        if (code !== 0) throw new Error("a node that is gone has a name");
      } else {
        at += 8;
        if (code > 127) {
          const length = view.getUint8(at + 1);
          const text = bytes.subarray(at + 2, at + 2 + length);
          name = String.fromCharCode(...text);
          if (text.length < length || !/^[\w.-]{1,64}$/.test(name)) throw new Error("no name of a node");
          at += 2 + length;
        } else if (anew || place >= this.size || !this.names[place]) throw new Error("a node without a name");
      }
      if (at > bytes.length) throw new Error("the frame is cut");
      take(place, state, from, name);
      place++;
    }
    if (at !== bytes.length) throw new Error("more follows the last node");
  }

  private grow(size: number): void {
    while (this.size < size) this.names[this.size++] = "";
    const room = this.state.length;
    if (size <= room) return;
    const more = Math.max(256, 2 * room, size);
    for (const key of ["state", "cell", "cpu", "memory", "gpu", "age"] as const) this[key] = bigger(this[key], more);
    const [used, max] = [new Uint16Array(more), new Uint16Array(more)];
    used.set(this.used);
    max.set(this.max);
    this.used = used;
    this.max = max;
  }
}

function bigger(from: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const to = new Uint8Array(size);
  to.set(from);
  return to;
}

function big(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}

/** An age by its code: exact enough to see who is late. */
export function ageText(code: number, unit: number): string {
  if (code === 0) return `under ${span(unit)}`;
  return code === unknown ? "never" : `over ${span(unit * 2 ** ((code - 1) / 8))}`;
}

/** What is shown of a node. Figures are read from the places each time. */
export class Row {
  constructor(
    readonly place: number,
    readonly name: string,
  ) {}
  get status(): string {
    return states[places.state[this.place] ?? 0] ?? "gone";
  }
  get used(): number {
    return places.used[this.place] ?? 0;
  }
  get max(): number {
    return places.max[this.place] ?? 0;
  }
  get age(): number {
    return places.age[this.place] ?? unknown;
  }
  get profile(): Node | undefined {
    return profiles.get(this.name);
  }
  get pools(): string[] {
    return this.profile?.member_of ?? [];
  }
  get services(): string[] {
    return (this.profile?.installed_services ?? []).map((s) => s.name);
  }
}

/** A share of a node in percent; undefined if it is not known. */
export function share(kind: "cpu" | "memory" | "gpu", place: number): number | undefined {
  const value = places[kind][place] ?? unknown;
  return value === unknown ? undefined : value;
}

/** The fleet, while a view follows it. */
export let places = new Places();
/** Nodes as `GET /v1/nodes` has them. They may come a little later than the places, and never without. */
export const profiles = new Map<string, Node>();

/** Counts updates: of figures, at most one in 2 s of them, and of names and profiles. */
export const figures = signal(0);
export const calm = signal(0);
export const roster = signal(0);
/** When the figures were true, by Redis' clock; 0 before the first. */
export const seenAt = signal(0);
type Trouble = { code: string; message: string } | undefined;
const [topicTrouble, listTrouble] = [signal<Trouble>(undefined), signal<Trouble>(undefined)];
/** Why the fleet is not known whole. */
export const trouble = computed(() => topicTrouble.value ?? listTrouble.value);

const calmEvery = 2000;
/** Pages that read all nodes again do so within this time, and not more often than this. */
const spread = 5000;
const reloadEvery = 10_000;

type Listener = (changed: number[], named: boolean) => void;
const listeners = new Set<Listener>();

/** Calls a function with the places that changed, until the returned function is called. */
export function onFigures(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let holders = 0;
let release: (() => void) | undefined;
let leaving: ReturnType<typeof setTimeout> | undefined;

/** Follows the fleet while the component is mounted. */
export function useFleet(): void {
  useEffect(() => {
    holders++;
    clearTimeout(leaving);
    release ??= follow();
    return () => {
      // One view of nodes may follow another.
      if (--holders > 0) return;
      leaving = setTimeout(() => {
        release?.();
        release = undefined;
      });
    };
  }, []);
}

/** All nodes, in the order of their names. */
export function rows(): Row[] {
  const all: Row[] = [];
  for (let i = 0; i < places.size; i++) if (places.state[i]) all.push(new Row(i, places.names[i] ?? ""));
  return all.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function forget(): void {
  places = new Places();
  profiles.clear();
  seenAt.value = 0;
  topicTrouble.value = listTrouble.value = undefined;
  calm.value = 0;
  roster.value++;
}

function follow(): () => void {
  const stop = new AbortController();
  let later: ReturnType<typeof setTimeout> | undefined;
  const stopFleet = followTopic("fleet", (frame) => {
    topicTrouble.value = frame.error;
    if (!(frame.data instanceof Uint8Array)) return;
    const { changed, named } = places.apply(frame.data);
    seenAt.value = frame.at_ms ?? 0;
    for (const l of listeners) l(changed, named);
    figures.value++;
    if (named) roster.value++;
    later ??= setTimeout(
      () => {
        later = undefined;
        calm.value++;
      },
      calm.peek() === 0 ? 0 : calmEvery,
    );
  });
  const stopNodes = followProfiles(stop.signal);
  return () => {
    stopFleet();
    stopNodes();
    stop.abort();
    clearTimeout(later);
    forget();
  };
}

interface News {
  reload?: boolean;
  changed?: Node[];
  gone?: string[];
}

/** Keeps the profiles up to date, until the returned function is called and the signal comes. */
export function followProfiles(signal: AbortSignal): () => void {
  let missed: News[] | undefined; // what comes while all nodes are read
  let again = false; // more has changed while they are read than a frame tells
  let last = 0;
  const take = (news: News) => {
    for (const name of news.gone ?? []) profiles.delete(name);
    for (const node of news.changed ?? []) profiles.set(node.node_id, node);
    roster.value++;
  };
  const load = async () => {
    again = false;
    try {
      const all: Node[] = [];
      let cursor = "";
      do {
        const page = await get("/v1/nodes", { query: { cursor, limit: 1000, connections: false }, signal });
        all.push(...(page.nodes ?? []));
        cursor = page.cursor ?? "";
      } while (cursor);
      profiles.clear();
      for (const node of all) profiles.set(node.node_id, node);
      for (const news of missed ?? []) take(news);
      roster.value++;
      missed = undefined;
      last = Date.now();
      listTrouble.value = undefined;
      if (again) reload();
    } catch (cause) {
      if (signal.aborted) return;
      listTrouble.value = cause instanceof ApiError ? cause : new ApiError("internal", String(cause));
      setTimeout(() => void load(), spread * (1 + Math.random()));
    }
  };
  const reload = () => {
    missed = [];
    const wait = last === 0 ? 0 : Math.max(spread * Math.random(), last + reloadEvery - Date.now());
    setTimeout(() => !signal.aborted && void load(), wait);
  };
  return followTopic("nodes", (frame) => {
    const news = frame.data as News | undefined;
    if (!news) return;
    take(news);
    if (!news.reload) {
      missed?.push(news);
      return;
    }
    if (missed) again = true;
    else reload();
  });
}
