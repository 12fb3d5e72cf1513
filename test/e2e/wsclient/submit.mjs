// Submits jobs over several replicas in turn and prints what was told of each.
//
// Input, one JSON line:  {"urls": ["ws://..."], "jobs": [{...}], "concurrency": 64, "batch": 1}
// Output, JSON lines:    {"event": "waiting"}     when the first job is told that it waits
//                        {"event": "done", "answers": [...], "waited": n, "strays": [...], ...}
// Answers are in the order of the jobs: {job_id, replica, accepted, assigned, results, node, state, result}
// or {code, message, breakdown} for a job that was refused. The three middle ones count messages.
import { createInterface } from 'node:readline';
import { Session } from './session.mjs';

const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const fail = (error) => {
  say({ event: 'failed', message: String(error.stack ?? error) });
  process.exit(1);
};
process.on('uncaughtException', fail);

const input = createInterface({ input: process.stdin });
const line = await new Promise((resolve) => input.once('line', resolve));
input.close();
process.stdin.destroy();
const plan = JSON.parse(line);

const answers = plan.jobs.map(() => ({ accepted: 0, assigned: 0, results: 0 }));
const byJob = new Map(); // job_id -> answer
const early = new Map(); // job_id -> messages that came before their accepted
const strays = []; // messages that belong to nothing
let waited = 0; // jobs that were accepted at a position among those that wait
let next = 0;
let open = 0; // jobs submitted and without their end
let finished = 0;
let pongs = 0;

const sessions = plan.urls.map((url, i) => new Session(url, { batchFrames: i % 2 === 1, onMessage, onClose }));
await Promise.all(sessions.map((s) => s.ready));

function submit(index) {
  sessions[index % sessions.length].send({ type: 'submit', id: `r${index}`, job: plan.jobs[index] });
}

function submitBatch(first, count) {
  const jobs = plan.jobs.slice(first, first + count);
  sessions[(first / plan.batch) % sessions.length].send({ type: 'submit', id: `b${first}`, jobs });
}

function fill() {
  const batch = plan.batch ?? 1;
  while (next < plan.jobs.length && open + batch <= plan.concurrency) {
    const count = Math.min(batch, plan.jobs.length - next);
    if (batch === 1) submit(next);
    else submitBatch(next, count);
    next += count;
    open += count;
  }
  if (finished === plan.jobs.length) end();
}

function indexOf(message) {
  const n = Number(message.id.slice(1));
  return message.id[0] === 'b' ? n + message.index : n;
}

function onMessage(message, session) {
  switch (message.type) {
    case 'accepted': {
      const index = indexOf(message);
      const answer = answers[index];
      answer.accepted++;
      answer.job_id = message.job_id;
      answer.replica = session.welcome.replica;
      if (byJob.has(message.job_id)) strays.push({ twice: message });
      byJob.set(message.job_id, answer);
      if (early.has(message.job_id)) strays.push({ early: early.get(message.job_id) });
      if (message.position !== undefined) {
        if (!(message.position > 0)) strays.push({ position: message });
        if (waited++ === 0) say({ event: 'waiting' });
      }
      return;
    }
    case 'assigned': {
      const answer = known(message.job_id, message);
      if (!answer) return;
      answer.assigned++;
      answer.node = message.node;
      answer.attempt = message.attempt;
      if (answer.results > 0) strays.push({ late: message });
      return;
    }
    case 'result': {
      const answer = known(message.job.job_id, message);
      if (!answer) return;
      answer.results++;
      answer.state = message.job.state;
      answer.error = message.job.error;
      answer.result = message.job.result;
      if (answer.node !== message.job.node) strays.push({ elsewhere: message });
      if (answer.results === 1) ended();
      return;
    }
    case 'error': {
      Object.assign(answers[indexOf(message)], { code: message.code, message: message.message, field: message.field, breakdown: message.breakdown });
      ended();
      return;
    }
    case 'pong':
      if (++pongs === sessions.length) done();
      return;
    default:
      strays.push({ unexpected: message });
  }
}

function known(jobID, message) {
  const answer = byJob.get(jobID);
  if (!answer) early.set(jobID, [...(early.get(jobID) ?? []), message]);
  return answer;
}

function ended() {
  finished++;
  open--;
  fill();
}

function onClose(code, reason) {
  if (finished < plan.jobs.length) fail(new Error(`session closed with ${code} ${reason} and ${plan.jobs.length - finished} jobs to go`));
}

function end() {
  // Whatever a replica still has to say about these jobs comes before its pong.
  for (const s of sessions) s.send({ type: 'ping', id: 'last' });
}

function done() {
  say({
    event: 'done', answers, waited, strays,
    replicas: sessions.map((s) => s.welcome.replica), arrays: sessions.map((s) => s.arrays), frames: sessions.map((s) => s.frames),
  });
  for (const s of sessions) s.close();
}

if (plan.jobs.length === 0) fail(new Error('no jobs'));
fill();
