import type { ApiError } from "./api.ts";
import { parseJSON } from "./json.ts";

/** What is wrong with a document, and in which of its lines, counted from 1. Line 0: somewhere. */
export interface Fault {
  line: number;
  message: string;
}

/**
 * The line of each value of a JSON text by its path, such as `pools[1].labels.zone`, and the line of the first token
 * that JSON does not allow there, 0 without one.
 */
export function places(text: string): { lines: Map<string, number>; bad: number } {
  const lines = new Map<string, number>();
  const token = /\s*("(?:[^"\\\n]+|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+|.)/y;
  let line = 1;
  let at = 0;
  const next = (): string | undefined => {
    token.lastIndex = at;
    const match = token.exec(text);
    if (!match) return undefined;
    line += match[0].split("\n").length - 1;
    at = token.lastIndex;
    return match[1];
  };
  // Returns false where the text is no JSON from there on.
  const value = (path: string, first: string | undefined): boolean => {
    lines.set(path, line);
    if (first === "{" || first === "[") return inside(path, first);
    return first !== undefined && whole(first);
  };
  const inside = (path: string, open: string): boolean => {
    const close = open === "{" ? "}" : "]";
    let t = next();
    if (t === close) return true;
    for (let n = 0; ; n++) {
      let below = `${path}[${n}]`;
      if (open === "{") {
        if (!t?.startsWith('"') || !whole(t)) return false;
        const key = JSON.parse(t) as string;
        below = path ? `${path}.${key}` : key;
        if (next() !== ":") return false;
        t = next();
      }
      if (!value(below, t)) return false;
      t = next();
      if (t === close) return true;
      if (t !== ",") return false;
      t = next();
    }
  };
  const good = value("", next()) && next() === undefined;
  return { lines, bad: good ? 0 : line };
}

function whole(token: string): boolean {
  try {
    JSON.parse(token);
    return true;
  } catch {
    return false;
  }
}

/** Reads a JSON text, long whole numbers exactly. What is no JSON is a fault at its line. */
export function parseDocument(text: string): { value?: unknown; faults: Fault[] } {
  try {
    return { value: parseJSON(text), faults: [] };
  } catch {
    return {
      faults: [
        { line: places(text).bad, message: "This is no JSON: a comma, a quote or a bracket is missing or too many" },
      ],
    };
  }
}

/** The API's refusal of a document, in order of its lines. prefix is what the API puts before the document's own paths. */
export function faultsOf(text: string, error: ApiError, prefix = ""): Fault[] {
  const { lines } = places(text);
  const all = error.errors.length > 0 ? error.errors : [{ field: error.field, message: error.message }];
  const faults = all.map(({ field, message }) => {
    let path = field.startsWith(`${prefix}.`) ? field.slice(prefix.length + 1) : field;
    // A field that is missing has no line; what should hold it has.
    while (path && !lines.has(path)) path = path.replace(/(^|\.)[^.[]*$|\[[^.[]*$/, "");
    return { line: path ? (lines.get(path) ?? 0) : 0, message };
  });
  return faults.sort((a, b) => a.line - b.line);
}

/** A line of a comparison: in both texts, only in the one before, or only in the one after. */
export interface Changed {
  kind: "same" | "gone" | "new";
  text: string;
}

/** Beyond this many changed lines everything between the first and the last one counts as changed. */
const mostEdits = 500;

/** Compares two texts line by line (Myers' algorithm). */
export function compareLines(before: string, after: string): Changed[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const same = (lines: string[]): Changed[] => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(a.slice(0, head)),
    ...edits(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ];
}

function edits(a: string[], b: string[]): Changed[] {
  const trace: Map<number, number>[] = [];
  let far = new Map<number, number>([[1, 0]]);
  for (let d = 0; d <= Math.min(a.length + b.length, mostEdits); d++) {
    trace.push(new Map(far));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1));
      let x = down ? (far.get(k + 1) ?? 0) : (far.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      far.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkBack(a, b, trace);
    }
    far = new Map(far);
  }
  const all = (kind: Changed["kind"], lines: string[]): Changed[] => lines.map((text) => ({ kind, text }));
  return [...all("gone", a), ...all("new", b)];
}

function walkBack(a: string[], b: string[], trace: Map<number, number>[]): Changed[] {
  const back: Changed[] = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const far = trace[d] as Map<number, number>;
    const k = x - y;
    const down = k === -d || (k !== d && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1));
    const beforeX = d === 0 ? 0 : down ? (far.get(k + 1) ?? 0) : (far.get(k - 1) ?? 0);
    const beforeY = d === 0 ? 0 : beforeX - (down ? k + 1 : k - 1);
    while (x > beforeX && y > beforeY) {
      back.push({ kind: "same", text: a[--x] as string });
      y--;
    }
    if (d === 0) break;
    if (down) back.push({ kind: "new", text: b[--y] as string });
    else back.push({ kind: "gone", text: a[--x] as string });
  }
  return back.reverse();
}
