import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Zone = "local" | "utc";

/** What this browser remembers of its user: nothing but how things look. */
export const theme = signal<Theme>(recall("theme", ["system", "light", "dark"]));
export const zone = signal<Zone>(recall("zone", ["local", "utc"]));

export function startPrefs(): void {
  effect(() => {
    remember("theme", theme.value);
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  });
  effect(() => remember("zone", zone.value));
}

// A browser can forbid storage: then a preference lasts as long as the tab.
function recall<T extends string>(key: string, allowed: readonly [T, ...T[]]): T {
  try {
    const value = localStorage.getItem(`freeslot.${key}`);
    return allowed.find((a) => a === value) ?? allowed[0];
  } catch {
    return allowed[0];
  }
}

function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`freeslot.${key}`, value);
  } catch {}
}
