import assert from "node:assert/strict";
import { test } from "node:test";
import { address, utf8Header } from "../src/lib/api.ts";
import { columns, fromTable, merge, newest } from "../src/lib/history.ts";
import { parseJSON } from "../src/lib/json.ts";
import { href, parse } from "../src/lib/route.ts";
import { addressed, bytes, count, cut, figure, quote, schedctl } from "../src/lib/text.ts";
import { age, full, inZone, moment, span } from "../src/lib/time.ts";

test("spans have at most two units", () => {
  const want: [number, string][] = [
    [0, "0 ms"],
    [999, "999 ms"],
    [1000, "1 s"],
    [3210, "3.2 s"],
    [9949, "9.9 s"],
    [9999, "10 s"],
    [59_999, "1 min"],
    [250_000, "4 min 10 s"],
    [3_600_000, "1 h"],
    [183_600_000, "2 d 3 h"],
    [-1500, "-1.5 s"],
  ];
  for (const [ms, text] of want) assert.equal(span(ms), text);
});

test("ages tell past from future", () => {
  assert.equal(age(1000, 1900), "now");
  assert.equal(age(0, 12_400), "12 s ago");
  assert.equal(age(0, 3 * 60_000), "3 min ago");
  assert.equal(age(90_000, 0), "in 1 min");
  assert.equal(age(0, 9 * 86_400_000), "9 d ago");
});

test("whole numbers beyond 2^53 stay as they are", () => {
  const text = '{"id":9007199254740993,"deep":[-12345678901234567890,0.1234567890123456789],"at":1764353000000}';
  // A Node without JSON.rawJSON rounds, as an old browser does.
  const want = "rawJSON" in JSON ? text.replace("0.1234567890123456789", "0.12345678901234568") : undefined;
  assert.equal(JSON.stringify(parseJSON(text)), want ?? JSON.stringify(JSON.parse(text)));
  assert.deepEqual(parseJSON('{"a":[1,"x",null]}'), { a: [1, "x", null] });
  assert.throws(() => parseJSON('{"a":1234567890123456'));
});

test("moments leave out today's date", () => {
  const noon = Date.UTC(2026, 1, 3, 12, 30, 5);
  assert.equal(moment(noon, "utc", noon + 1000), "12:30:05");
  assert.equal(moment(noon, "utc", noon + 86_400_000), "2026-02-03 12:30:05");
  assert.equal(full(noon, "utc"), "2026-02-03 12:30:05 UTC");
  assert.equal(inZone(noon, "Asia/Kolkata"), "2026-02-03 18:00:05");
  assert.equal(inZone(noon, "Mars/Olympus"), "unknown");
  assert.equal(moment(Number.NaN, "utc", noon), " unknown");
});

test("a fragment says what it was made from", () => {
  for (const path of [[], ["jobs"], ["jobs", "0-01J/%2F?#ä"], ["nodes", "a b"]]) {
    for (const query of [{}, { state: "dead", service: "a&b=c ü" }]) {
      const route = parse(href(path, query));
      assert.deepEqual(route.path, path);
      assert.deepEqual(Object.fromEntries(route.query), query);
    }
  }
  assert.equal(href(["jobs"], { state: "", tenant: undefined }), "#/jobs");
  assert.deepEqual(parse("#/jobs/%zz").path, ["jobs", "%zz"]);
});

test("live points replace those of the same time, and old ones go", () => {
  const history = fromTable({
    step_ms: 2000,
    columns: ["t_ms", "a", "b"],
    rows: [
      [4000, 3, null],
      [2000, 1, 2],
    ],
  });
  assert.deepEqual(history.times, [2000, 4000]);
  const merged = merge(
    history,
    {
      columns: ["t_ms", "b", "c"],
      rows: [
        [4000, 5, 6],
        [6000, 7, 8],
      ],
    },
    3000,
  );
  assert.deepEqual(merged, {
    step: 2000,
    times: [4000, 6000],
    series: { a: [null, null], b: [5, 7], c: [6, 8] },
  });
});

test("a hole in time is a gap", () => {
  const history = fromTable({
    step_ms: 2000,
    columns: ["t_ms", "a"],
    rows: [
      [2000, 1],
      [4000, 2],
      [20_000, 3],
    ],
  });
  assert.deepEqual(columns(history, ["a", "none"], 0, 60_000), [
    [2, 4, 6, 20],
    [1, 2, null, 3],
    [null, null, null, null],
  ]);
  assert.deepEqual(columns(history, ["a"], 3000, 5000), [[4], [2]]);
  assert.deepEqual(newest(history), { a: 3 });
  assert.deepEqual(newest(merge(history, { columns: ["t_ms", "b"], rows: [[26_000, 7]] }, 0)), { a: 3, b: 7 });
});

test("a schedctl line means the same to a shell", () => {
  assert.equal(quote("0-01JD5Y8G6W"), "0-01JD5Y8G6W");
  assert.equal(quote("it's; rm -rf /"), "'it'\\''s; rm -rf /'");
  assert.equal(quote(""), "''");
  assert.equal(quote("two\nlines"), "'two\nlines'");
  assert.equal(
    schedctl(["list"], { state: "dead", tenant: "", service: "a b", all: true, no: false, limit: 5 }),
    "schedctl list --state=dead --service='a b' --all --limit=5",
  );
  assert.equal(schedctl(["nodes", "drain"], { reason: "" }, ["-x"]), "schedctl nodes drain -- '-x'");
});

test("a schedctl line asks the page's replica", () => {
  const at = (page: string) => addressed("schedctl list -- -x", page);
  assert.equal(at("http://127.0.0.1:7480/console/#/jobs"), "schedctl list -- -x");
  assert.equal(at("http://localhost:7480/console/"), "schedctl list -- -x");
  assert.equal(at("http://127.0.0.1:7481/console/"), "schedctl --server=http://127.0.0.1:7481 list -- -x");
  assert.equal(at("https://x.example/a'b/console/#/"), "schedctl --server='https://x.example/a'\\''b' list -- -x");
});

test("figures are short", () => {
  assert.equal(count(1_234_567), "1\u202f234\u202f567");
  assert.equal(figure(0.1234), "0.12");
  assert.equal(figure(0.001), "0");
  assert.equal(figure(12.34), "12.3");
  assert.equal(figure(1234.5), "1\u202f235");
  assert.equal(bytes(1536), "1.50 KiB");
  assert.equal(cut("😀😀", 3), "😀…");
});

test("addresses and headers carry any text", () => {
  assert.equal(
    address("/v1/nodes/{id}/drain", { path: { id: "a/b c" }, query: { limit: 5, state: "", none: undefined } }),
    "../v1/nodes/a%2Fb%20c/drain?limit=5",
  );
  assert.deepEqual(
    [...utf8Header("ü")].map((c) => c.charCodeAt(0)),
    [0xc3, 0xbc],
  );
});
