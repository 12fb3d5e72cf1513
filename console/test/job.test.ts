import assert from "node:assert/strict";
import { test } from "node:test";
import { linksOf } from "../src/lib/links.ts";
import { mends } from "../src/lib/mend.ts";
import { type Course, timeline } from "../src/lib/timeline.ts";

const job: Course = { state: "waiting", node: "", attempt: 0, submitted_at_ms: 1000, assigned_at_ms: 0 };

function brief(course: Course, nowMS = 10_000): string[] {
  return timeline(course, nowMS).map((s) => `${s.kind} ${s.state} ${s.from}-${s.to}`);
}

test("a timeline has a segment for each wait and attempt", () => {
  assert.deepEqual(brief(job), ["wait waiting 1000-10000"]);
  assert.deepEqual(brief({ ...job, state: "running", node: "n", attempt: 1, assigned_at_ms: 3000 }), [
    "wait waiting 1000-3000",
    "run running 3000-10000",
  ]);
  const attempts = [
    { attempt: 1, node: "a", began_at_ms: 2000, ended_at_ms: 3000, ended: "failed", code: "oom" },
    { attempt: 2, node: "b", began_at_ms: 4000, ended_at_ms: 6000, ended: "lost" },
  ];
  const dead: Course = {
    ...job,
    state: "dead",
    node: "b",
    attempt: 2,
    assigned_at_ms: 4000,
    finished_at_ms: 6000,
    attempts,
  };
  assert.deepEqual(brief(dead, 0), [
    "wait waiting 1000-2000",
    "run failed 2000-3000",
    "wait retry_wait 3000-4000",
    "run lost 4000-6000",
  ]);
  const well: Course = { ...dead, state: "succeeded", attempt: 3, assigned_at_ms: 7000, finished_at_ms: 8000 };
  assert.deepEqual(brief(well, 0).slice(-2), ["wait retry_wait 6000-7000", "run succeeded 7000-8000"]);
  assert.deepEqual(brief({ ...dead, state: "retry_wait", finished_at_ms: 0 }).at(-1), "wait retry_wait 6000-10000");
});

test("no segment is negative, whatever the record says", () => {
  const attempts = [
    { attempt: 3, node: "a", began_at_ms: 500, ended_at_ms: 400, ended: "failed" },
    { attempt: 4, node: "a", began_at_ms: 0, ended_at_ms: 2000, ended: "failed" },
  ];
  const segments = timeline(
    { ...job, state: "dead", attempt: 4, assigned_at_ms: 100, finished_at_ms: 1500, attempts },
    0,
  );
  let at = job.submitted_at_ms;
  for (const s of segments) {
    assert.equal(s.from, at);
    assert.ok(s.to >= s.from, `${s.label} ends at ${s.to}; want ${s.from} or later`);
    at = s.to;
  }
});

const placement = { fits: 1, qualify: 0, total: 3, max_slots: 1, breakdown: {}, nodes: [] };
const waits = { state: "waiting", service: "tts", tenant: "acme" };

test("each planted reason has its mend", () => {
  const texts = (w: Parameters<typeof mends>[0]) => mends(w).map((m) => m.text);
  assert.deepEqual(mends({ job: waits, placement: { ...placement, paused_by: "service tts" } })[0]?.call, {
    do: "resume",
    kind: "service",
    name: "tts",
  });
  const pool = [{ node: "n1", fits: true, reason: "paused", detail: "pool eu is paused", pools: ["eu", "us"] }];
  assert.deepEqual(mends({ job: waits, placement: { ...placement, nodes: pool } })[0]?.call, {
    do: "resume",
    kind: "pool",
    name: "eu",
  });
  const draining = [{ node: "n1", fits: true, reason: "draining", detail: "takes no new jobs" }];
  assert.deepEqual(mends({ job: waits, placement: { ...placement, nodes: draining } })[0]?.call, {
    do: "undrain",
    node: "n1",
  });
  assert.match(texts({ job: { ...waits, held_by: "max_running" }, placement })[0] ?? "", /max_running/);
  assert.match(texts({ job: { ...waits, held_by: "concurrency_key" }, placement })[0] ?? "", /concurrency_key/);
  const old = [{ node: "n1", fits: false, reason: "service_version", detail: "tts is 1.0, expected >=2" }];
  const none = { ...placement, fits: 0, nodes: old, breakdown: { service: 2, service_version: 1 } };
  assert.match(
    texts({ job: waits, placement: none })[0] ?? "",
    /1 of 3 nodes fail by service version.*n1: tts is 1\.0/,
  );
  assert.deepEqual(mends({ job: { ...waits, state: "running" } }), []);
});

test("a link has the job's values, escaped, and is left out where one lacks", () => {
  const of = { job_id: "0-1", node: "", tenant: "a/../b?c#d", service: 'x"<y>', attempt: 2, trace: "0af7" };
  const links = [
    { name: "Trace", url: "https://t.example/trace/{trace}" },
    { name: "Log", url: "http://l.example/?q={tenant}+{service}&n={attempt}&j={id}" },
    { name: "Node", url: "https://n.example/{node}" },
    { name: "Script", url: "javascript:alert({id})" },
  ];
  assert.deepEqual(linksOf(links, of), [
    { name: "Trace", url: "https://t.example/trace/0af7" },
    { name: "Log", url: "http://l.example/?q=a%2F..%2Fb%3Fc%23d+x%22%3Cy%3E&n=2&j=0-1" },
  ]);
  assert.deepEqual(linksOf(undefined, of), []);
});
