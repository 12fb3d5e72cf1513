import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const root = join(import.meta.dirname, "..");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

test("the package has what it exports, and nothing else", () => {
  const [{ files }] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json"], { cwd: root, encoding: "utf8" }));
  const names: string[] = files.map((file: { path: string }) => file.path);
  const targets = JSON.stringify([manifest.exports, manifest.imports]).matchAll(/"\.\/([^"]+\.(?:js|ts|json))"/g);
  for (const [, target] of targets) assert(names.includes(target as string), `${target} is not in the package`);
  for (const name of names) {
    assert.match(name, /^(dist\/[\w/]+\.(js|d\.ts)|package\.json|README\.md|LICENSE)$/);
  }
  assert.equal(manifest.dependencies, undefined);
  assert.equal(readFileSync(join(root, "LICENSE"), "utf8"), readFileSync(join(root, "../../LICENSE"), "utf8"));
});

test("the version is the same everywhere", async () => {
  const { version } = await import(join(root, "dist/version.js"));
  assert.equal(version, manifest.version);
});

test("the browser build is small and knows nothing of Node", () => {
  const code = readFileSync(join(root, "dist/browser.js"));
  const size = gzipSync(code, { level: 9 }).length;
  assert(size <= 12 << 10, `dist/browser.js has ${size} bytes gzipped, expected at most ${12 << 10}`);
  const [found] = code.toString().match(/"node:|require\(|\bBuffer\b|process\./) ?? [];
  assert.equal(found, undefined);
});

test("a bundler for browsers takes the browser's files", async () => {
  const source = `export * from "@freeslot/client"`;
  const flags = ["--bundle", "--platform=browser", "--format=esm"];
  const out = execFileSync(join(root, "node_modules/.bin/esbuild"), flags, {
    cwd: root,
    input: source,
    encoding: "utf8",
  });
  assert.match(out, /new WebSocket\(/);
  assert.doesNotMatch(out.match(/from "[^"]*"/)?.[0] ?? "", /node:/);
});
