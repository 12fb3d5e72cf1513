/** From so long without a touch, a key or a wheel on, requests of the page are its own, and not its user's. */
const after = 60_000;

let used = Date.now();

export function startIdle(): void {
  const use = () => {
    used = Date.now();
  };
  for (const event of ["pointerdown", "pointermove", "keydown", "wheel"]) {
    addEventListener(event, use, { capture: true, passive: true });
  }
}

/** Headers of a request: one that says so where the user does nothing, so that the session comes to its idle end. */
export function idleHeaders(): Record<string, string> {
  return Date.now() - used < after ? {} : { "Freeslot-Idle": "1" };
}
