import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Chromium } from "./chromium.ts";
import { System } from "./rig.ts";

const folder = join(import.meta.dirname, "../examples/speech");

/** Starts a program of the example, which ends with the test, and returns the lines that it writes. */
function start(s: System, file: string, args: string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [join(folder, file), ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  s.atEnd(async () => {
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGTERM");
    await ended;
  });
  return createInterface({ input: child.stdout })[Symbol.asyncIterator]();
}

test("the page of the example speaks", async (t) => {
  const origins: string[] = [];
  const s = new System(t, { allowed_origins: origins });
  const replicaAddress = await s.unusedAddress();
  const lines = start(s, "server.js", [`ws://${replicaAddress}`, "0"], { FREESLOT_TOKEN: s.token });
  const [origin] = (await lines.next()).value.split(" ");
  origins.push(origin);
  const r = await s.replica(replicaAddress);
  const token = s.file("speech", s.nodeToken);
  start(s, "node.js", [r.ws, token, "gpu-1"]);
  await s.seen("gpu-1");
  const page = await Chromium.start(t).open(origin);
  const speech = await page.run<{ state: string; seconds: number; played: boolean }>(`
    const state = document.querySelector("#state");
    const audio = document.querySelector("#speech");
    const said = (pattern) => new Promise((done) => {
      const look = () => pattern.test(state.textContent) && done(state.textContent);
      new MutationObserver(look).observe(state, { childList: true, characterData: true, subtree: true });
      look();
    });
    await said(/connected/);
    const playing = new Promise((done) => audio.addEventListener("playing", () => done(true), { once: true }));
    document.querySelector("button").click();
    const text = await said(/of speech|:/);
    return { state: text, played: !/:/.test(text) && await playing, seconds: audio.duration };
  `);
  assert.match(speech.state, /^\d+\.\d s of speech from gpu-1$/);
  assert(speech.played);
  assert(speech.seconds > 1);
});
