import { signal } from "@preact/signals";

const narrowQuery = matchMedia("(max-width: 720px)");
const darkQuery = matchMedia("(prefers-color-scheme: dark)");

/** Whether the screen is as narrow as a phone's. */
export const narrow = signal(narrowQuery.matches);
/** Whether the system prefers dark colours. */
export const systemDark = signal(darkQuery.matches);

narrowQuery.addEventListener("change", (e) => {
  narrow.value = e.matches;
});
darkQuery.addEventListener("change", (e) => {
  systemDark.value = e.matches;
});
