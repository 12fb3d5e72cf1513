// A headless Chromium, driven by the DevTools protocol over pipes.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { TestContext } from "node:test";

interface Reply {
  id?: number;
  // biome-ignore lint/suspicious/noExplicitAny: each method has results of its own
  result?: any;
  error?: { message: string };
}

export class Chromium {
  readonly #child: ChildProcess;
  readonly #profile: string;
  readonly #calls = new Map<number, (reply: Reply) => void>();
  #last = 0;

  private constructor(child: ChildProcess, profile: string) {
    this.#child = child;
    this.#profile = profile;
    let rest = "";
    (child.stdio[4] as Readable).setEncoding("utf8").on("data", (text: string) => {
      const messages = (rest + text).split("\0");
      rest = messages.pop() ?? "";
      for (const message of messages) this.#receive(JSON.parse(message));
    });
  }

  static start(t: TestContext): Chromium {
    const profile = mkdtempSync(join(tmpdir(), "freeslot-chromium-"));
    const flags = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-component-update"];
    if (process.getuid?.() === 0) flags.push("--no-sandbox"); // the sandbox refuses root
    const child = spawn(
      "chromium",
      [...flags, "--autoplay-policy=no-user-gesture-required", `--user-data-dir=${profile}`, "--remote-debugging-pipe"],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
    );
    const chromium = new Chromium(child, profile);
    t.after(() => chromium.#stop());
    return chromium;
  }

  async #stop(): Promise<void> {
    const ended = new Promise((done) => this.#child.once("exit", done));
    void this.call("Browser.close"); // kill would leave its children, which write to the profile
    await ended;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10 });
  }

  #receive(reply: Reply): void {
    const call = this.#calls.get(reply.id ?? 0);
    this.#calls.delete(reply.id ?? 0);
    call?.(reply);
  }

  async call(method: string, params: Record<string, unknown> = {}, sessionId?: string): Promise<Reply["result"]> {
    const id = ++this.#last;
    const answered = new Promise<Reply>((done) => this.#calls.set(id, done));
    (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const { result, error } = await answered;
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  /** Opens a page. */
  async open(url: string): Promise<Page> {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    await this.call("Page.navigate", { url }, sessionId);
    const page = new Page(this, sessionId);
    await page.run(
      `return document.readyState === "complete" || new Promise((done) => addEventListener("load", done))`,
    );
    return page;
  }
}

export class Page {
  readonly #chromium: Chromium;
  readonly #session: string;

  constructor(chromium: Chromium, session: string) {
    this.#chromium = chromium;
    this.#session = session;
  }

  /** Runs the body of an asynchronous function in the page, and returns what it returns. */
  async run<T>(body: string): Promise<T> {
    const expression = `(async () => { ${body} })()`;
    const params = { expression, awaitPromise: true, returnByValue: true, userGesture: true };
    const { result, exceptionDetails } = await this.#chromium.call("Runtime.evaluate", params, this.#session);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value as T;
  }
}

/** Serves files by path, and returns the origin. */
export async function serveFiles(t: TestContext, files: Record<string, string>): Promise<string> {
  const server: Server = createServer((request, response) => {
    const body = files[request.url ?? ""];
    const type = request.url?.endsWith(".js") ? "text/javascript" : "text/html; charset=utf-8";
    response.writeHead(body === undefined ? 404 : 200, { "Content-Type": type }).end(body);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}
