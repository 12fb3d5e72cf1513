import { go } from "./route.ts";

/** Keys that a mounted component listens to, such as `j` or `Enter`. */
type Keys = Record<string, (event: KeyboardEvent) => void>;

const layers: Keys[] = [];
let pending = "";
let pendingTimer: ReturnType<typeof setTimeout> | undefined;

/** Adds keys on top of the others, until the returned function is called. */
export function pushKeys(keys: Keys): () => void {
  layers.push(keys);
  return () => {
    const i = layers.indexOf(keys);
    if (i >= 0) layers.splice(i, 1);
  };
}

/** Listens to the whole page. targets maps the second key of `g x` to an address. */
export function startKeys(targets: Record<string, string>): void {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    // A dialog keeps its keys for itself, and so does a field.
    if (document.querySelector("dialog[open]") || typing(event.target)) return;
    if (pending === "g") {
      clearPending();
      const to = targets[event.key];
      if (!to) return;
      event.preventDefault();
      return go(to);
    }
    if (event.key === "g") {
      pending = "g";
      pendingTimer = setTimeout(clearPending, 1500);
      return;
    }
    for (let i = layers.length - 1; i >= 0; i--) {
      const act = layers[i]?.[event.key];
      if (!act) continue;
      // Enter and the space bar belong to the control that has the focus.
      if ((event.key === "Enter" || event.key === " ") && control(event.target)) return;
      event.preventDefault();
      return act(event);
    }
  });
}

function clearPending(): void {
  clearTimeout(pendingTimer);
  pending = "";
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

function control(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("a, button, summary");
}
