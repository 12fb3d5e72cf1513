import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/lib/api.ts";
import { subjectFaults, subjectsOf } from "../src/lib/chains.ts";

test("subjects are keys or JSON, and what is neither is a fault at its line", () => {
  const { subjects, lines, faults } = subjectsOf(
    ' user-1 \n\n{"key":"user-2","attributes":{"age":30}}\n{"key":7}\n{"key"\n',
  );
  assert.deepEqual(subjects, [{ key: "user-1" }, { key: "user-2", attributes: { age: 30 } }]);
  assert.deepEqual(lines, [1, 3]);
  assert.deepEqual(
    faults.map((f) => f.line),
    [4, 5],
  );
});

test("a refused subject stands at its line", () => {
  const error = new ApiError("invalid_argument", "bad", "subjects[1].attributes.age", 400, [
    { field: "subjects[1].attributes.age", message: "age is bad" },
    { field: "document", message: "the document is bad" },
  ]);
  assert.deepEqual(
    subjectFaults(error, [1, 3]).map((f) => f.line),
    [3, 0],
  );
});
