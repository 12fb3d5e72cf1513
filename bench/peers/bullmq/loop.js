// The loops of a load generator in JavaScript, for BullMQ and for this scheduler's client: as bench/load does it in Go.
import { build } from 'hdr-histogram-js';

const QUANTILES = [1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99];
const DRAIN_MS = 60_000;
const LONGEST_US = 60_000_000;
// BATCH_GRID_MS is how often an open loop submits what is due where one call takes many jobs.
const BATCH_GRID_MS = 1;
const MAX_FAILURES = 1000;

export const PAYLOAD = 'x'.repeat(254); // 256 bytes with its quotes
// now is the wall clock in microseconds, with more figures than Date.now has.
export function now() {
  return (performance.timeOrigin + performance.now()) * 1000;
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const histogram = () => build({ lowestDiscernibleValue: 1, highestTrackableValue: LONGEST_US, numberOfSignificantValueDigits: 3 });
const record = (h, us) => h.recordValue(Math.round(Math.min(Math.max(us, 1), LONGEST_US)));
const turn = () => new Promise((resolve) => setImmediate(resolve));

// answer says that the submitter is ready, and answers each request for a window of load. The submitter's method
// submit(n, done) hands in n jobs and calls done(i, startedUS, error) for each; it resolves when they are kept.
export async function answer(submitter, lines) {
  console.log('ready');
  for await (const line of lines) {
    let answer;
    try {
      answer = await serve(submitter, JSON.parse(line));
    } catch (err) {
      answer = { jobs: 0, jobs_per_second: 0, submit_to_start: summary(histogram()), submit_to_result: summary(histogram()), error: String(err) };
    }
    console.log(JSON.stringify(answer));
  }
}

async function serve(submitter, request) {
  const r = { batch: 1, ...request };
  const begin = now();
  const t = {
    open: r.loop === 'open', from: begin + r.warm_up_ms * 1000, start: histogram(), result: histogram(), late: histogram(),
    pending: 0, succeeded: 0, last: 0, failed: {}, failures: 0,
  };
  t.to = t.from + r.measure_ms * 1000;
  if (r.loop === 'closed') await closed(submitter, t, r);
  else if (r.loop === 'open') await open(submitter, t, r);
  else throw new Error(`loop "${r.loop}" is not known`);
  const limit = now() + DRAIN_MS * 1000;
  while (t.pending > 0) {
    if (now() > limit) throw new Error(`jobs are still in flight ${DRAIN_MS} ms after the last submit`);
    await pause(5);
  }
  if (t.failures >= MAX_FAILURES) throw new Error(`${t.failures} jobs failed: ${JSON.stringify(t.failed)}`);
  let windowUS = t.to - t.from;
  if (t.open && t.last > t.to) windowUS = t.last - t.from;
  const figures = {
    jobs: t.result.totalCount, ended: t.succeeded, jobs_per_second: Math.round((t.result.totalCount / windowUS) * 1e7) / 10,
    submit_to_start: summary(t.start), submit_to_result: summary(t.result),
  };
  if (t.open) figures.submitted_late = summary(t.late);
  if (t.failures > 0) figures.failed = t.failed;
  return figures;
}

function ended(t, begin, startedUS, err) {
  t.pending--;
  if (err) {
    t.failed[err] = (t.failed[err] ?? 0) + 1;
    t.failures++;
    return;
  }
  t.succeeded++;
  const end = now();
  const at = t.open ? begin : end;
  if (at < t.from || at >= t.to) return;
  record(t.start, startedUS - begin);
  record(t.result, end - begin);
  t.last = Math.max(t.last, end);
}

function closed(submitter, t, r) {
  const batch = Math.min(r.batch, r.in_flight);
  return new Promise((resolve) => {
    let callers = Math.floor(r.in_flight / batch);
    const next = () => {
      if (now() >= t.to || t.failures >= MAX_FAILURES) {
        if (--callers === 0) resolve();
        return;
      }
      const begin = now();
      let left = batch;
      t.pending += batch;
      submitter.submit(batch, (_, startedUS, err) => {
        ended(t, begin, startedUS, err);
        if (--left === 0) setImmediate(next);
      });
    };
    for (let i = callers; i > 0; i--) next();
  });
}

async function open(submitter, t, r) {
  let calls = 0;
  const most = Math.max(Math.floor((r.in_flight ?? 1) / r.batch), 1); // where a call takes many, as in a closed loop
  let freed = null; // resolves the wait for a call's end
  const begin = now();
  const due = (i) => begin + (i / r.rate_per_second) * 1e6;
  for (let i = 0; due(i) < t.to && t.failures < MAX_FAILURES; ) {
    // Timers count in milliseconds: below one the loop turns instead of sleeping.
    const wait = (due(i) - now()) / 1000;
    if (wait > 1.5) await pause(Math.floor(wait - 1));
    else if (r.batch > 1 && wait > 0) await pause(BATCH_GRID_MS);
    else await turn();
    while (r.batch > 1 && calls >= most) await new Promise((resolve) => { freed = resolve; });
    const moments = [];
    for (const at = now(); due(i) <= at && due(i) < t.to && (r.batch === 1 || moments.length < r.batch); i++) moments.push(due(i));
    for (const m of moments) if (m >= t.from) record(t.late, now() - m);
    t.pending += moments.length;
    while (moments.length > 0) {
      const some = moments.splice(0, r.batch);
      calls++;
      submitter.submit(some.length, (k, startedUS, err) => ended(t, some[k], startedUS, err)).finally(() => {
        calls--;
        if (freed) freed();
      });
    }
  }
}

function summary(h) {
  const out = { count: h.totalCount, mean_us: 0, p50_us: 0, p90_us: 0, p99_us: 0, p999_us: 0, max_us: 0 };
  if (h.totalCount === 0) return out;
  const at = (q) => h.getValueAtPercentile(q);
  return {
    ...out, mean_us: Math.round(h.mean * 10) / 10, p50_us: at(50), p90_us: at(90), p99_us: at(99), p999_us: at(99.9), max_us: h.maxValue,
    curve_us: QUANTILES.map(at),
  };
}
