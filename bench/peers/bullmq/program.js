import { createInterface } from 'node:readline';

// main runs one of the roles of a peer's program, by the arguments of the process, and ends with it.
export async function main(roles) {
  const role = roles[process.argv[2]];
  const args = {};
  for (let i = 3; i + 1 < process.argv.length; i += 2) args[process.argv[i].replace(/^-+/, '')] = process.argv[i + 1];
  try {
    if (!role) throw new Error(`usage: ${Object.keys(roles).join('|')} [flags]`);
    await role(args, createInterface({ input: process.stdin, crlfDelay: Infinity }));
  } catch (err) {
    console.error(err);
    process.exit(1);
  }
  process.exit(0);
}
