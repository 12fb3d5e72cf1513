import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ClosedError, FreeslotError, JobFailedError, type Progress } from "@freeslot/client";
import { aborted, deferred, eventually, System } from "./rig.ts";

const coded = (code: string, field?: string) => (err: unknown) => {
  assert(err instanceof FreeslotError, `expected a FreeslotError, got ${err}`);
  assert.equal(err.code, code);
  if (field !== undefined) assert.equal(err.field, field);
  return true;
};

test("a job runs, and its result has its type", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  await s.node([r]);
  const client = await s.client([r]);
  const text: string = await client.run<string, string>({ service: "echo", payload: "grüß dich 👋" });
  assert.equal(text, "grüß dich 👋");
  const handle = await client.submit({ service: "echo" });
  assert.equal((await handle.wait()).state, "succeeded");
  assert.equal(await handle.result(), null);
  assert.equal(handle.assignment?.node, "gpu-7");
});

test("refusals and failures have codes", async (t) => {
  const s = new System(t, { heartbeat_interval: "500ms", heartbeat_limit: "1s" });
  const r = await s.replica();
  await s.node([r]);
  const client = await s.client([r]);
  await assert.rejects(client.run({ service: "fail" }), (err) => {
    assert(err instanceof JobFailedError);
    assert.equal(err.code, "handler_error");
    assert.equal(err.status.state, "failed");
    assert.match(err.message, /it broke/);
    return true;
  });
  // For a heartbeat limit after the first start of a system such a node may come back.
  await eventually(() =>
    assert.rejects(client.submit({ service: "unheard-of" }), (err) => {
      coded("no_matching_node")(err);
      assert.deepEqual((err as FreeslotError).breakdown, { service: 1 });
      return true;
    }),
  );
  await assert.rejects(client.submit({ service: "no name" }), coded("invalid_argument", "job.service"));
  await assert.rejects(client.submit({ service: "echo", payload: 1n }), coded("invalid_argument", "job"));
  const large = { service: "echo", payload: "x".repeat(300_000) };
  await assert.rejects(client.submit(large), coded("payload_too_large", "job.payload"));
  await assert.rejects(client.cancel("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"), coded("not_found"));
});

test("a batch goes in frames that the replica takes", async (t) => {
  const s = new System(t, { limits: { max_batch: 7 } });
  const r = await s.replica();
  await s.node([r], { slots: 64 });
  const client = await s.client([r]);
  const jobs = Array.from({ length: 100 }, (_, i) => ({ service: i === 40 ? "no name" : "echo", payload: i }));
  jobs[41] = { service: "echo", payload: "x".repeat(300_000) as unknown as number };
  const submitted = await client.batch<number, number>(jobs);
  for (const [i, { handle, error }] of submitted.entries()) {
    if (i === 40) coded("invalid_argument", "jobs[40].service")(error);
    else if (i === 41) coded("payload_too_large", "jobs[41].payload")(error);
    else assert.equal(await handle?.result(), i);
  }
  await assert.rejects(client.batch([]), coded("invalid_argument", "jobs"));
});

test("a frame that cannot be read costs only the jobs for which it cannot", async (t) => {
  const s = new System(t, { limits: { max_batch: 10 } });
  const r = await s.replica();
  await s.node([r]);
  const client = await s.client([r]);
  const bad: Record<number, [string, unknown]> = { 0: ["slots", "2"], 14: ["priority", null], 15: ["slot", 1] };
  const jobs = Array.from({ length: 25 }, (_, i) => {
    const [field, value] = bad[i] ?? [];
    return { service: "echo", payload: i, ...(field ? { [field]: value } : {}) };
  });
  for (const [i, { handle, error }] of (await client.batch(jobs)).entries()) {
    const [field] = bad[i] ?? [];
    if (!field) assert.equal(await handle?.result(), i);
    else {
      coded("invalid_argument", `jobs[${i}].${field}`)(error);
      assert(String(error).includes(`jobs[${i}].${field} `), String(error));
    }
  }
});

test("connect says why it was refused", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  await assert.rejects(Client.connect(r.ws, { token: "wrong" }), coded("unauthenticated"));
  await assert.rejects(Client.connect(`ws://${await s.unusedAddress()}`), coded("unavailable"));
  await assert.rejects(Client.connect("nonsense"), coded("invalid_argument", "urls"));
  await assert.rejects(Client.connect(`http://${r.address}/healthz`, { token: s.token }), coded("unavailable"));
  const reason = new Error("enough");
  await assert.rejects(Client.connect(r.ws, { token: s.token, signal: AbortSignal.abort(reason) }), reason);
});

test("a killed replica costs no job", async (t) => {
  const s = new System(t);
  const [r1, r2] = [await s.replica(), await s.replica()];
  const node = await s.node([r2]);
  const client = await s.client([r1, r2]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  await r1.kill();
  node.release("a");
  assert.equal(await handle.result(), "a is done");
  assert.equal(await client.run({ service: "echo", payload: "b" }), "b");
  assert.deepEqual(node.runs, ["a"]);
});

test("a replica that stops hands its jobs over", async (t) => {
  const s = new System(t);
  const [r1, r2] = [await s.replica(), await s.replica()];
  const node = await s.node([r2]);
  const told = deferred();
  const client = await s.client([r1, r2], {
    log: ({ event }) => event === "client.told_to_go" && told.resolve(),
  });
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  const stopped = r1.stop();
  await told.promise;
  assert.equal(await client.run({ service: "echo", payload: "b" }), "b");
  await stopped; // the client has closed its session there, or it would wait for its drain timeout
  node.release("a");
  assert.equal(await handle.result(), "a is done");
});

test("a frozen replica is left", async (t) => {
  const s = new System(t);
  const [r1, r2] = [await s.replica(), await s.replica()];
  const node = await s.node([r2]);
  const client = await s.client([r1, r2], { pingIntervalMs: 100, pingTimeoutMs: 300 });
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  r1.freeze();
  const lost = client.submit({ service: "echo", idempotency_key: "b" });
  await assert.rejects(lost, coded("unavailable"));
  node.release("a");
  assert.equal(await handle.result(), "a is done");
});

test("cancel, attach and detach", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const node = await s.node([r]);
  const [a, b] = [await s.client([r]), await s.client([r])];
  const handle = await a.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  assert.equal(await a.attach(handle.id), handle);
  const other = await b.attach(handle.id);
  await assert.rejects(handle.result(), coded("unavailable"));
  assert.equal((await a.cancel(handle.id)).state, "cancelling");
  await assert.rejects(other.result(), (err) => err instanceof JobFailedError && err.code === "cancelled");
  const again = await a.attach(handle.id);
  assert.equal((await again.wait()).state, "cancelled");
  const first = await a.submit({ service: "hold", payload: "c", idempotency_key: "c" });
  assert.equal(await a.submit({ service: "hold", payload: "c", idempotency_key: "c" }), first);
  node.release("c");
  assert.equal(await first.result(), "c is done");
});

test("progress comes until the end", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const next = [deferred(), deferred()];
  const worker = s.worker([r], { progressMs: 10 });
  worker.service("talk", async (job) => {
    job.progress({ done: 1 });
    await next[0]?.promise;
    job.progress({ done: 2 });
    await next[1]?.promise;
    return "all";
  });
  await s.start(worker);
  const client = await s.client([r]);
  const handle = await client.submit({ service: "talk" });
  const seen: Progress<{ done: number }>[] = [];
  for await (const value of handle.progress<{ done: number }>()) {
    seen.push(value);
    next[seen.length - 1]?.resolve();
  }
  assert.deepEqual(
    seen.map(({ attempt, seq, value }) => ({ attempt, seq, value })),
    [
      { attempt: 1, seq: 1, value: { done: 1 } },
      { attempt: 1, seq: 2, value: { done: 2 } },
    ],
  );
  assert.equal(await handle.result(), "all");
  for await (const value of handle.progress()) assert.equal(value.seq, 2); // a late reader gets the latest
});

test("calls can be given up, and the job goes on", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const node = await s.node([r]);
  const client = await s.client([r]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  const control = new AbortController();
  const { signal } = control;
  const waits = [handle.result({ signal }), handle.wait({ signal }), handle.progress({ signal }).next()];
  for (let i = 0; i < 20; i++) waits.push(handle.wait({ signal })); // one signal for many calls is no leak
  control.abort(new Error("enough"));
  for (const wait of waits) await assert.rejects(wait, /enough/);
  await assert.rejects(client.submit({ service: "echo" }, { signal }), /enough/);
  node.release("a");
  assert.equal(await handle.result(), "a is done");
});

test("close ends calls and handles, and is quiet the second time", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const node = await s.node([r]);
  const client = await s.client([r]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  const result = assert.rejects(handle.result(), ClosedError);
  await client.close();
  await result;
  await assert.rejects(client.submit({ service: "echo" }), ClosedError);
  await client.close();
});

test("while there is no connection, calls wait; beyond the bound they fail", async (t) => {
  const s = new System(t);
  const address = await s.unusedAddress();
  const r = await s.replica(address);
  await s.node([await s.replica()]);
  const lost = deferred();
  const client = await s.client([r], {
    maxRequests: 3,
    log: ({ event }) => event === "client.connect_failed" && lost.resolve(),
  });
  await r.kill();
  await lost.promise;
  const waiting = [1, 2, 3].map((payload) => client.run({ service: "echo", payload }));
  await assert.rejects(client.submit({ service: "echo" }), coded("overloaded"));
  assert.match(String(client.failure), /connect to/);
  await s.replica(address);
  assert.deepEqual(await Promise.all(waiting), [1, 2, 3]);
});

test("each connect asks for a token", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const other = await s.replica();
  await s.node([other]);
  const tokens = [s.token, "wrong", s.token];
  const refused = deferred<unknown>();
  const client = await s.client([r, other], {
    token: undefined,
    tokenSource: async () => tokens.shift() ?? s.token,
    log: ({ event, error }) => event === "client.connect_failed" && refused.resolve(error),
  });
  await r.kill();
  coded("unauthenticated")(await refused.promise);
  assert.equal(await client.run({ service: "echo", payload: 1 }), 1);
});

test("many jobs, with replicas that die and come back: each has one result", async (t) => {
  const s = new System(t);
  const addresses = [await s.unusedAddress(), await s.unusedAddress()];
  const replicas = [await s.replica(addresses[0]), await s.replica(addresses[1])];
  await s.node(replicas, { slots: 32 });
  const client = await s.client(replicas);
  const count = 600;
  const results: number[] = [];
  const half = deferred();
  const runs = Array.from({ length: count }, async (_, i) => {
    for (;;) {
      try {
        results.push(await client.run<number, number>({ service: "echo", payload: i, idempotency_key: `k${i}` }));
        if (results.length === count / 2) half.resolve();
        return;
      } catch (err) {
        if (!(err instanceof FreeslotError && err.temporary)) throw err;
        await aborted(AbortSignal.timeout(10));
      }
    }
  });
  await half.promise;
  await replicas[0]?.kill();
  await s.replica(addresses[0]);
  await Promise.all(runs);
  assert.equal(new Set(results).size, count);
  assert.equal(results.length, count);
});
