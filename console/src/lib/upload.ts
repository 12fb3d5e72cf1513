import type { components } from "../api/schema.d.ts";
import { ApiError, call, change, get } from "./api.ts";
import { crc32c } from "./crc32c.ts";

export type Upload = components["schemas"]["ListUpload"];

/** What is asked of an import. */
export interface Import {
  mode: string;
  switch: boolean;
  note: string;
}

const repeats = 3;
/** A replica waits 15 s for the body of a request. So much of a file arrives meanwhile by slow lines, too. */
const slice = 1 << 20;

/** The format by a file's name. */
export function formatOf(name: string): string {
  return /\.txt(\.gz)?$/i.test(name) ? "txt" : "csv";
}

/**
 * Sends a file piece by piece, and waits for its version. With an upload of before it goes on where that ends, if the
 * file begins with the same bytes. It tells each step of the way.
 */
export async function upload(
  list: string,
  file: File,
  asked: Import,
  former: string,
  tell: (u: Upload) => void,
  signal: AbortSignal,
): Promise<void> {
  let u = former ? await show(former, signal) : await open(list, file, asked, signal);
  tell(u);
  if (former) await same(file, u, signal);
  const path = { upload: u.id };
  while (u.state === "open" && u.bytes < file.size) {
    const end = Math.min(file.size, u.bytes + Math.min(slice, u.max_chunk || slice));
    const body = new Uint8Array(await file.slice(u.bytes, end).arrayBuffer());
    u = await insist(signal, async () => {
      const query = { offset: u.bytes, crc32c: crc32c(body).toString(16) };
      return (await call("put", "/v1/list-uploads/{upload}", {
        path,
        query,
        body,
        reason: asked.note,
        signal,
      })) as Upload;
    });
    tell(u);
  }
  if (u.state === "open") {
    const sent = { path, body: { bytes: file.size }, reason: asked.note, signal };
    u = await insist(signal, () => change("post", "/v1/list-uploads/{upload}/commit", sent));
    tell(u);
  }
  while (u.state === "building") {
    await new Promise((done) => setTimeout(done, 500));
    u = await insist(signal, () => show(u.id, signal));
    tell(u);
  }
}

function show(id: string, signal: AbortSignal): Promise<Upload> {
  return get("/v1/list-uploads/{upload}", { path: { upload: id }, signal });
}

function open(list: string, file: File, asked: Import, signal: AbortSignal): Promise<Upload> {
  const body = { format: formatOf(file.name), mode: asked.mode, switch: asked.switch, note: asked.note };
  return change("post", "/v1/lists/{list}/uploads", { path: { list }, body, reason: asked.note, signal });
}

async function same(file: File, u: Upload, signal: AbortSignal): Promise<void> {
  let sum = 0;
  for (let at = 0; at < Math.min(u.bytes, file.size); at += slice) {
    signal.throwIfAborted();
    const part = file.slice(at, Math.min(at + slice, u.bytes));
    sum = crc32c(new Uint8Array(await part.arrayBuffer()), sum);
  }
  if (file.size < u.bytes || (u.state !== "open" && file.size !== u.bytes) || sum !== u.crc32c) {
    throw new ApiError("invalid_argument", `It is not the file that upload ${u.id} has the beginning of.`, "file");
  }
}

/** Asks again where no replica answers: each request of an import can be repeated. */
async function insist<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  for (let n = 0; ; n++) {
    try {
      return await ask();
    } catch (cause) {
      if (!(cause instanceof ApiError) || cause.code !== "unreachable" || n === repeats) throw cause;
      await new Promise((done) => setTimeout(done, 500 * 4 ** n));
      signal.throwIfAborted();
    }
  }
}
