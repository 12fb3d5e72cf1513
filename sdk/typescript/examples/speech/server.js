// Serves the page:  node server.js ws://127.0.0.1:7480 [port]
//
// FREESLOT_TOKEN is the token that the page uses. Everyone who opens the page gets it, so give it a token of its own.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const [urls = "ws://127.0.0.1:7480", port = "8080"] = process.argv.slice(2);
const files = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/page.js": ["page.js", "text/javascript"],
  "/browser.js": [fileURLToPath(import.meta.resolve("@freeslot/client/browser")), "text/javascript"],
};

const server = createServer(async (request, response) => {
  if (request.url === "/config.json") {
    response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" });
    response.end(JSON.stringify({ urls, token: process.env.FREESLOT_TOKEN }));
    return;
  }
  const [file, type] = files[request.url] ?? [];
  if (!file) return response.writeHead(404).end();
  const body = await readFile(new URL(file, import.meta.url));
  response.writeHead(200, { "Content-Type": type }).end(body);
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port} is the page; it must be in allowed_origins of the replicas`);
});
