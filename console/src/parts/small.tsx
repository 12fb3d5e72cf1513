import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Right, whoMay } from "../lib/rights.ts";
import { addressed, cut, words } from "../lib/text.ts";
import { age, clock, full } from "../lib/time.ts";

/** Text that others wrote: isolated, so that its direction changes nothing around it, and cut with its whole as title. */
export function Text({ value, max = 200 }: { value: string; max?: number }) {
  return (
    <bdi class="text" title={value.length > max ? cut(value, 2000) : undefined}>
      {cut(value, max)}
    </bdi>
  );
}

/** How long ago something was, by Redis' clock, with the time in full as its title. */
export function Age({ at }: { at: number | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time class="age" dateTime={new Date(at).toISOString()} title={full(at)}>
      {age(at, clock.value)}
    </time>
  );
}

/** A state's letter and group. Letters differ, so that colour alone tells nothing. */
const states: Record<string, [letter: string, group: string]> = {
  scheduled: ["S", "idle"],
  waiting: ["W", "wait"],
  moving: ["M", "wait"],
  retry_wait: ["R", "warn"],
  running: ["▶", "run"],
  cancelling: ["◼", "warn"],
  succeeded: ["✓", "good"],
  failed: ["✕", "bad"],
  cancelled: ["–", "idle"],
  expired: ["⌛", "warn"],
  dead: ["†", "bad"],
  lost: ["?", "bad"],
  online: ["✓", "good"],
  draining: ["D", "warn"],
  drained: ["D", "idle"],
  silent: ["!", "bad"],
  paused: ["‖", "warn"],
  unserved: ["!", "bad"],
  critical: ["!", "bad"],
  warning: ["▲", "warn"],
  done: ["✓", "good"],
  unknown: ["?", "warn"],
  planned: ["P", "idle"],
  stopped: ["◼", "warn"],
  ended: ["✓", "good"],
  under_way: ["…", "run"],
  active: ["✓", "good"],
  serves: ["✓", "good"],
  yes: ["✓", "good"],
  no: ["–", "idle"],
  allow: ["✓", "good"],
  deny: ["✕", "bad"],
  variant: ["V", "run"],
  approved: ["✓", "good"],
  served: ["✓", "good"],
  unchanged: ["=", "good"],
  draft: ["D", "idle"],
  editing: ["E", "run"],
  importing: ["I", "run"],
  expanding: ["X", "run"],
  switching: ["S", "run"],
  building: ["B", "run"],
  open: ["O", "run"],
  frozen: ["‖", "warn"],
  deleting: ["✕", "warn"],
  pending: ["P", "warn"],
  in_doubt: ["?", "warn"],
  held: ["?", "warn"],
  lapsed: ["⌛", "idle"],
  conflict: ["!", "bad"],
  rejected: ["✕", "bad"],
  damaged: ["!", "bad"],
  ready: ["✓", "good"],
  ready_in_part: ["▲", "warn"],
  in_part: ["▲", "warn"],
  not_ready: ["!", "bad"],
  not_connected: ["!", "bad"],
  failing: ["✕", "bad"],
  fails: ["✕", "bad"],
  differs: ["≠", "warn"],
  max_running: ["▲", "warn"],
  max_waiting: ["▲", "warn"],
  submit_rate: ["▲", "warn"],
  healthy: ["✓", "good"],
  disabled: ["‖", "idle"],
  guarded: ["▲", "warn"],
  empty: ["–", "idle"],
  free: ["–", "idle"],
  taken: ["L", "run"],
  revoked: ["◼", "warn"],
  kept: ["K", "idle"],
  granted: ["G", "run"],
  not_renewed: ["!", "bad"],
};

export function State({ value }: { value: string }) {
  const [letter, group] = states[value] ?? ["•", "idle"];
  return (
    <span class={`state ${group}`}>
      <span class="letter" aria-hidden="true">
        {letter}
      </span>
      {words(value)}
    </span>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="notice empty">
      <strong>{title}</strong>
      {children && <div class="more">{children}</div>}
    </div>
  );
}

export function Denied({ needs }: { needs: Right }) {
  return (
    <div class="notice denied">
      <strong>Your role may not see this</strong>
      <p>{whoMay(needs)}</p>
    </div>
  );
}

/** Says that what is on the screen is old, and why. */
export function Stale({ since, why }: { since: number; why: string }) {
  return (
    <div class="notice stale" role="status">
      <strong>{since ? <>Last known state, from {<Age at={since} />}</> : "No figures yet"}</strong>
      <p>
        <Text value={why} />
      </p>
    </div>
  );
}

export function Loading({ rows = 3 }: { rows?: number }) {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading</span>
      {Array.from({ length: rows }, () => (
        <span class="bar" aria-hidden="true" />
      ))}
    </div>
  );
}

interface Refusal {
  code: string;
  message: string;
  field?: string;
}

/** What became of a call that failed, in the words of the API. */
export function Failed({ error, again }: { error: Refusal; again?: (() => void) | undefined }) {
  return (
    <div class="notice failed" role="alert">
      <strong>{words(error.code)}</strong>
      <p>
        {error.field && <code>{error.field}</code>} <Text value={error.message} max={600} />
      </p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    // Without https there is no clipboard but by selection; the text can be selected then.
    await navigator.clipboard?.writeText(text);
    setDone(Boolean(navigator.clipboard));
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="copy" aria-label={`Copy ${what}`} onClick={() => void copy()}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}

/** So many characters fit without scrolling, also on a phone. */
const shortLine = 100;

/** The schedctl line that does the same, with the replica to ask. */
export function Command({ line }: { line: string }) {
  const whole = addressed(line, location.href);
  return (
    <div class="command">
      {/* A long line scrolls, and must be reachable by keyboard. */}
      <code dir="ltr" tabIndex={whole.length > shortLine ? 0 : undefined}>
        {whole}
      </code>
      <Copy text={whole} what="the command" />
    </div>
  );
}

/** What may be wider than the window scrolls alone, by keyboard too. */
export function Scroll({ label, short, children }: { label: string; short?: boolean; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <div class={short ? "scroll short" : "scroll"} role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

export interface FactRow {
  name: string;
  value: ComponentChildren;
}

/** Names and values, in two columns. Rows without a value are left out. */
export function Facts({ rows }: { rows: (FactRow | false | undefined | "" | 0)[] }) {
  return (
    <dl class="facts">
      {rows.map(
        (row) =>
          // 0 && … would show as text.
          Boolean(row) &&
          row && (
            <div key={row.name}>
              <dt>{row.name}</dt>
              <dd>{row.value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

export function Panel({
  title,
  aside,
  children,
  wide,
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  wide?: boolean;
}) {
  return (
    <section class={wide ? "panel wide" : "panel"} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** The head of a view that reads a list page by page, with the time of the reading. */
export function Heading({ title, list }: { title: string; list: { at: number; busy: boolean; again: () => void } }) {
  return (
    <header class="bar">
      <h1>{title}</h1>
      <span class="faint">
        {list.at > 0 && (
          <>
            as of <Age at={list.at} />{" "}
          </>
        )}
        <button type="button" onClick={list.again} disabled={list.busy}>
          Refresh
        </button>
      </span>
    </header>
  );
}
