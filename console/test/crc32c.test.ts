import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32c } from "../src/lib/crc32c.ts";

test("crc32c is that of RFC 3720, in one piece or several", () => {
  const bytes = new TextEncoder().encode("123456789");
  assert.equal(crc32c(bytes), 0xe3069283);
  assert.equal(crc32c(bytes.subarray(4), crc32c(bytes.subarray(0, 4))), 0xe3069283);
  assert.equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
  assert.equal(crc32c(new Uint8Array()), 0);
});
