import { Queue, QueueEvents } from 'bullmq';

import { connect, QUEUE } from './common.js';
import { answer, PAYLOAD, pause } from './loop.js';

export async function run(args, lines) {
  const queue = new Queue(QUEUE, { connection: connect(args.redis, args.pipeline === '1'), streams: { events: { maxLen: 100_000 } } });
  const events = new QueueEvents(QUEUE, { connection: connect(args.redis) });
  const submitter = new Submitter(queue, events);
  await queue.waitUntilReady();
  await events.waitUntilReady();
  // QueueEvents reads from "now" on, from its first read: one job shows that it reads.
  await Promise.race([submitter.probe(), pause(10_000).then(() => { throw new Error('no events'); })]);
  await answer(submitter, lines);
  await events.close();
  await queue.close();
}

class Submitter {
  constructor(queue, events) {
    this.queue = queue;
    this.prefix = `${process.pid}-`;
    this.next = 0;
    this.waiting = new Map();
    events.on('error', (err) => console.error(err));
    events.on('completed', ({ jobId, returnvalue }) => this.end(jobId, Number(returnvalue) / 1000));
    events.on('failed', ({ jobId, failedReason }) => this.end(jobId, 0, failedReason));
  }

  end(id, startedUS, err) {
    const done = this.waiting.get(id);
    if (!done) return;
    this.waiting.delete(id);
    done(startedUS, err);
  }

  // probe submits jobs until the result of one comes back.
  async probe() {
    for (let seen = false; !seen; ) {
      this.submit(1, () => { seen = true; });
      await pause(20);
    }
    this.waiting.clear();
  }

  // submit hands in n jobs; done is called once for each with its index. It resolves when they are kept.
  submit(n, done) {
    const jobs = [];
    for (let i = 0; i < n; i++) {
      const jobId = this.prefix + this.next++;
      this.waiting.set(jobId, (startedUS, err) => done(i, startedUS, err));
      jobs.push({ name: 'noop', data: PAYLOAD, opts: { jobId } });
    }
    const added = n === 1 ? this.queue.add(jobs[0].name, jobs[0].data, jobs[0].opts) : this.queue.addBulk(jobs);
    return added.catch((err) => jobs.forEach((j) => this.end(j.opts.jobId, 0, err.message)));
  }
}
