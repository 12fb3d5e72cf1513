// A node that speaks with espeak-ng:  node node.js ws://127.0.0.1:7480 my-node.token [node]

import { spawn } from "node:child_process";
import { HandlerError, Worker } from "@freeslot/client/worker";

const [gateway = "ws://127.0.0.1:7480", tokenFile = "my-node.token", node = "my-node"] = process.argv.slice(2);
const voices = { de: "de", en: "en-gb", fr: "fr-fr" };

/** Runs espeak-ng, which writes a WAV file to its output. The signal kills it. */
async function synthesize(text, voice, signal) {
  const child = spawn("espeak-ng", ["-v", voice, "--stdin", "--stdout"], {
    signal,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  child.stdin.on("error", () => {}); // it ended early; its exit code tells
  child.stdin.end(text);
  const parts = await child.stdout.toArray().catch(() => []);
  const code = await ended;
  if (code !== 0) throw new HandlerError("espeak_failed", `espeak-ng exits with ${code}`);
  return Buffer.concat(parts);
}

/** The seconds that a WAV file of espeak-ng plays: 16-bit samples of one channel behind 44 bytes. */
function secondsOf(wav) {
  return (wav.length - 44) / 2 / wav.readUInt32LE(24);
}

const worker = new Worker({ gateway, tokenFile, node, slots: 2, maxResultBytes: 8 << 20 });
worker.service("tts", { version: "1.0.0", languages: { tts: Object.keys(voices) } }, async (job) => {
  const language = job.requirement.target_language?.split("-")[0] ?? "en";
  const { text } = job.payload ?? {};
  if (typeof text !== "string") throw new HandlerError("bad_payload", "payload has no text, expected {text: …}");
  const wav = await synthesize(text, voices[language], job.signal);
  return { wav: wav.toString("base64"), seconds: secondsOf(wav), voice: voices[language] };
});
await worker.run();
