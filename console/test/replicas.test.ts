import assert from "node:assert/strict";
import { test } from "node:test";
import { holders, odd, servers } from "../src/lib/replicas.ts";

test("what most replicas have is not odd", () => {
  assert.deepEqual([...odd([])], []);
  assert.deepEqual([...odd(["1", "1"])], []);
  assert.deepEqual([...odd(["1", "2", "1"])], ["2"]);
  assert.deepEqual([...odd(["1", "2"])], ["1", "2"]);
});

const replica = (name: string, build: string, redis: object[]) => ({
  name,
  build,
  config_version: 1,
  ready: true,
  cpu: null,
  arrivals: null,
  redis: redis as never[],
});

test("servers are those of all replicas, with what differs between them", () => {
  const list = [
    replica("a", "1", [
      {
        address: "x:1",
        cells: [2],
        connected: true,
        role: "master",
        run: "r",
        latency_ms: 1,
        used_bytes: 5,
        max_bytes: 9,
      },
      { cells: [0, 1], connected: false },
    ]),
    replica("b", "2", [
      {
        address: "x:1",
        cells: [2],
        connected: true,
        role: "slave",
        run: "s",
        latency_ms: 3,
        used_bytes: 4,
        max_bytes: 9,
      },
    ]),
    replica("c", "1", [{ address: "x:1", cells: [2], connected: false }]),
  ];
  assert.deepEqual(
    holders(list, (r) => r.build ?? ""),
    [
      ["1", ["a", "c"]],
      ["2", ["b"]],
    ],
  );
  const [first, second] = servers(list);
  assert.deepEqual(first, {
    key: "cells 0 1",
    address: "",
    cells: [0, 1],
    seenBy: ["a"],
    away: ["a"],
    roles: [],
    runs: 0,
    latency: undefined,
    used: undefined,
    max: 0,
  });
  assert.deepEqual(second, {
    key: "x:1",
    address: "x:1",
    cells: [2],
    seenBy: ["a", "b", "c"],
    away: ["c"],
    roles: ["master", "slave"],
    runs: 2,
    latency: [1, 3],
    used: 5,
    max: 9,
  });
});
