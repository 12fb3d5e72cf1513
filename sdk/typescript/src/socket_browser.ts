import { CLOSE_BROKEN, CLOSE_NORMAL, type DialOptions, goodbyeMs, Refused, type Socket } from "./socket.js";

/** How often a full buffer is looked at: browsers do not say when it empties. */
const lookMs = 20;

class BrowserSocket implements Socket {
  received = 0;
  #closed = false;
  readonly #ws: WebSocket;
  readonly #options: DialOptions;

  constructor(ws: WebSocket, options: DialOptions) {
    this.#ws = ws;
    this.#options = options;
    ws.onmessage = (event) => {
      if (this.#closed) return;
      this.received++;
      if (typeof event.data !== "string" || event.data.length > options.maxMessageBytes) {
        ws.close(); // the whole message has come already
        this.#end(CLOSE_BROKEN, "the replica sent a frame that is binary or too large");
        return;
      }
      options.onMessage(event.data);
    };
    ws.onclose = (event) => this.#end(event.code, event.reason);
  }

  #end(code: number, reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#options.onClose(code, reason);
  }

  get bufferedAmount(): number {
    return this.#closed ? 0 : this.#ws.bufferedAmount;
  }

  send(text: string): void {
    if (!this.#closed) this.#ws.send(text);
  }

  async drained(below: number): Promise<void> {
    while (this.bufferedAmount >= below) {
      await new Promise((resolve) => setTimeout(resolve, lookMs));
    }
  }

  close(): void {
    this.#ws.close(CLOSE_NORMAL);
    setTimeout(() => this.cut(), goodbyeMs);
  }

  cut(): void {
    this.#ws.close();
    this.#end(CLOSE_BROKEN, "");
  }
}

/** Connects. The token goes into the address: browsers cannot set headers. */
export function dial(options: DialOptions): Promise<void> {
  const url = new URL(options.url);
  url.protocol = url.protocol.replace("http", "ws");
  if (options.token) url.searchParams.set("access_token", options.token);
  return new Promise((resolve, reject) => {
    if (options.signal.aborted) return reject(options.signal.reason);
    const ws = new WebSocket(url, options.protocol);
    const give = () => {
      ws.onopen = ws.onclose = null;
      ws.close();
      reject(options.signal.reason);
    };
    options.signal.addEventListener("abort", give, { once: true });
    ws.onopen = () => {
      options.signal.removeEventListener("abort", give);
      options.onOpen(new BrowserSocket(ws, options));
      resolve();
    };
    ws.onclose = () => {
      options.signal.removeEventListener("abort", give);
      reject(new Refused("the handshake failed; a browser does not say why", 0));
    };
  });
}
