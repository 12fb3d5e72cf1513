/** Pauses between attempts: exponential, with jitter, so that clients do not come back in step. */
export class Pauses {
  #next: number;

  constructor(
    readonly min: number,
    public max: number,
  ) {
    this.#next = min;
  }

  next(): number {
    const pause = Math.min(this.#next, this.max) * (0.5 + Math.random());
    this.#next = Math.min(this.#next * 2, this.max);
    return pause;
  }

  reset(): void {
    this.#next = this.min;
  }
}

/** A promise that is resolved once. */
export class Latch {
  done = false;
  readonly opened: Promise<void>;
  #resolve!: () => void;

  constructor() {
    this.opened = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  open(): void {
    this.done = true;
    this.#resolve();
  }
}

/** Waits for the promise, or fails with the signal's reason. */
export function until<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const give = () => reject(signal.reason);
    signal.addEventListener("abort", give, { once: true });
    if (signal.aborted) give();
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", give));
  });
}

/** Waits, and returns true after that time, or false as soon as one of the signals is aborted. */
export function pause(ms: number, ...signals: AbortSignal[]): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (whole: boolean) => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener("abort", cut);
      resolve(whole);
    };
    const cut = () => end(false);
    const timer = setTimeout(() => end(true), Math.min(ms, longestTimer));
    for (const signal of signals) {
      if (signal.aborted) return cut();
      signal.addEventListener("abort", cut, { once: true });
    }
  });
}

/** Wakes one waiting loop; rings that come while it is busy are one. */
export class Bell {
  #rung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Waits for a ring, for that time, or for the signal. It returns true after a ring. */
  async wait(ms: number | undefined, signal: AbortSignal): Promise<boolean> {
    if (!this.#rung && !signal.aborted) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      let wake = () => {};
      await new Promise<void>((resolve) => {
        this.#wake = wake = resolve;
        if (ms !== undefined) timer = setTimeout(resolve, Math.min(ms, longestTimer));
        signal.addEventListener("abort", wake, { once: true });
      });
      signal.removeEventListener("abort", wake);
      clearTimeout(timer);
      this.#wake = undefined;
    }
    const rung = this.#rung;
    this.#rung = false;
    return rung;
  }
}

/** A longer timer fires at once. */
export const longestTimer = 2 ** 31 - 1;
