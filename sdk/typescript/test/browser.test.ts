import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Chromium, serveFiles } from "./chromium.ts";
import { System } from "./rig.ts";

test("the browser build works in Chromium", async (t) => {
  const origin = await serveFiles(t, {
    "/": "<!doctype html><title>freeslot</title>",
    "/browser.js": readFileSync(join(import.meta.dirname, "../dist/browser.js"), "utf8"),
  });
  const s = new System(t, { allowed_origins: [origin] });
  const [r1, r2] = [await s.replica(), await s.replica()];
  const node = await s.node([r1, r2]);
  const page = await Chromium.start(t).open(`${origin}/`);
  const urls = JSON.stringify([r1.ws, r2.ws]);

  const echoed = await page.run(`
    globalThis.sdk = await import("/browser.js");
    globalThis.moved = () => {};
    globalThis.client = await sdk.Client.connect(${urls}, {
      token: ${JSON.stringify(s.token)}, minBackoffMs: 10, maxBackoffMs: 100, pingIntervalMs: 200, pingTimeoutMs: 300,
      log: ({ event, host }) => { if (event === "client.connected") { globalThis.at = host; moved(); } },
    });
    const [one] = await client.batch([{ service: "echo", payload: "grüß dich 👋" }]);
    return one.handle.result();
  `);
  assert.equal(echoed, "grüß dich 👋");

  const code = (body: string) => page.run<string>(`try { ${body} } catch (err) { return err.name + " " + err.code }`);
  assert.equal(await code(`await client.run({ service: "fail" })`), "JobFailedError handler_error");
  assert.equal(await code(`await client.submit({ service: "no name" })`), "FreeslotError invalid_argument");
  assert.equal(await code(`await sdk.Client.connect(${urls}, { token: "wrong" })`), "FreeslotError unavailable");
  assert.match(await code(`await client.submit({ service: "echo" }, { signal: AbortSignal.abort() })`), /^AbortError/);

  // A replica that freezes is found by the client's own pings, and one that dies by the end of its connection.
  await page.run(`globalThis.handle = await client.submit({ service: "hold", payload: "a" })`);
  await node.begun("a");
  r1.freeze();
  await page.run(`while (at !== ${JSON.stringify(r2.address)}) await new Promise((next) => { moved = next })`);
  r1.thaw();
  await r2.kill();
  node.release("a");
  assert.equal(await page.run(`return handle.result()`), "a is done");
  await page.run(`globalThis.handle = await client.submit({ service: "hold", payload: "b" })`);
  await page.run(`await client.close()`);
  assert.equal(await code(`await handle.result()`), "ClosedError undefined");
});
