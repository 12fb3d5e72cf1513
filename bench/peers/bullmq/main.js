// BullMQ as a peer of the benchmark: the same two roles and lines as bench/load has for Go.
//
//   node main.js worker -redis URL -workers 1 -concurrency 64
//   node main.js load -redis URL -pipeline 1
//
// The submitter has one QueueEvents and looks each result up by its job's id. That is what
// job.waitUntilFinished does, without its round trip a job: that one is for jobs that ended before somebody
// listened, and here somebody always does.
import { main } from './program.js';

await main({
  worker: async (args, lines) => (await import('./worker.js')).run(args, lines),
  load: async (args, lines) => (await import('./load.js')).run(args, lines),
});
