// BullMQ as a peer of the benchmark: the same two roles and lines as bench/load has for Go.
//
//   node main.js worker -redis URL -workers 1 -concurrency 64
//   node main.js load -redis URL -pipeline 1
//
// The submitter has one QueueEvents and looks each result up by its job's id. That is what
// job.waitUntilFinished does, without its round trip a job: that one is for jobs that ended before somebody
// listened, and here somebody always does.
import { createInterface } from 'node:readline';

const role = process.argv[2];
const args = {};
for (let i = 3; i + 1 < process.argv.length; i += 2) args[process.argv[i].replace(/^-+/, '')] = process.argv[i + 1];

try {
  if (role === 'worker') await (await import('./worker.js')).run(args, lines());
  else if (role === 'load') await (await import('./load.js')).run(args, lines());
  else throw new Error('usage: worker|load [flags]');
} catch (err) {
  console.error(err);
  process.exit(1);
}
process.exit(0);

// lines are those of standard input; the process ends with it.
function lines() {
  return createInterface({ input: process.stdin, crlfDelay: Infinity });
}
