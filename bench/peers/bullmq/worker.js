import { Worker } from 'bullmq';

import { connect, QUEUE } from './common.js';
import { now } from './loop.js';

export async function run(args, lines) {
  const workers = [];
  for (let i = 0; i < Number(args.workers ?? 1); i++) {
    const worker = new Worker(QUEUE, async () => String(Math.round(now()) * 1000), {
      connection: connect(args.redis),
      concurrency: Number(args.concurrency ?? 64),
    });
    worker.on('error', (err) => console.error(err));
    await worker.waitUntilReady();
    workers.push(worker);
  }
  console.log('ready');
  for await (const line of lines) console.log(`"${line}" is not known`);
  await Promise.all(workers.map((w) => w.close()));
}
