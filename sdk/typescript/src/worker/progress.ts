import { Bell, type Pauses, pause } from "../async.js";
import type { Report } from "./frames.js";

/** The reports of one call. */
const maxReports = 64;

/** The reports of one attempt's handler. */
export interface Reports {
  attempt: string;
  seq: number;
  /** The last report; undefined once it was sent. */
  json: string | undefined;
  /** The time of the handler's call or of its last report. */
  heard: number;
  /** The time at which the next report can be sent. */
  due: number;
  ended: boolean;
}

/** Holds the latest unsent report of each attempt, and sends them with one call under way. */
export class ProgressSender {
  readonly #unsent = new Set<Reports>();
  readonly #bell = new Bell();

  constructor(
    readonly intervalMs: number,
    /** Sends reports; the outcomes are in their order. */
    readonly send: (reports: Report[]) => Promise<void>,
  ) {}

  begin(attempt: string): Reports {
    return { attempt, seq: 0, json: undefined, heard: performance.now(), due: 0, ended: false };
  }

  report(of: Reports, json: string): void {
    if (of.ended) return;
    of.seq++;
    of.heard = performance.now();
    of.json = json;
    this.#unsent.add(of);
    this.#bell.ring();
  }

  /** Drops an unsent report: the end of the job replaces it. */
  end(of: Reports): void {
    of.ended = true;
    this.#unsent.delete(of);
  }

  async run(signal: AbortSignal, pauses: Pauses): Promise<void> {
    for (let wait: number | undefined; ; ) {
      await this.#bell.wait(wait, signal);
      if (signal.aborted) return;
      const now = performance.now();
      const ready = [...this.#unsent].filter((of) => of.due <= now).slice(0, maxReports);
      if (ready.length === 0) {
        const next = Math.min(...[...this.#unsent].map((of) => of.due));
        wait = this.#unsent.size > 0 ? Math.max(next - now, 1) : undefined;
        continue;
      }
      const failed = await this.#sendAll(ready, pauses);
      if (failed !== undefined) await pause(failed, signal); // new reports must not cut it short
      wait = 0; // there may be more
    }
  }

  /** Sends reports, and returns the pause after a failure. */
  async #sendAll(ready: Reports[], pauses: Pauses): Promise<number | undefined> {
    const sent = ready.map((of) => of.seq);
    try {
      await this.send(ready.map((of) => ({ attempt: of.attempt, seq: of.seq, value: JSON.parse(of.json ?? "null") })));
    } catch {
      return pauses.next();
    }
    pauses.reset();
    ready.forEach((of, i) => {
      of.due = performance.now() + this.intervalMs;
      if (of.seq === sent[i]) this.#unsent.delete(of);
    });
    return undefined;
  }
}
