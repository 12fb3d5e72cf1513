import { computed, signal } from "@preact/signals";

/** A view's address: the parts of the fragment's path, decoded, and its query. */
export interface Route {
  path: string[];
  query: URLSearchParams;
}

/** Reads a fragment such as `#/jobs/0-01JD?range=1h`. A part that cannot be decoded is taken as it is. */
export function parse(fragment: string): Route {
  const [path = "", query = ""] = split(fragment.replace(/^#?\/?/, ""), "?");
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** Writes the fragment of a path and a query. Empty values of the query are left out. */
export function href(path: string[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) search.set(key, value);
  const tail = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${tail && `?${tail}`}`;
}

function split(text: string, at: string): [string, string] {
  const i = text.indexOf(at);
  return i < 0 ? [text, ""] : [text.slice(0, i), text.slice(i + 1)];
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The fragment that the page follows. */
export const fragment = signal(typeof location === "undefined" ? "" : location.hash);

/** The address on the screen. */
export const route = computed(() => parse(fragment.value));

/** Goes to an address. With replace the browser's history gets no entry of its own. */
export function go(to: string, replace = false): void {
  if (replace) history.replaceState(null, "", to);
  else if (to !== location.hash) history.pushState(null, "", to);
  fragment.value = to;
}

/** Changes the query of the current view, without an entry in the browser's history. */
export function setQuery(change: Record<string, string | undefined>): void {
  const now = route.peek();
  go(href(now.path, { ...Object.fromEntries(now.query), ...change }), true);
}

export function startRouting(): void {
  const read = () => {
    fragment.value = location.hash;
  };
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
}
