import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/lib/api.ts";
import { type Changed, compareLines, faultsOf, parseDocument, places } from "../src/lib/document.ts";

const document = `{
  "enabled": true,
  "pools": [
    {"id": "a"},
    {
      "id": "b",
      "labels": {"zone": "x", "a.b": "{\\"[,:"}
    }
  ]
}`;

test("each value has the line at which it begins", () => {
  const { lines, bad } = places(document);
  assert.equal(bad, 0);
  const want = { enabled: 2, pools: 3, "pools[0]": 4, "pools[1]": 5, "pools[1].id": 6, "pools[1].labels.a.b": 7 };
  for (const [path, line] of Object.entries(want)) assert.equal(lines.get(path), line, path);
});

test("refusals stand at their lines, those of missing fields at what should hold them", () => {
  const error = new ApiError("invalid_argument", "two fields are bad", "config", 400, [
    { field: "config.pools[1].labels.zone", message: "zone is bad" },
    { field: "config.pools[0].services[2]", message: "a service is bad" },
    { field: "version", message: "version is missing" },
  ]);
  assert.deepEqual(
    faultsOf(document, error, "config").map((f) => f.line),
    [0, 4, 7], // in order of lines
  );
  assert.deepEqual(faultsOf(document, new ApiError("conflict", "later", "pools[1].id")), [
    { line: 6, message: "later" },
  ]);
});

test("what is no JSON is a fault at its line", () => {
  const at = (text: string) => parseDocument(text).faults[0]?.line;
  assert.equal(at(document), undefined);
  assert.equal(at(document.replace("true,", "true")), 3);
  assert.equal(at(document.replace('"id": "b"', '"id" "b"')), 6);
  assert.equal(at(document.replace('"id": "b"', '"id": "b')), 6);
  assert.equal(at(`${document}\n}`), 11);
  assert.equal(at(""), 1);
  assert.equal(at(`"${"x".repeat(2_000_000)}`), 1);
});

// The slow twin: the longest common subsequence by the whole table.
function common(a: string[], b: string[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const x of a) {
    const next = [0];
    b.forEach((y, j) => {
      next.push(x === y ? (row[j] as number) + 1 : Math.max(row[j + 1] as number, next[j] as number));
    });
    row = next;
  }
  return row.at(-1) as number;
}

test("a comparison rebuilds both texts with the fewest changes", () => {
  let seed = 7;
  const random = (n: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * n);
  };
  for (let n = 0; n < 400; n++) {
    const make = () => Array.from({ length: 1 + random(12) }, () => "abc"[random(3)] as string);
    const [a, b] = [make(), make()];
    const lines = compareLines(a.join("\n"), b.join("\n"));
    const of = (...kinds: Changed["kind"][]) => lines.filter((l) => kinds.includes(l.kind)).map((l) => l.text);
    assert.deepEqual(of("same", "gone"), a);
    assert.deepEqual(of("same", "new"), b);
    assert.equal(of("same").length, common(a, b), `${a} against ${b}`);
  }
});

test("long whole numbers of a document stay as they are written", () => {
  const text = '{"payload":{"id":12345678901234567890}}';
  // A Node without JSON.rawJSON rounds, as an old browser does.
  const want = "rawJSON" in JSON ? text : JSON.stringify(JSON.parse(text));
  assert.equal(JSON.stringify(parseDocument(text).value), want);
});

test("two texts with nothing in common are all gone and all new", () => {
  const text = (prefix: string) => Array.from({ length: 5000 }, (_, i) => `${prefix}${i}`).join("\n");
  const lines = compareLines(text("a"), text("b"));
  assert.equal(lines.length, 10_000);
});
