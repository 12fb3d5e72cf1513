// The real programs: redis-server and scheduler, with tokens for clients and nodes.

import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { after, type TestContext } from "node:test";
import { Client, type ClientOptions } from "@freeslot/client";
import { Worker, type WorkerOptions } from "@freeslot/client/worker";

/** Where the programs are: `make build` puts them into bin/. */
const programs = process.env.FREESLOT_BIN ?? resolve(import.meta.dirname, "../../../bin");
/** A test gives up when nothing has happened for that long. */
const giveUpMs = 60_000;
const lookMs = 10;

const folder = mkdtempSync(join(tmpdir(), "freeslot-typescript-"));
let redis: Promise<{ port: number; child: ChildProcess }> | undefined;
let systems = 0;

after(async () => {
  if (redis) await end((await redis).child, "SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

/** Repeats until it does not throw. */
export async function eventually<T>(look: () => T | Promise<T>): Promise<T> {
  for (const late = Date.now() + giveUpMs; ; ) {
    try {
      return await look();
    } catch (err) {
      if (Date.now() > late) throw err;
    }
    await new Promise((again) => setTimeout(again, lookMs));
  }
}

export function deferred<T = void>() {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((done) => child.once("exit", done));
  child.kill("SIGCONT");
  child.kill(signal);
  await ended;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as { port: number };
  await new Promise((done) => server.close(done));
  return port;
}

async function startRedis(): Promise<{ port: number; child: ChildProcess }> {
  const port = await freePort();
  const child = spawn("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
    if (line.includes("Ready to accept connections")) break;
  }
  child.stdout?.resume();
  return { port, child };
}

export class Replica {
  readonly child: ChildProcess;
  address: string;

  constructor(child: ChildProcess, address: string) {
    this.child = child;
    this.address = address;
  }

  get ws(): string {
    return `ws://${this.address}`;
  }

  /** Waits until the process has ended. */
  kill(): Promise<void> {
    return end(this.child, "SIGKILL");
  }

  stop(): Promise<void> {
    return end(this.child, "SIGTERM");
  }

  freeze(): void {
    this.child.kill("SIGSTOP");
  }

  thaw(): void {
    this.child.kill("SIGCONT");
  }
}

/** A Redis prefix of its own, with tokens. What it starts ends with the test. */
export class System {
  readonly t: TestContext;
  readonly token = `fst_${randomBytes(20).toString("hex")}`;
  readonly nodeToken = `fsn_${randomBytes(20).toString("hex")}`;
  readonly #name = `s${++systems}`;
  readonly #config: Record<string, unknown>;
  /** Clients and workers, which end before the replicas. */
  readonly #ends: (() => Promise<void>)[] = [];
  readonly #started: Replica[] = [];
  readonly #operator = `fsa_${randomBytes(20).toString("hex")}`;
  #replicas = 0;

  constructor(t: TestContext, config: Record<string, unknown> = {}) {
    this.t = t;
    t.after(async () => {
      for (let last = this.#ends.pop(); last; last = this.#ends.pop()) await last();
      await Promise.all(this.#started.map((replica) => replica.kill()));
    });
    const hash = (token: string) => createHash("sha256").update(token).digest("hex");
    this.#config = {
      tokens_file: this.file(
        "tokens",
        `- {name: test, role: client, tenant: acme, sha256: ${hash(this.token)}}\n` +
          `- {name: rig, role: operator, tenant: ops, sha256: ${hash(this.#operator)}}\n`,
      ),
      gateway: {
        tokens_file: this.file("nodes", `- {name: fleet, nodes: ["gpu-*"], sha256: ${hash(this.nodeToken)}}\n`),
      },
      ...config,
    };
  }

  /** Starts a replica and waits until it is ready. */
  async replica(listen = "127.0.0.1:0"): Promise<Replica> {
    redis ??= startRedis();
    const { port } = await redis;
    const id = `r${++this.#replicas}`;
    const config = join(folder, `${this.#name}-${id}.json`);
    writeFileSync(
      config,
      JSON.stringify({
        replica_id: id,
        redis: { url: `redis://127.0.0.1:${port}`, key_prefix: `${process.pid}-${this.#name}` },
        lists: { dir: mkdtempSync(join(folder, "lists-")) },
        ...this.#config,
      }),
      { mode: 0o600 },
    );
    const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith("FREESLOT_")));
    const child = spawn(join(programs, "scheduler"), ["serve", "--listen", listen, "--config", config], {
      env,
      stdio: ["ignore", "ignore", "pipe"],
    });
    const replica = new Replica(child, "");
    this.#started.push(replica);
    const said: string[] = [];
    let address = "";
    for await (const line of createInterface({ input: child.stderr as NodeJS.ReadableStream })) {
      said.push(line);
      if (!line.startsWith("{")) continue; // a refused configuration
      const event = JSON.parse(line);
      if (event.event !== "replica.started") continue;
      address = event.address;
      break;
    }
    child.stderr?.resume();
    if (!address) throw new Error(`the replica did not start:\n${said.join("\n")}`);
    await eventually(async () => {
      const answer = await fetch(`http://${address}/readyz`);
      await answer.arrayBuffer();
      if (!answer.ok) throw new Error(`/readyz answers ${answer.status}`);
    });
    replica.address = address;
    return replica;
  }

  /** An address that a replica can be started at later. */
  async unusedAddress(): Promise<string> {
    return `127.0.0.1:${await freePort()}`;
  }

  async client(replicas: Replica[], options: ClientOptions = {}): Promise<Client> {
    const client = await Client.connect(
      replicas.map((replica) => replica.ws),
      { token: this.token, minBackoffMs: 10, maxBackoffMs: 100, ...options },
    );
    this.#ends.push(() => client.close());
    return client;
  }

  /** A worker that is not started yet. */
  worker(replicas: (Replica | string)[], options: Partial<WorkerOptions> = {}): Worker {
    const worker = new Worker({
      gateway: replicas.map((replica) => (typeof replica === "string" ? `ws://${replica}` : replica.ws)),
      token: this.nodeToken,
      node: "gpu-7",
      slots: 4,
      heartbeatMs: 200,
      maxBackoffMs: 200,
      log: () => {},
      ...options,
    });
    this.#ends.push(() => worker.stop({ interrupt: true }));
    return worker;
  }

  /** Ends something before the replicas. */
  atEnd(end: () => Promise<void>): void {
    this.#ends.push(end);
  }

  /** Writes a file that only this system uses. */
  file(name: string, text: string): string {
    const path = join(folder, `${this.#name}-${name}`);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  /** Starts a worker, and waits until all replicas know its node. */
  async start(worker: Worker, node = "gpu-7"): Promise<void> {
    await worker.start();
    await this.seen(node);
  }

  /** Waits until all replicas know a node. */
  async seen(node: string): Promise<void> {
    for (const { address, child } of this.#started) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      await eventually(async () => {
        const headers = { Authorization: `Bearer ${this.#operator}` };
        const answer = await fetch(`http://${address}/v1/nodes/${node}`, { headers });
        const said = await answer.text();
        if (!answer.ok || JSON.parse(said).status !== "online")
          throw new Error(`${address} does not see ${node}: ${said}`);
      });
    }
  }

  /** Starts a worker with the services that most tests use. */
  async node(replicas: Replica[], options: Partial<WorkerOptions> = {}): Promise<Node> {
    const node = new Node(this.worker(replicas, options));
    await this.start(node.worker, options.node);
    return node;
  }
}

/** Handlers that a test holds and lets go. */
export class Node {
  readonly worker: Worker;
  /** The executions of `hold`, by payload. */
  readonly runs: string[] = [];
  readonly #open = new Set<string>();
  #wake: () => void = () => {};
  #gate = this.#newGate();

  constructor(worker: Worker) {
    this.worker = worker;
    worker
      .service("echo", (job) => job.payload)
      .service("fail", () => {
        throw new Error("it broke");
      })
      .service("hold", async (job) => {
        this.runs.push(job.payload);
        while (!this.#open.has(job.payload)) {
          await Promise.race([this.#gate, aborted(job.signal)]);
          if (job.signal.aborted) throw job.signal.reason;
        }
        return `${job.payload} is done`;
      });
  }

  #newGate(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Waits until a `hold` with this payload runs. */
  begun(payload: string): Promise<void> {
    return eventually(() => {
      if (!this.runs.includes(payload)) throw new Error(`no hold of ${payload} has begun`);
    });
  }

  /** Lets the `hold` with this payload end. */
  release(payload: string): void {
    this.#open.add(payload);
    const wake = this.#wake;
    this.#gate = this.#newGate();
    wake();
  }
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
