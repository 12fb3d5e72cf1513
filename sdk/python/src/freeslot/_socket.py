"""WebSocket connections. Nothing else in the package uses the library below."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Tuple

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.legacy.client import WebSocketClientProtocol, connect
from websockets.typing import Subprotocol

_MAX_REFUSAL = 64 << 10
_WRITE_TIMEOUT = 10.0
_LOST = (OSError, RuntimeError)  # of a transport whose network is gone; uvloop raises RuntimeError


class Refused(Exception):
    """The server answered the handshake with another status than 101."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body


class Closed(Exception):
    """The connection has ended. code is the other side's close code; None without one."""

    def __init__(self, code: int | None) -> None:
        super().__init__("the connection was closed" + (f" with {code}" if code else ""))
        self.code = code


class NotSent(Exception):
    """The connection had ended before the message was sent."""


class _Protocol(WebSocketClientProtocol):
    """Counts what it receives, and reads the bodies of refusals."""

    received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    async def handshake(self, *args: Any, **options: Any) -> None:
        try:
            await super().handshake(*args, **options)
        except asyncio.CancelledError:
            self.transport.abort()  # the library would wait for the other side's end of the connection
            raise

    async def read_http_response(self) -> Tuple[int, Headers]:
        # A redirect ends here as well: the token is for the configured hosts alone.
        status, headers = await super().read_http_response()
        if status == 101:
            return status, headers
        try:
            length = min(int(headers.get("Content-Length", "0")), _MAX_REFUSAL)
            body = await self.reader.readexactly(length)
        except (ValueError, asyncio.IncompleteReadError):
            body = b""
        raise Refused(status, body)


class Socket:
    """One connection. Its methods may be called side by side, except recv."""

    def __init__(self, protocol: _Protocol) -> None:
        self._protocol = protocol

    @classmethod
    async def open(
        cls, url: str, *, protocol: str, headers: dict[str, str], tls: ssl.SSLContext | None, max_bytes: int
    ) -> Socket:
        """Connects. The caller bounds the time. Raises Refused, OSError, or an error of the library."""
        options: dict[str, Any] = {"create_protocol": _Protocol}
        if tls is not None and url.startswith("wss:"):
            options["ssl"] = tls
        made = await connect(
            url,
            subprotocols=[Subprotocol(protocol)],
            extra_headers=headers,
            compression=None,
            open_timeout=None,
            ping_interval=None,
            close_timeout=1,
            max_size=max_bytes,
            **options,
        )
        assert isinstance(made, _Protocol)
        return cls(made)

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    @property
    def received(self) -> int:
        """Counts the bytes that have come."""
        return self._protocol.received

    async def recv(self) -> str | bytes:
        """Returns the next message. Raises Closed."""
        try:
            return await self._protocol.recv()
        except ConnectionClosed as err:
            code = err.rcvd.code if err.rcvd else None
            if code is None and err.sent and err.sent.code != 1006:
                code = err.sent.code  # this side found a defect
            raise Closed(code) from None
        except _LOST:
            raise Closed(None) from None

    async def send(self, text: str) -> None:
        """Writes a message, and waits while the other side does not read.

        Raises NotSent if nothing was written. After any other error something may have been sent.
        """
        if not self._protocol.open:
            raise NotSent
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT):
                await self._protocol.send(text)
        except ConnectionClosed:
            raise Closed(None) from None
        except _LOST:
            self.cut()
            raise Closed(None) from None

    async def alive(self, timeout: float) -> bool:
        """Pings. A server that does not answer in time, but sends, is alive: it is busy."""
        before = self.received
        try:
            async with asyncio.timeout(timeout):
                await (await self._protocol.ping())
        except TimeoutError:
            return self.received != before
        except ConnectionClosed:
            pass  # whoever reads sees it
        return True

    async def close(self, timeout: float) -> None:
        """Says goodbye, and cuts the connection if that takes too long."""
        try:
            async with asyncio.timeout(timeout):
                await self._protocol.close()
        except (ConnectionClosed, *_LOST):
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        """Ends the connection at once."""
        self._protocol.transport.abort()
