// The TypeScript SDK as a peer of the benchmark: the same two roles and lines as bench/load has for Go.
//
//   node main.js worker -gateway URL,... -token T -slots 16
//   node main.js load -ws URL,... -sessions 1
//
// It runs what the SDK's build has made, as its users do.
import { Client } from '../../../sdk/typescript/dist/index.js';
import { Worker } from '../../../sdk/typescript/dist/worker/index.js';
import { answer, now, PAYLOAD } from '../bullmq/loop.js';
import { main } from '../bullmq/program.js';

const SERVICE = 'noop';

class Submitter {
  constructor(clients) {
    this.clients = clients;
    this.turn = 0;
  }

  async submit(n, done) {
    const client = this.clients[this.turn++ % this.clients.length];
    const job = { service: SERVICE, payload: PAYLOAD };
    const sent = n === 1 ? client.submit(job).then((handle) => [{ handle }]) : client.batch(Array(n).fill(job));
    const submitted = await sent.catch((error) => Array(n).fill({ error }));
    submitted.forEach(async ({ handle, error }, i) => {
      try {
        if (error) throw error;
        done(i, Number(await handle.result()) / 1000);
      } catch (err) {
        done(i, 0, err.code ?? err.message);
      }
    });
  }
}

async function load(args, lines) {
  const urls = args.ws.split(',');
  const clients = [];
  for (let i = 0; i < Number(args.sessions ?? 1); i++) clients.push(await Client.connect(urls[i % urls.length]));
  await answer(new Submitter(clients), lines);
  await Promise.all(clients.map((client) => client.close()));
}

async function work(args, lines) {
  const { gateway, token, slots = 16 } = args;
  const worker = new Worker({ gateway, token, node: `bench-${process.pid}-1`, slots: Number(slots) });
  worker.service(SERVICE, async () => String(Math.round(now()) * 1000));
  await worker.start();
  console.log('ready');
  for await (const line of lines) console.log(`"${line}" is not known`);
  await worker.stop();
}

await main({ worker: work, load });
