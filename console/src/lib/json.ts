type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

const rawJSON = (JSON as { rawJSON?: (text: string) => unknown }).rawJSON;
/** A run of digits that a number may not hold exactly. Most answers have none, and skip the slow way. */
const long = /\d{16}/;

/**
 * Reads JSON. A whole number beyond 2^53 stays as it is written, for JSON.stringify: ids in payloads are such numbers.
 * In a browser that cannot do that it is rounded.
 */
export function parseJSON(text: string): unknown {
  return rawJSON && long.test(text)
    ? JSON.parse(text, exact as (key: string, value: unknown) => unknown)
    : JSON.parse(text);
}

const exact: Reviver = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? rawJSON?.(context?.source ?? "")
    : value;
