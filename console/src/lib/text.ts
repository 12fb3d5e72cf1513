/** A count with thin spaces between thousands: `12 345`. */
export function count(n: number): string {
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A figure with three significant digits, or none beyond the comma from 100 on. */
export function figure(n: number): string {
  const size = Math.abs(n);
  if (size >= 100 || Number.isInteger(n)) return count(n);
  if (size >= 10) return n.toFixed(1);
  return size < 0.005 ? "0" : n.toFixed(2);
}

/** Bytes in binary units: `1.5 GiB`. */
export function bytes(n: number): string {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  let size = n;
  while (size >= 1024 && i < names.length - 1) {
    size /= 1024;
    i++;
  }
  return `${i === 0 ? size : figure(size)} ${names[i]}`;
}

/** The noun in the form that fits the count: `1 job`, `2 jobs`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Cuts text for a single line. The cut never splits a surrogate pair. */
export function cut(text: string, length = 200): string {
  if (text.length <= length) return text;
  const last = text.charCodeAt(length - 1);
  return `${text.slice(0, last >= 0xd800 && last < 0xdc00 ? length - 1 : length)}…`;
}

/** JSON as people read it. A value that is too long is cut, and says so. */
export function pretty(value: unknown, length = 100_000): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
  return text.length <= length ? text : `${cut(text, length)}\n(${count(text.length)} characters in all)`;
}

/** A severity, a state or a reason as words: `retry_wait` becomes `retry wait`. */
export function words(code: string): string {
  return code.replaceAll("_", " ");
}

/** Quotes an argument for a POSIX shell, if it needs that. */
export function quote(arg: string): string {
  return /^[\w@%+=:,./-]+$/.test(arg) && !arg.startsWith("-") ? arg : `'${arg.replaceAll("'", "'\\''")}'`;
}

/**
 * The schedctl line for a command and its flags. Empty flags are left out, true ones have no value. Arguments that
 * begin with a dash stand behind `--`.
 */
export function schedctl(
  words: string[],
  flags: Record<string, string | number | boolean | undefined> = {},
  args: string[] = [],
): string {
  const line = ["schedctl", ...words];
  for (const [name, value] of Object.entries(flags)) {
    if (value === undefined || value === "" || value === false) continue;
    line.push(value === true ? `--${name}` : `--${name}=${quote(String(value))}`);
  }
  if (args.some((a) => a.startsWith("-"))) line.push("--");
  return [...line, ...args.map(quote)].join(" ");
}

/** The line with the address of the page's replica, unless schedctl asks there by itself. */
export function addressed(line: string, page: string): string {
  const server = page.replace(/\/console\/.*/s, "");
  const known = /^http:\/\/(127\.0\.0\.1|localhost):7480$/.test(server);
  return known ? line : `schedctl --server=${quote(server)}${line.slice("schedctl".length)}`;
}
