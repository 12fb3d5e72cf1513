import { share, states, unknown } from "./fleet.ts";

/** What a map shows by its colours. */
export const kinds = ["load", "state", "age", "cpu", "memory", "gpu"] as const;
export type Kind = (typeof kinds)[number];

/** The size of a node's tile in the bitmap. The last column and row are the gap to the next one. */
export const tile = 5;

/** Shapes tell states apart without colours: by the code of a state, four rows of four bits. */
const shapes = [0, 0b1111_1111_1111_1111, 0b1111_1110_1100_1000, 0b1111_1001_1001_1111, 0b1001_0110_0110_1001];
/** A node whose figure is not known. */
const unknownShape = 0b0000_0110_0110_0000;
const silent = states.indexOf("silent");

/** Colours of a map, as numbers of its bitmap's pixels. */
export interface Palette {
  scale: Uint32Array;
  /** By the code of a state. */
  state: Uint32Array;
  unknown: number;
}

/** From low to high, ever lighter or ever darker, so that no one needs to see hues. */
const stops = {
  light: ["#6f8fa3", "#3f74a3", "#5b4a9c", "#7a1d5e", "#3d0512"],
  dark: ["#55707f", "#4f86b8", "#9a98e8", "#e79bb8", "#ffe6b3"],
};

export function palette(dark: boolean, token: (name: string) => string): Palette {
  const of = dark ? stops.dark : stops.light;
  const scale = new Uint32Array(101);
  for (let i = 0; i <= 100; i++) {
    const at = (i / 100) * (of.length - 1);
    const k = Math.min(of.length - 2, Math.floor(at));
    const [a, b] = [rgb(of[k] ?? ""), rgb(of[k + 1] ?? "")];
    scale[i] = pixel(a.map((v, n) => Math.round(v + ((b[n] ?? v) - v) * (at - k))));
  }
  const state = Uint32Array.from(["", "--c5", "--c2", "--c6", "--c3"], (name) => (name ? pixel(rgb(token(name))) : 0));
  return { scale, state, unknown: pixel(rgb(token("--c6"))) };
}

function rgb(hex: string): number[] {
  const n = Number.parseInt(hex.trim().slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

// Little-endian, as all machines that browsers run on.
function pixel([r = 0, g = 0, b = 0]: number[]): number {
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

/** What a map needs to know of a node. */
export interface Figures {
  state: number;
  used: number;
  max: number;
  age: number;
  place: number;
}

/** The share that a map shows, from 0 to 100; undefined if it is not known. */
export function value(kind: Kind, n: Figures): number | undefined {
  if (kind === "load") return n.max > 0 ? Math.min(100, Math.round((100 * n.used) / n.max)) : undefined;
  // Ages double with each eighth code; four times the limit of silence is as dark as it gets.
  if (kind === "age") return n.age === unknown ? undefined : Math.min(100, 4 * n.age);
  return kind === "state" ? 0 : share(kind, n.place);
}

/** Draws a node's tile into the pixels of a bitmap, fainter if the node is not meant. */
export function draw(
  pixels: Uint32Array,
  width: number,
  x: number,
  y: number,
  kind: Kind,
  n: Figures,
  p: Palette,
  faint: boolean,
): void {
  const known = value(kind, n);
  const shape = known === undefined && n.state !== silent ? unknownShape : (shapes[n.state] ?? 0);
  let colour =
    (kind === "state" || n.state === silent ? p.state[n.state] : known === undefined ? p.unknown : p.scale[known]) ?? 0;
  if (faint) colour = (colour & 0xffffff) | 0x38000000;
  let bit = 1 << 15;
  for (let row = 0; row < tile - 1; row++) {
    const from = (y * tile + row) * width + x * tile;
    for (let col = 0; col < tile - 1; col++, bit >>= 1) pixels[from + col] = shape & bit ? colour : 0;
  }
}

/** A group of nodes on the map: whole rows, all of the same width. */
export interface Group<R> {
  name: string;
  rows: R[];
  /** The first of its rows on the map, counted over all groups. */
  top: number;
  height: number;
}

const mostGroups = 60;

/** Puts nodes into groups, the groups in the order of their names. Of many the smallest are put together. */
export function arrange<R>(all: R[], name: (row: R) => string, columns: number): Group<R>[] {
  const by = new Map<string, R[]>();
  for (const r of all) {
    const key = name(r);
    const list = by.get(key);
    if (list) list.push(r);
    else by.set(key, [r]);
  }
  let lists = [...by];
  if (lists.length > mostGroups) {
    lists.sort((a, b) => b[1].length - a[1].length);
    const rest = lists.slice(mostGroups - 1);
    lists = lists.slice(0, mostGroups - 1);
    lists.sort(byName);
    lists.push([`${rest.length} smaller groups`, rest.flatMap((l) => l[1])]);
  } else lists.sort(byName);
  let top = 0;
  return lists.map(([key, rows]) => {
    const height = Math.ceil(rows.length / columns);
    const group = { name: key, rows, top, height };
    top += height;
    return group;
  });
}

function byName(a: [string, unknown], b: [string, unknown]): number {
  return a[0] < b[0] ? -1 : 1;
}

/** How wide tiles are so that all fit, in pixels of the screen. */
export function fit(
  counts: number[],
  width: number,
  height: number,
  heading: number,
): { columns: number; size: number } {
  for (const size of [20, 15, 10, 5]) {
    const columns = Math.max(1, Math.floor(width / size));
    const rows = counts.reduce((sum, n) => sum + Math.ceil(n / columns), 0);
    if (rows * size + counts.length * heading <= height) return { columns, size };
  }
  return { columns: Math.max(1, Math.floor(width / 5)), size: 5 };
}
