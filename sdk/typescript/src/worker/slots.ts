import { until } from "../async.js";

/**
 * Hands out slots, first come first served: small requests cannot overtake a large one for ever. A request larger than
 * the size gets its slots when no others are in use.
 */
export class Slots {
  #used = 0;
  #waiters: { n: number; grant: () => void }[] = [];

  constructor(readonly size: number) {}

  async acquire(n: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#waiters.length === 0 && this.#fits(n)) {
      this.#used += n;
      return;
    }
    let waiter: { n: number; grant: () => void } | undefined;
    const granted = new Promise<void>((grant) => {
      waiter = { n, grant };
      this.#waiters.push(waiter);
    });
    try {
      await until(granted, signal);
    } catch (err) {
      const at = this.#waiters.indexOf(waiter as { n: number; grant: () => void });
      if (at >= 0) this.#waiters.splice(at, 1);
      else this.#used -= n; // granted while it gave up
      this.#grant();
      throw err;
    }
  }

  release(n: number): void {
    this.#used -= n;
    this.#grant();
  }

  #fits(n: number): boolean {
    return this.#used === 0 || this.#used + n <= this.size;
  }

  #grant(): void {
    for (let next = this.#waiters[0]; next && this.#fits(next.n); next = this.#waiters[0]) {
      this.#used += next.n;
      this.#waiters.shift();
      next.grant();
    }
  }
}
