const table = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  return c;
});

/** The CRC-32C of bytes, going on from that of the bytes before them. */
export function crc32c(bytes: Uint8Array, before = 0): number {
  let c = ~before;
  for (const b of bytes) c = (table[(c ^ b) & 0xff] as number) ^ (c >>> 8);
  return ~c >>> 0;
}
