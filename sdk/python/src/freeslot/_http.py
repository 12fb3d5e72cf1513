"""One HTTP request on asyncio, with a connection of its own.

It is for messages that are too large for a WebSocket session: nothing here blocks a thread, and a
request ends at once when its task is cancelled.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

_MAX_HEADER = 64 << 10


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]  # by lower-case name
    body: bytes


async def request(
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes = b"",
    *,
    tls: ssl.SSLContext | None,
    max_bytes: int,
) -> Response:
    """Sends a request and reads the answer. The caller bounds the time.

    Raises OSError, EOFError, or ValueError if the answer is not HTTP or above max_bytes.
    """
    at = urlsplit(url)
    secure = at.scheme == "https"
    context = (tls or ssl.create_default_context()) if secure else None
    reader, writer = await asyncio.open_connection(
        at.hostname, at.port or (443 if secure else 80), ssl=context, limit=_MAX_HEADER
    )
    try:
        path = (at.path or "/") + (f"?{at.query}" if at.query else "")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {at.netloc.rpartition('@')[2]}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        writer.write(body)
        # A refusal may come before the whole body is sent, so nothing waits for that.
        return await _read(reader, max_bytes)
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader, max_bytes: int) -> Response:
    status = 100
    headers: dict[str, str] = {}
    while 100 <= status < 200:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            raise ValueError("the answer's header is too large") from None
        first, *lines = head.split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ValueError("the answer is not HTTP")
        status = int(words[1])
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if status in (204, 304):
        return Response(status, headers, b"")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Response(status, headers, await _chunks(reader, max_bytes))
    if "content-length" in headers:
        length = int(headers["content-length"])
        if not 0 <= length <= max_bytes:
            raise ValueError("the answer is too large")
        return Response(status, headers, await reader.readexactly(length))
    body = await reader.read(max_bytes + 1)
    while more := await reader.read(max_bytes + 1 - len(body)):
        body += more
    if len(body) > max_bytes:
        raise ValueError("the answer is too large")
    return Response(status, headers, body)


async def _chunks(reader: asyncio.StreamReader, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if size < 0 or size > left:
            raise ValueError("the answer is too large")
        if size == 0:
            return b"".join(parts)
        parts.append(await reader.readexactly(size))
        left -= size
        await reader.readline()
