import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ageText, followProfiles, Places, profiles, unknown } from "../src/lib/fleet.ts";
import { take } from "../src/lib/live.ts";
import { arrange, draw, fit, palette, tile } from "../src/lib/map.ts";

interface Told {
  place: number;
  state: number;
  name?: string;
  cpu?: number;
}

/** A frame as a replica makes it. */
function frame(nodes: Told[], base = 0, through = 1): Uint8Array {
  const bytes: number[] = [1, base === 0 ? 1 : 0];
  const number = (n: number, size: number) => {
    for (let i = 0; i < size; i++) bytes.push(Math.floor(n / 2 ** (8 * i)) & 255);
  };
  for (const n of [7, 1000, base, through]) number(n, 8);
  for (const n of [4000, 0, nodes.length]) number(n, 4);
  let next = 0;
  for (const n of nodes) {
    let gap = n.place - next;
    for (; gap > 127; gap = Math.floor(gap / 128)) bytes.push((gap & 127) | 128);
    bytes.push(gap);
    next = n.place + 1;
    bytes.push(n.state + (n.name ? 128 : 0));
    if (n.state === 0) continue;
    number(3, 2);
    number(4, 2);
    bytes.push(n.cpu ?? unknown, unknown, unknown, 0);
    if (n.name) bytes.push(1, n.name.length, ...new TextEncoder().encode(n.name));
  }
  return new Uint8Array(bytes);
}

const two = [
  { place: 0, state: 1, name: "node-1" },
  { place: 300, state: 4, name: "node-2", cpu: 50 },
];

test("frames are applied one after the other", () => {
  const p = new Places();
  assert.deepEqual(p.apply(frame(two, 0, 9)), { changed: [0, 300], named: true });
  assert.deepEqual([p.names[300], p.cpu[300], p.used[0], p.max[0], p.cell[0]], ["node-2", 50, 3, 4, 1]);
  assert.deepEqual(p.apply(frame([{ place: 300, state: 1, cpu: 60 }], 9, 12)), { changed: [300], named: false });
  assert.deepEqual([p.state[300], p.cpu[300], p.through], [1, 60, 12]);
  // An older base is right: values are whole.
  p.apply(frame([{ place: 0, state: 0 }], 9, 15));
  assert.deepEqual([p.state[0], p.names[0]], [0, ""]);
  p.apply(frame([{ place: 2, state: 3, name: "x" }], 0, 20));
  assert.deepEqual([p.size, p.names[300]], [3, undefined]);
});

test("hostile frames throw, and change nothing", () => {
  const good = frame(two, 0, 9);
  const set = (at: number, value: number) => {
    const bytes = good.slice();
    bytes[at] = value;
    return bytes;
  };
  const bad: Record<string, Uint8Array> = {
    empty: new Uint8Array(0),
    "another version": set(0, 2),
    "more nodes than there are": set(42, 3),
    "fewer nodes than there are": set(42, 1),
    "a huge count": set(45, 255),
    "an unknown state": set(47, 9),
    "a name without a name": set(57, 0),
    "a long name": set(57, 255),
    markup: set(58, 60),
    "a missing frame": frame([], 99, 100),
    "a node without a name": frame([{ place: 5, state: 1 }], 9, 10),
    "a place that is too far": new Uint8Array([...good.slice(0, 46), 255, 255, 255, 255, 15, 1]),
  };
  for (let i = 1; i < good.length; i++) bad[`cut at ${i}`] = good.slice(0, i);
  for (const [what, bytes] of Object.entries(bad)) {
    const p = new Places();
    p.apply(frame(two, 0, 9));
    const before = JSON.stringify(p);
    assert.throws(() => p.apply(bytes), undefined, what);
    assert.equal(JSON.stringify(p), before, what);
  }
});

test("any bytes behind a head end in a state or an error", () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed;
  };
  for (let n = 0; n < 5000; n++) {
    const bytes = frame(two, 0, 9);
    for (let k = 0; k < 3; k++) bytes[random() % bytes.length] = random() & 255;
    const p = new Places();
    try {
      p.apply(bytes);
    } catch {
      assert.equal(p.size, 0);
    }
    assert.ok(p.size <= 1 << 20);
  }
});

test("ages are told by their codes", () => {
  assert.equal(ageText(0, 4000), "under 4 s");
  assert.equal(ageText(9, 4000), "over 8 s");
  assert.equal(ageText(unknown, 4000), "never");
});

test("groups fill whole rows, and few of them remain", () => {
  const groups = arrange(["b1", "a1", "a2", "a3"], (s) => s[0] ?? "", 2);
  assert.deepEqual(groups, [
    { name: "a", rows: ["a1", "a2", "a3"], top: 0, height: 2 },
    { name: "b", rows: ["b1"], top: 2, height: 1 },
  ]);
  const many = Array.from({ length: 1000 }, (_, i) => i);
  const few = arrange(many, (n) => (n < 100 ? "large" : String(n)), 10);
  assert.equal(few.length, 60);
  assert.equal(few.at(-1)?.name, "842 smaller groups");
  assert.equal(
    few.reduce((sum, g) => sum + g.rows.length, 0),
    1000,
  );
});

test("ten thousand nodes fit a window", () => {
  const { columns, size } = fit([10_000], 1000, 570, 28);
  assert.ok(Math.ceil(10_000 / columns) * size + 28 <= 570, `${columns} columns of ${size}`);
});

test("states differ by shape, and shares by lightness", () => {
  const p = palette(false, () => "#102030");
  const drawn = [1, 2, 3, 4].map((state) => {
    const pixels = new Uint32Array(tile * tile);
    draw(pixels, tile, 0, 0, "state", { state, used: 0, max: 1, age: 0, place: 0 }, p, false);
    return pixels.map((v) => (v ? 1 : 0)).join("");
  });
  assert.equal(new Set(drawn).size, 4);
  for (const dark of [false, true]) {
    const light = [...palette(dark, () => "#000000").scale].map(
      (v) => 0.2126 * (v & 255) + 0.7152 * ((v >> 8) & 255) + 0.0722 * ((v >> 16) & 255),
    );
    for (let i = 1; i < light.length; i++)
      assert.ok(dark ? (light[i] ?? 0) >= (light[i - 1] ?? 0) : (light[i] ?? 0) <= (light[i - 1] ?? 0), `${dark} ${i}`);
  }
});

test("nodes that change too many at a time while all are read are read once more", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const asked: ((names: string[]) => Promise<void>)[] = [];
  const turns = async () => {
    for (let i = 0; i < 20; i++) await Promise.resolve();
  };
  Object.assign(globalThis, {
    document: { hidden: false },
    requestAnimationFrame: () => 0,
    WebSocket: { OPEN: 1 },
    fetch: () =>
      new Promise((answer) => {
        asked.push(async (names) => {
          const text = JSON.stringify({ nodes: names.map((node_id) => ({ node_id })) });
          answer({ ok: true, status: 200, headers: new Headers(), text: async () => text });
          await turns();
        });
      }),
  });
  const stop = new AbortController();
  const leave = followProfiles(stop.signal);
  const reload = async () => {
    take({ topic: "nodes", data: { reload: true } });
    mock.timers.tick(60_000);
    await turns();
  };
  await reload();
  await reload(); // while the first answer is on its way
  await asked[0]?.(["a"]);
  mock.timers.tick(60_000);
  await turns();
  await asked[1]?.(["a", "b"]);
  assert.deepEqual([...profiles.keys()], ["a", "b"]);
  mock.timers.tick(60_000);
  await turns();
  assert.equal(asked.length, 2);
  leave();
  stop.abort();
  mock.timers.reset();
});
