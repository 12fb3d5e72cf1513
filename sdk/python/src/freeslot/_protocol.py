"""Names and numbers of the two protocols, docs/protocol.md and docs/node-protocol.md."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from . import _json
from ._errors import Error, invalid
from ._socket import Closed, Refused

CLIENT_PROTOCOL = "freeslot.v1"
CLIENT_PATH = "/v1/ws"

NODE_PROTOCOL = "freeslot.node.v1"
NODE_PATH = "/v1/node"
COMPLETE_PATH = NODE_PATH + "/complete"
SPEC_PATH = NODE_PATH + "/spec"

MAX_REPORTS = 64

CLOSE_DEFECT = 4000
CLOSE_RIGHTS = 4003
CLOSE_SUPERSEDED = 4010


def client_urls(urls: str) -> list[str]:
    """Reads the addresses of replicas, with commas between."""
    found = []
    for n, text in enumerate((t for t in (u.strip() for u in urls.split(",")) if t), 1):
        parts = _split(text)
        if parts is None or parts.scheme not in ("ws", "wss", "http", "https"):  # the text may hold a secret
            raise invalid("urls", f"has no address as number {n}, expected one such as ws://127.0.0.1:7480")
        scheme = parts.scheme.replace("http", "ws")
        path = parts.path if parts.path not in ("", "/") else CLIENT_PATH
        query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if k != "frames"] + [("frames", "batch")])
        found.append(urlunsplit((scheme, parts.netloc, path, query, "")))
    if not found:
        raise invalid("urls", "names no replica, expected one such as ws://127.0.0.1:7480")
    return found


def gateway_urls(gateway: str) -> list[str]:
    """Reads the addresses of gateways, with commas between."""
    found = []
    for text in gateway.split(","):
        parts = _split(text.strip())
        if parts is None or parts.scheme not in ("ws", "wss"):
            raise invalid("gateway", "has an entry that is no address, expected wss://host[:port]")
        if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
            raise invalid("gateway", f"has more than a host and a port, expected wss://{parts.hostname}")
        found.append(f"{parts.scheme}://{parts.netloc}")
    return found


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises ValueError
    except ValueError:
        return None
    return parts if parts.hostname else None


def warn_of_plain(log: logging.Logger, urls: list[str]) -> None:
    """Warns if a token would go over the network in the clear."""
    parts = [urlsplit(url) for url in urls]
    plain = [p for p in parts if p.scheme in ("ws", "http") and not _is_loopback(p.hostname or "")]
    if plain:
        hosts = ", ".join(host_of(p.geturl()) for p in plain)
        log.warning("the token goes to %s in the clear: use %ss://", hosts, plain[0].scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def refusal_of(err: Refused) -> Error | None:
    """Returns the error in the body of a refused handshake; None if it has none."""
    try:
        body = _json.loads(err.body)
    except ValueError:
        return None
    if not isinstance(body, dict) or not body.get("code"):
        return None
    ms = body.get("retry_after_ms", 0)
    return Error(str(body["code"]), str(body.get("message", "")), retry_after=ms / 1000 if isinstance(ms, int) else 0.0)


def reason_of(err: BaseException) -> str:
    """Returns why a connect failed, without the URL, which can hold a token."""
    if isinstance(err, (Refused, Closed)):
        return str(err)
    if isinstance(err, TimeoutError):
        return "no answer in time"
    if isinstance(err, ssl.SSLError):
        return f"TLS: {err.reason or 'failed'}" + (
            f" ({err.verify_message})" if isinstance(err, ssl.SSLCertVerificationError) else ""
        )
    if isinstance(err, OSError) and err.strerror:
        return err.strerror
    if isinstance(err, (OSError, asyncio.IncompleteReadError)):
        return "the connection failed"
    return f"{type(err).__name__}: {err}"
