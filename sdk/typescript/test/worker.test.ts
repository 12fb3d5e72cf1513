import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { FreeslotError, type JobFailedError } from "@freeslot/client";
import { HandlerError, type RunningJob, retryable, StopReason } from "@freeslot/client/worker";
import { aborted, deferred, eventually, System } from "./rig.ts";

const coded = (code: string) => (err: unknown) => {
  assert(err instanceof FreeslotError, `expected a FreeslotError, got ${err}`);
  assert.equal(err.code, code, err.message);
  return true;
};

test("a pause that is no number leaves the choice to the worker", () => {
  assert.equal(retryable("not yet", { afterMs: Number.NaN }).afterMs, undefined);
  assert.equal(retryable("not yet", { afterMs: 0 }).afterMs, 0);
});

test("a handler sees its job, and its errors decide what follows", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  let seen: RunningJob | undefined;
  let tries = 0;
  const stacks: unknown[] = [];
  const log = (event: string, fields: Record<string, unknown>) => {
    if (event === "job.handler_failed") stacks.push(fields.stack);
  };
  const worker = s
    .worker([r], { labels: { gpu: "A100" }, log })
    .service("look", { version: "2.1", languages: { tts: ["de"] } }, (job) => {
      seen = job;
    })
    .service("flaky", () => {
      if (++tries < 2) throw retryable(new Error("not yet"), { afterMs: 0 });
      return tries;
    })
    .service("final", () => {
      throw new HandlerError("no_voice", "there is no voice");
    })
    .service("odd", ({ payload }) => {
      if (payload === "message") throw Object.assign(new Error(), { message: undefined });
      if (payload === "retryable") throw retryable(Object.create(null));
      if (payload === "text") throw Object.create(null);
      const { proxy, revoke } = Proxy.revocable({}, {});
      revoke();
      throw proxy;
    })
    .service("circle", () => {
      const loop: { self?: unknown } = {};
      loop.self = loop;
      return loop;
    })
    .service("long", () => "x".repeat(3 << 20));
  await s.start(worker);
  const client = await s.client([r]);
  const requirement = { services: ["look@^2"], target_language: "de-AT", labels: { gpu: "A100" } };
  const handle = await client.submit({ service: "look", payload: [1], requirement, slots: 2 });
  assert.equal(await handle.result(), null);
  assert.deepEqual([seen?.id, seen?.attempt, seen?.slots], [handle.id, 1, 2]);
  assert.deepEqual([seen?.tenant, seen?.payload, seen?.requirement], ["acme", [1], requirement]);
  assert.equal(await client.run({ service: "flaky" }), 2);
  const failure = (service: string, payload?: string) =>
    client.run({ service, payload, max_attempts: 1, timeout_ms: 20_000 }).catch((err: JobFailedError) => err.code);
  assert.equal(await failure("final"), "no_voice");
  for (const thrown of ["message", "retryable", "text", "proxy"]) {
    assert.equal(await failure("odd", thrown), "handler_error", thrown);
  }
  assert.match(String(stacks.shift()), /worker\.test\.ts/);
  assert.deepEqual(stacks, ["the handler threw a value without a text"]);
  assert.equal(await failure("circle"), "handler_error");
  assert.equal(await failure("long"), "result_too_large");
});

test("large payloads and results go beside the connection", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  await s.node([r]);
  const client = await s.client([r]);
  const payload = "ä".repeat(100_000);
  const runs = Array.from({ length: 6 }, () => client.run({ service: "echo", payload }));
  for (const result of await Promise.all(runs)) assert.equal(result, payload);
});

test("a cancelled job ends as cancelled, also before it begins", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  let reason: unknown;
  const events: string[] = [];
  const worker = s.worker([r], { slots: 1, log: (event) => events.push(event) });
  const begun = deferred();
  worker.service("wait", async (job) => {
    begun.resolve();
    await aborted(job.signal);
    reason = job.signal.reason;
    throw new Error("stopped");
  });
  await s.start(worker);
  const client = await s.client([r]);
  const [running, waiting] = [await client.submit({ service: "wait" }), await client.submit({ service: "wait" })];
  await begun.promise;
  await client.cancel(waiting.id);
  assert.equal((await waiting.wait()).state, "cancelled");
  await client.cancel(running.id);
  assert.equal((await running.wait()).state, "cancelled");
  assert(reason instanceof StopReason && reason.reason === "cancelled");
  assert(!events.includes("job.handler_failed"));
});

test("a stop lets jobs end, and hands back the others", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const a = await s.node([r], { slots: 2, stopTimeoutMs: Number.POSITIVE_INFINITY });
  const client = await s.client([r]);
  const first = await client.submit({ service: "hold", payload: "first" });
  const second = await client.submit({ service: "hold", payload: "second" });
  await a.begun("second");
  const stopped = a.worker.stop();
  const b = await s.node([r], { node: "gpu-8" });
  a.release("first");
  b.release("first");
  assert.equal((await first.wait()).attempt, 1);
  assert.equal(await first.result(), "first is done");
  assert.equal(await client.run({ service: "echo", payload: 1 }), 1); // on the other node
  void a.worker.stop({ interrupt: true });
  await b.begun("second");
  await stopped;
  b.release("second");
  assert.equal((await second.wait()).attempt, 2);
  assert.equal((await second.wait()).failures, undefined);
  await a.worker.done();
});

test("run drains at SIGTERM", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  const program = `
    import { Worker } from "@freeslot/client/worker";
    const worker = new Worker({ gateway: "${r.ws}", token: "${s.nodeToken}", node: "gpu-1" });
    let go;
    worker.service("slow", async (job) => {
      console.log("begun");
      await new Promise((resolve) => { go = resolve; });
      return job.attempt;
    });
    process.stdin.on("data", () => go());
    await worker.run();
    console.log("ended");
    process.stdin.destroy();
  `;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    cwd: import.meta.dirname,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exit = new Promise((resolve) => child.once("exit", resolve));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const client = await s.client([r]);
  const handle = await eventually(() => client.submit({ service: "slow" }));
  assert.equal((await lines.next()).value, "begun");
  child.kill("SIGTERM");
  await eventually(async () => {
    await assert.rejects(client.submit({ service: "slow", payload: 2, timeout_ms: 1 }).then((h) => h.result()));
  });
  child.stdin.write("go\n");
  assert.equal(await handle.result(), 1);
  assert.equal((await lines.next()).value, "ended");
  assert.equal(await exit, 0);
});

test("a killed gateway costs no job", async (t) => {
  const s = new System(t);
  const [r1, r2] = [await s.replica(), await s.replica()];
  const moved: string[] = [];
  const node = await s.node([r1, r2], { log: (event) => moved.push(event) });
  const client = await s.client([r1, r2]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  await r1.kill();
  node.release("a");
  assert.equal(await handle.result(), "a is done");
  await s.replica(r1.address);
  await r2.kill();
  const job = { service: "echo", payload: "b", idempotency_key: "b" };
  await eventually(async () => assert.equal(await client.run(job), "b")); // the kill may cost an answer
  assert.deepEqual(node.runs, ["a"]);
});

test("a frozen gateway is left, and a goaway obeyed", async (t) => {
  const s = new System(t);
  const [r1, r2] = [await s.replica(), await s.replica()];
  const moved = deferred<Record<string, unknown>>();
  const node = await s.node([r1, r2], { log: (event, fields) => event === "gateway.moved" && moved.resolve(fields) });
  const client = await s.client([r1, r2]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await node.begun("a");
  const via = await eventually(async () => {
    const seen = [r1, r2].find((r) => r.address === node.worker.gateway);
    if (!seen) throw new Error("the worker is at no gateway");
    return seen;
  });
  const other = via === r1 ? r2 : r1;
  via.freeze();
  assert.equal((await moved.promise).gateway, other.address);
  node.release("a");
  via.thaw();
  assert.equal(await handle.result(), "a is done");
  await other.stop();
  assert.equal(node.worker.gateway, via.address);
  assert.equal(await client.run({ service: "echo", payload: "b" }), "b");
});

test("a second process with the same node ends the first", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  t.mock.method(console, "error", () => {});
  const log = () => {
    throw new Error("there is no log");
  };
  const first = await s.node([r], { log });
  const client = await s.client([r]);
  const handle = await client.submit({ service: "hold", payload: "a" });
  await first.begun("a");
  const second = await s.node([r]);
  await assert.rejects(first.worker.done(), coded("superseded"));
  await second.begun("a");
  second.release("a");
  assert.equal((await handle.wait()).attempt, 2);
});

test("start fails where the node is refused, and waits where no gateway answers", async (t) => {
  const s = new System(t);
  const r = await s.replica();
  await assert.rejects(s.worker([r], { token: "wrong" }).start(), coded("unauthenticated"));
  await assert.rejects(s.worker([r], { node: "cpu-1" }).start(), coded("permission_denied"));
  await assert.rejects(s.worker([await new System(t, { gateway: undefined }).replica()]).start(), coded("not_found"));
  const address = await s.unusedAddress();
  const waiting = deferred();
  const worker = s.worker([address], { log: (event) => event === "node.connect_failed" && waiting.resolve() });
  worker.service("echo", (job) => job.payload);
  const started = worker.start();
  await waiting.promise;
  await s.replica(address);
  await started;
  const client = await s.client([r]);
  await eventually(async () => assert.equal(await client.run({ service: "echo", payload: 1 }), 1));
  const reason = new Error("enough");
  await assert.rejects(s.worker([await s.unusedAddress()]).start({ signal: AbortSignal.abort(reason) }), reason);
});

test("jobs that must not run twice stop when the lease is lost, and those that hang when they stall", async (t) => {
  const s = new System(t, { heartbeat_interval: "1s", heartbeat_limit: "2s" });
  const r = await s.replica();
  const reasons: string[] = [];
  const worker = s.worker([r], { heartbeatMs: 100 });
  const begun = deferred();
  const stopped = deferred();
  worker.service("wait", async (job) => {
    if (job.attempt > 1) return job.attempt;
    begun.resolve();
    await aborted(job.signal);
    reasons.push((job.signal.reason as StopReason).reason);
    stopped.resolve();
    throw job.signal.reason;
  });
  await s.start(worker);
  const client = await s.client([r]);
  const quiet = await client.submit({ service: "wait", progress_timeout_ms: 50 });
  assert(((await quiet.result()) as number) > 1);
  const careful = await client.submit({ service: "wait", on_lease_loss: "cancel" });
  await eventually(() => assert.equal(careful.assignment?.attempt, 1));
  await begun.promise;
  r.freeze();
  await eventually(() => assert.deepEqual(reasons, ["stalled", "lease_lost"]));
  r.thaw();
  assert(((await careful.result()) as number) > 1);
});
