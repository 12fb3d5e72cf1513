import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { Client } from "@freeslot/client";
import { Gateway } from "../dist/worker/gateway.js";
import { deferred } from "./rig.ts";

const welcome = {
  type: "welcome",
  protocol: "freeslot.v1",
  session_id: "s",
  replica: "r",
  version: "1",
  max_payload_bytes: 1 << 20,
  max_batch: 10,
  max_frame_bytes: 1 << 20,
};

/** One frame of a server. */
function frame(opcode: number, body: Buffer | string, fin = true): Buffer {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(bytes.length < 126 ? 2 : bytes.length < 1 << 16 ? 4 : 10);
  head[0] = (fin ? 0x80 : 0) | opcode;
  head[1] = head.length === 2 ? bytes.length : head.length === 4 ? 126 : 127;
  if (head.length === 4) head.writeUInt16BE(bytes.length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(bytes.length), 2);
  return Buffer.concat([head, bytes]);
}

/** Answers a handshake. */
function shake(request: IncomingMessage, stream: Duplex, protocol: string): void {
  const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
  stream.on("error", () => {});
  stream.on("end", () => stream.end());
  stream.write(
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
      `Sec-WebSocket-Protocol: ${protocol}\r\nSec-WebSocket-Accept: ${createHash("sha1").update(key).digest("base64")}\r\n\r\n`,
  );
}

/** A server that shakes hands and leaves the frames to the test, one connection after the other. */
async function serve(
  t: TestContext,
  connected: (stream: Duplex, n: number) => void,
  greet: () => void = () => {},
): Promise<string> {
  const server = createServer((_request, response) => {
    response.writeHead(503).end('{"code":"overloaded","message":"full","retry_after_ms":1500}');
  });
  let n = 0;
  server.on("upgrade", (request, stream) => {
    shake(request, stream, "freeslot.v1");
    greet();
    stream.write(frame(1, JSON.stringify(welcome)));
    stream.on("data", (got: Buffer) => got.at(-8) === 0x88 && got.at(-7) === 0x82 && stream.end(frame(8, "")));
    connected(stream, ++n);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `ws://127.0.0.1:${(server.address() as { port: number }).port}`;
}

const accepted = (id: string) => JSON.stringify({ type: "accepted", id: "1", job_id: id });

test("frames come in any pieces", async (t) => {
  const result = JSON.stringify({
    type: "result",
    job: { job_id: "j", state: "succeeded", result: "ä".repeat(70_000) },
  });
  const bytes = Buffer.from(result);
  const all = Buffer.concat([
    frame(9, "ping"),
    frame(1, accepted("j")),
    frame(1, bytes.subarray(0, 51), false), // within a character
    frame(9, ""),
    frame(0, bytes.subarray(51, 70_000), false),
    frame(0, bytes.subarray(70_000)),
  ]);
  for (const step of [1, 7, 1000, all.length]) {
    const url = await serve(t, (stream) => {
      stream.once("data", async () => {
        for (let at = 0; at < all.length; at += step) {
          if (!stream.write(all.subarray(at, at + step))) await new Promise((drained) => stream.once("drain", drained));
        }
      });
    });
    const client = await Client.connect(url);
    assert.equal(await client.run({ service: "x" }), "ä".repeat(70_000));
    const closed = client.close();
    await client.close();
    await closed;
  }
});

test("a frame that breaks the protocol ends the connection, and the client comes back", async (t) => {
  const bad: Record<string, [Buffer, number]> = {
    binary: [frame(2, "x"), 1003],
    "not UTF-8": [frame(1, Buffer.from([0x22, 0xff, 0x22])), 1007],
    "too large": [frame(1, "x".repeat(5_000)), 1009],
    "too large in pieces": [Buffer.concat([frame(1, "x".repeat(3_000), false), frame(0, "x".repeat(3_000))]), 1009],
    masked: [Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0]), 1002],
    "not JSON": [frame(1, "nonsense"), 0],
  };
  for (const [what, [bytes, code]] of Object.entries(bad)) {
    const again = deferred();
    const closed = deferred<number>();
    const url = await serve(t, (stream, n) => {
      if (n > 1) return again.resolve();
      stream.on("data", (got: Buffer) => {
        const end = [...got.subarray(-8)] as [number, number, number, number, number, number, number, number];
        if (end[0] === 0x88) closed.resolve((end[6] ^ end[2]) * 256 + (end[7] ^ end[3]));
      });
      stream.on("close", () => closed.resolve(0));
      stream.write(bytes);
    });
    const client = await Client.connect(url, { maxMessageBytes: 4_096, minBackoffMs: 1 });
    assert.equal(await closed.promise, code, what);
    await again.promise;
    await client.close();
  }
});

test("a refused handshake has the code of its body", async (t) => {
  const url = await serve(t, () => {});
  const server = createServer((_request, response) => {
    response.writeHead(503).end('{"code":"overloaded","message":"full","retry_after_ms":1500}');
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close());
  const full = `ws://127.0.0.1:${(server.address() as { port: number }).port}`;
  await assert.rejects(Client.connect(full), {
    code: "overloaded",
    retryAfterMs: 1500,
    message: /connect to .*: full/,
  });
  const client = await Client.connect([full, url]); // the next address is tried
  await client.close();
});

test("a connect gives up when no welcome comes", async (t) => {
  const server = createServer();
  server.on("connection", (socket) => socket.on("error", () => {}));
  server.on("upgrade", () => {});
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `ws://127.0.0.1:${(server.address() as { port: number }).port}`;
  await assert.rejects(Client.connect(url, { dialTimeoutMs: 20 }), { code: "unavailable" });
});

test("a token that never comes holds neither connect nor close", { timeout: 60_000 }, async (t) => {
  const never = () => new Promise<string>(() => {});
  const broken = deferred<Duplex>();
  const url = await serve(t, (stream) => broken.resolve(stream));
  await assert.rejects(Client.connect(url, { tokenSource: never, dialTimeoutMs: 20 }), { code: "unavailable" });
  const control = new AbortController();
  const connecting = Client.connect(url, { tokenSource: never, signal: control.signal });
  control.abort(new Error("enough"));
  await assert.rejects(connecting, /enough/);
  const asked = deferred();
  let tokens = 0;
  const tokenSource = () => {
    if (tokens++ === 0) return "first";
    asked.resolve();
    return never();
  };
  const client = await Client.connect(url, { tokenSource, minBackoffMs: 1 });
  (await broken.promise).destroy();
  await asked.promise;
  await client.close();
});

test("a welcome that comes late is no sign of a stable connection", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  const url = await serve(
    t,
    (stream) => stream.write(frame(1, '{"type":"goaway"}')),
    () => {
      clock += 60_000;
    },
  );
  const timers = t.mock.method(globalThis, "setTimeout");
  const told = deferred();
  const client = await Client.connect(url, {
    minBackoffMs: 100_000,
    maxBackoffMs: 100_000,
    log: ({ event }) => event === "client.told_to_go" && told.resolve(),
  });
  t.after(() => client.close());
  await told.promise;
  const pauses = timers.mock.calls.map((call) => call.arguments[1] ?? 0).filter((ms) => ms >= 50_000);
  assert.equal(pauses.length, 1, "it comes back at once");
});

test("times beyond those of timers are long ones", async (t) => {
  const warnings: string[] = [];
  const warned = (warning: Error) => warnings.push(warning.name);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const lost = deferred();
  const url = await serve(t, (stream) => stream.destroy());
  const long = 2 ** 40;
  const client = await Client.connect(url, {
    dialTimeoutMs: long,
    minBackoffMs: long,
    maxBackoffMs: long,
    pingIntervalMs: long,
    pingTimeoutMs: long,
    log: ({ event }) => event === "client.disconnected" && lost.resolve(),
  });
  await lost.promise;
  await client.close();
  assert(!warnings.includes("TimeoutOverflowWarning"));
});

test("a log function that fails costs nothing but its lines", async (t) => {
  const said = t.mock.method(console, "error", () => {});
  const fail = () => {
    throw new Error("there is no log");
  };
  for (const log of [fail, async () => fail()]) {
    const again = deferred();
    const url = await serve(t, (stream, n) => (n > 1 ? again.resolve() : stream.destroy()));
    const client = await Client.connect(url, { log, minBackoffMs: 1 });
    await again.promise;
    await client.close();
  }
  assert(said.mock.callCount() >= 4);
});

test("requests wait while the replica reads nothing, and are not sent when given up", async (t) => {
  const sent: Buffer[] = [];
  const stalled = deferred<Duplex>();
  const url = await serve(t, (stream) => {
    stream.pause();
    stalled.resolve(stream);
    stream.on("data", (bytes) => sent.push(bytes));
    stream.pause();
  });
  const client = await Client.connect(url);
  const stream = await stalled.promise;
  const closed = new Promise((ended) => stream.once("close", ended));
  const control = new AbortController();
  const payload = "x".repeat(900_000);
  const submits = Array.from({ length: 50 }, () =>
    client.submit({ service: "x", payload }, { signal: control.signal }),
  );
  const results = Promise.allSettled(submits);
  await new Promise((soon) => setImmediate(soon));
  control.abort(new Error("enough"));
  for (const result of await results) assert.equal(result.status, "rejected");
  stream.resume();
  const ended = client.close();
  stream.end();
  await Promise.all([ended, closed]);
  const bytes = sent.reduce((sum, part) => sum + part.length, 0);
  assert(bytes < 30 * payload.length, `${bytes} bytes were sent`); // the system's buffers take some of them
});

test("the answer to a large spec begins soon, and then has its time", async (t) => {
  const requests = [deferred<ServerResponse>(), deferred<ServerResponse>()];
  let posts = 0;
  const server = createServer((request, response) => {
    request.resume();
    requests[posts++]?.resolve(response);
  });
  server.on("upgrade", (request, stream) => {
    shake(request, stream, "freeslot.node.v1");
    const answers = [
      { type: "welcome", protocol: "freeslot.node.v1", session: "s", heartbeat_limit_ms: 10_000, max_requests: 64 },
      { type: "spec", id: 1, large: true },
      { type: "spec", id: 2, large: true },
    ];
    stream.on("data", (got: Buffer) => {
      const next = got[0] === 0x88 ? undefined : answers.shift();
      stream[next ? "write" : "end"](frame(next ? 1 : 8, next ? JSON.stringify(next) : ""));
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const gateway = new Gateway(
    {
      addresses: [new URL(`ws://127.0.0.1:${(server.address() as { port: number }).port}`)],
      token: async () => "t",
      tokenField: "token",
      node: "gpu-7",
      epoch: "e",
      tls: undefined,
      minBackoffMs: 1,
      maxBackoffMs: 1,
      log: () => {},
    },
    { jobs: () => {}, cancel: () => {}, beat: () => {} },
  );
  t.after(() => gateway.stop());
  await gateway.start(new AbortController().signal);
  const control = new AbortController();
  const frozen = gateway.spec("j", control.signal);
  await requests[0]?.promise;
  t.mock.timers.tick(16_000);
  control.abort(new Error("it waits still"));
  await assert.rejects(frozen, /did not begin in time/);

  const begun = deferred();
  const heard = () => begun.resolve();
  subscribe("http.client.response.finish", heard);
  t.after(() => unsubscribe("http.client.response.finish", heard));
  const slow = gateway.spec("j", new AbortController().signal);
  const response = await requests[1]?.promise;
  response?.write('{"type":"spec",');
  await begun.promise;
  t.mock.timers.tick(100_000);
  response?.end('"job":{"service":"x"}}');
  assert.deepEqual((await slow).job, { service: "x" });
});
