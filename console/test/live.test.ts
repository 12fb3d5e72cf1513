import assert from "node:assert/strict";
import { test } from "node:test";
import { hold, take, topicOf } from "../src/lib/live.ts";

Object.assign(globalThis, { document: { hidden: false }, requestAnimationFrame: () => 0, WebSocket: { OPEN: 1 } });

test("a view that follows another one keeps their topic", () => {
  const leave = hold("nodes", topicOf("nodes"));
  // The next view is drawn before the former one goes, and wants its topics after that.
  const topic = topicOf("nodes");
  leave();
  const leaveAgain = hold("nodes", topic);
  take({ topic: "nodes", seq: 1, at_ms: 5, data: { nodes: 3 } });
  assert.deepEqual(topic.state.peek()?.data, { nodes: 3 });
  assert.equal(topicOf("nodes"), topic);
  leaveAgain();
  assert.notEqual(topicOf("nodes"), topic);
});

test("the end of an old viewer leaves the topic of a new one", () => {
  const old = topicOf("queues");
  const leaveOld = hold("queues", old);
  leaveOld();
  const topic = topicOf("queues");
  const leave = hold("queues", topic);
  hold("queues", old)();
  assert.equal(topicOf("queues"), topic);
  leave();
});
