// Holds jobs on one replica and takes them to another when the first one says goaway.
//
// Input, one JSON line:  {"from": "ws://...", "to": "ws://...", "jobs": [{...}]}
// Output, JSON lines:    {"event": "assigned", "jobs": ["0-..."]}   every job is running
//                        {"event": "goaway", "reason": "..."}
//                        {"event": "refused", "code": "..."}        what a submit after goaway is told
//                        {"event": "attached", "states": ["running", ...]}
//                        {"event": "done", "results": [{job_id, state, via}], "closed": {code, reason}, "detached": n}
import { createInterface } from 'node:readline';
import { Session } from './session.mjs';

const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const fail = (error) => {
  say({ event: 'failed', message: String(error.stack ?? error) });
  process.exit(1);
};
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

const input = createInterface({ input: process.stdin });
const line = await new Promise((resolve) => input.once('line', resolve));
input.close();
process.stdin.destroy();
const plan = JSON.parse(line);

const jobs = []; // ids, in the order of acceptance
const assigned = new Set();
const states = [];
const results = [];
let detached = 0;
let closed = null;
let second = null;

const first = new Session(plan.from, {
  onMessage(message) {
    switch (message.type) {
      case 'accepted':
        jobs.push(message.job_id);
        return;
      case 'assigned':
        assigned.add(message.job_id);
        if (assigned.size === plan.jobs.length) say({ event: 'assigned', jobs });
        return;
      case 'goaway':
        say({ event: 'goaway', reason: message.reason });
        first.send({ type: 'submit', id: 'late', job: plan.jobs[0] });
        return;
      case 'error':
        if (message.id !== 'late') return fail(new Error(JSON.stringify(message)));
        say({ event: 'refused', code: message.code });
        move();
        return;
      case 'detached':
        detached++;
        return;
      case 'result':
        results.push({ job_id: message.job.job_id, state: message.job.state, via: first.welcome.replica });
        finish();
        return;
      default:
        fail(new Error(`unexpected ${JSON.stringify(message)}`));
    }
  },
  onClose(code, reason) {
    closed = { code, reason };
    finish();
  },
});
await first.ready;
plan.jobs.forEach((job, i) => first.send({ type: 'submit', id: `r${i}`, job }));

function move() {
  second = new Session(plan.to, {
    batchFrames: true,
    onMessage(message) {
      switch (message.type) {
        case 'status':
          states.push(message.job.state);
          if (states.length === jobs.length) say({ event: 'attached', states });
          return;
        case 'result':
          results.push({ job_id: message.job.job_id, state: message.job.state, via: second.welcome.replica });
          finish();
          return;
        default:
          fail(new Error(`unexpected ${JSON.stringify(message)}`));
      }
    },
    onClose(code, reason) {
      if (results.length < jobs.length) fail(new Error(`the second session closed with ${code} ${reason}`));
    },
  });
  second.ready.then(() => jobs.forEach((id, i) => second.send({ type: 'attach', id: `a${i}`, job_id: id })));
}

function finish() {
  if (closed === null || results.length < jobs.length) return;
  say({ event: 'done', results, closed, detached });
  second.close();
}
