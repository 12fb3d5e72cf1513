import assert from "node:assert/strict";
import { test } from "node:test";
import { draft, editDraft, startDraft } from "../src/lib/pools.ts";

test("what is typed while the stored document is read anew stays, and a discard takes it back", async () => {
  const answers: (() => void)[] = [];
  Object.assign(globalThis, {
    document: { hidden: false },
    fetch: () =>
      new Promise((answer) => {
        answers.push(() => {
          const text = JSON.stringify({ version: answers.length, config: { enabled: true, pools: [] } });
          answer({ ok: true, status: 200, headers: new Headers(), text: async () => text });
        });
      }),
  });
  const read = async (meanwhile = () => {}) => {
    const done = startDraft();
    meanwhile();
    answers.at(-1)?.();
    await done;
  };
  await read();
  assert.equal(draft.peek()?.version, 1);
  await read(() => editDraft("typed"));
  assert.deepEqual([draft.peek()?.text, draft.peek()?.version], ["typed", 1]);
  await read();
  assert.deepEqual([draft.peek()?.text === draft.peek()?.base, draft.peek()?.version], [true, 3]);
});
