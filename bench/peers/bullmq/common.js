import { Redis } from 'ioredis';

export const QUEUE = 'bench';

// connect opens a connection as BullMQ wants it for blocking commands. With autoPipelining ioredis sends the
// commands of one turn of the event loop together.
export function connect(url, autoPipelining = false) {
  return new Redis(url, { maxRetriesPerRequest: null, enableAutoPipelining: autoPipelining });
}
