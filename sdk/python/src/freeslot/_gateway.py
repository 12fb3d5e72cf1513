"""How a node reaches freeslot: one connection to one of several gateways, renewed when it ends.

Only the current connection counts: whatever comes by a former one is void. Everything here runs in
one event loop and takes in messages in the order in which they come. So what came before an answer
has been applied when the answer is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Coroutine

from . import _json
from ._backoff import Backoff
from ._errors import Error, SupersededError, from_answer, invalid
from ._protocol import (
    CLOSE_DEFECT,
    CLOSE_RIGHTS,
    CLOSE_SUPERSEDED,
    COMPLETE_PATH,
    NODE_PATH,
    NODE_PROTOCOL,
    SPEC_PATH,
    gateway_urls,
    host_of,
    reason_of,
    refusal_of,
)
from ._socket import Closed, NotSent, Refused, Socket
from ._version import __version__

if TYPE_CHECKING:
    from . import _node_frames as frames

_log = logging.getLogger("freeslot.worker")

CALL_TIMEOUT = 2.0
SPEC_TIMEOUT = 15.0
_READ_LIMIT = 8 << 20  # the largest frame from a gateway
_ARRAY_BYTES = 16 << 10  # about the largest frame of several messages: a heartbeat may wait behind it
_REPORT_BYTES = 256 << 10  # of completes under way
_SPARE_PLACES = 8  # requests that are kept for other types than complete and spec
_MAX_SPECS = 4  # under way: a heartbeat may wait behind their answers
_BULK_AT_ONCE = 2
_BULK_TIMEOUT, _BULK_TIMEOUT_BYTES = 15.0, 64 << 10  # a second more for each that many bytes
_BULK_READ_LIMIT = 17 << 20
_GOODBYE_TIMEOUT = 1.0
_FIRST_DIAL_TIMEOUT, _MIN_DIAL_TIMEOUT = 5.0, 1.0
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_RIGHTS_PAUSE = 0.05, 2.0, 30.0
_DEFECT_PAUSE = 60.0
_MOVE_PARTS = 8  # of the heartbeat limit: the silence before a move, its pause, and its connect
_MIN_PART = 0.1


class Lost(Exception):
    """The connection has ended before the answer; the request may have been carried out."""


class DialError(Error):
    """A connect that failed. defect is true if one side does not speak the protocol."""

    defect = False
    untrusted = False

    @property
    def refusal(self) -> bool:
        """True if the token is refused for this node."""
        return self.code in ("unauthenticated", "permission_denied")

    @property
    def passing(self) -> bool:
        """True if the failure may pass by itself."""
        return self.code in ("unavailable", "overloaded") and not self.defect and not self.untrusted


@dataclass
class Config:
    """How a node reaches its gateways. Times are in seconds."""

    gateway: str
    token: str
    token_file: str
    node: str
    tls: ssl.SSLContext | None
    first_pause: float = _FIRST_PAUSE
    longest_pause: float = _LONGEST_PAUSE

    def read_token(self) -> str:
        token, field = self.token, "token"
        if not token:
            field = "token_file"
            try:
                with open(self.token_file, encoding="utf-8-sig") as file:
                    token = file.read().strip()
            except (OSError, ValueError) as err:
                raise invalid(field, f"cannot be read: {err}") from None
        if not token or any(not "!" <= c <= "~" for c in token):
            raise invalid(field, "has no token, expected one line of letters, digits and punctuation")
        return token


class Room:
    """A bounded amount, first come first served. A request above the bound gets it when nothing else is in use."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, n: int) -> bool:
        if self._waiters or not self._fits(n):
            return False
        self.used += n
        return True

    async def take(self, n: int) -> None:
        if self.try_take(n):
            return
        entry = (n, asyncio.get_running_loop().create_future())
        self._waiters.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry[1].done() and not entry[1].cancelled():
                self.give(n)
            else:
                self._waiters.remove(entry)
                self._grant()
            raise

    def give(self, n: int) -> None:
        self.used -= n
        self._grant()

    def _fits(self, n: int) -> bool:
        return self.used == 0 or self.used + n <= self.size

    def _grant(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            n, future = self._waiters.popleft()
            if not future.done():
                self.used += n
                future.set_result(None)


class _Call:
    """A request under way."""

    __slots__ = ("beat", "expires", "future", "id", "text")

    def __init__(self, number: int, text: str, beat: bool, expires: bool) -> None:
        self.id = number
        self.text = text
        self.beat = beat
        self.expires = expires  # CALL_TIMEOUT after it was written
        self.future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def end(self, answer: dict[str, Any] | None, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(answer or {})
        else:
            self.future.set_exception(error)
            self.future.exception()  # its caller may be gone


class Link:
    """One connection to one gateway, from its welcome on."""

    def __init__(self, gateway: Gateway, socket: Socket, url: str, token: str, welcome: frames.WelcomeMessage) -> None:
        loop = asyncio.get_running_loop()
        self.gateway = gateway
        self.socket = socket
        self.url = url
        self.token = token
        self.welcome = welcome
        self.host = host_of(url)
        self.limit: float = welcome["heartbeat_limit_ms"] / 1000
        self.part = max(self.limit / _MOVE_PARTS, _MIN_PART)
        self.inline = int(welcome.get("inline_bytes", 0))
        self.places = Room(max(int(welcome.get("max_requests", 1)) - _SPARE_PLACES, 1))
        self.specs = Room(_MAX_SPECS)
        self.room = Room(_REPORT_BYTES)
        self.news = asyncio.Event()  # set with ended, goaway and doubt
        self.ended: asyncio.Future[None] = loop.create_future()
        self.error: Error | None = None  # why it ended; None if the node has left
        self.code: int | None = None  # with which the gateway closed it
        self.goaway = False
        self.leaving = False
        self.lost = False  # nothing more is sent, and whatever comes is void
        self.beaten = False  # a heartbeat has been answered
        self.refusal: Error | None = None
        self.doubt = ""  # why the last heartbeat was not carried out; empty if it was
        self.refused = False  # the doubt is that the gateway cannot reach Redis
        self.calm = 0.0  # the shortest pause before another gateway is tried
        self._late: asyncio.TimerHandle | None = None
        self._last_id = 0
        self._pending: dict[int, _Call] = {}
        self._out: deque[_Call] = deque()
        self._filled = asyncio.Event()

    # Requests.

    def send(self, kind: str, rest: str, *, expires: bool = False) -> _Call:
        """Queues a request; rest are its further fields. Heartbeats come first."""
        if self.lost:
            raise Lost
        self._last_id += 1
        text = f'{{"type":"{kind}","id":{self._last_id}{"," if rest else ""}{rest}}}'
        call = _Call(self._last_id, text, kind == "heartbeat", expires)
        self._pending[call.id] = call
        if call.beat:
            self._await_beat()
            self._out.appendleft(call)
        else:
            self._out.append(call)
        self._filled.set()
        return call

    async def request(self, kind: str, rest: str = "", *, expires: bool = False) -> dict[str, Any]:
        """Sends a request and waits for its answer. Raises Lost, Error, or TimeoutError."""
        call = self.send(kind, rest, expires=expires)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._forget(call)  # a later answer is void
            raise

    def _forget(self, call: _Call) -> None:
        self._pending.pop(call.id, None)
        if call in self._out:
            self._out.remove(call)

    def _expire(self, calls: list[_Call]) -> None:
        for call in calls:
            if self._pending.pop(call.id, None) is not None:
                call.end(None, TimeoutError(f"no answer to {call.text[:40]} in time"))

    def lose(self) -> None:
        """Ends the calls under way without an answer."""
        self.lost = True
        self._end_await_beat()
        self._out.clear()
        for call in self._pending.values():
            call.end(None, Lost())
        self._pending.clear()

    def leave(self) -> None:
        """Says goodbye."""
        if not self.leaving:
            self.leaving = True
            self._filled.set()

    # Tasks.

    async def write(self) -> None:
        """Sends what is queued, several messages as one array, and finally says goodbye."""
        loop = asyncio.get_running_loop()
        try:
            while not self.ended.done():
                await self._filled.wait()
                self._filled.clear()
                while self._out:
                    calls, size = [self._out.popleft()], 0
                    size += len(calls[0].text)
                    while self._out and size + len(self._out[0].text) < _ARRAY_BYTES:
                        calls.append(self._out.popleft())
                        size += len(calls[-1].text)
                    text = calls[0].text
                    if len(calls) > 1:
                        text = f"[{','.join(call.text for call in calls)}]"
                    await self.socket.send(text)
                    if expiring := [call for call in calls if call.expires]:
                        loop.call_later(CALL_TIMEOUT, self._expire, expiring)
                if self.leaving:
                    await self.socket.close(_GOODBYE_TIMEOUT)
                    return
        except (Closed, NotSent):
            self.socket.cut()

    async def read(self) -> None:
        error: Error | None = None
        try:
            while True:
                frame = _json.loads(await self.socket.recv())
                for message in frame if isinstance(frame, list) else (frame,):
                    self._receive(message)
        except Closed as err:
            self.code = err.code
            error = Error("unavailable", str(err))
        except (ValueError, TypeError, KeyError, AttributeError) as err:
            self.code = CLOSE_DEFECT
            error = Error("unavailable", f"a frame of the gateway cannot be read: {err!r}")
        finally:
            self.socket.cut()
            if not self.leaving:
                self.error = self.refusal or error
            self.gateway._drop(self)
            self.ended.set_result(None)
            self.news.set()
            self._filled.set()

    def _receive(self, m: dict[str, Any]) -> None:
        """Carries out one message. Unknown types are ignored: they are for later releases."""
        gateway = self.gateway
        current = gateway.current is self
        if not current and gateway._candidate is not self:
            return
        kind = m["type"]
        if m.get("id"):
            if not current and gateway.fatal is None and _reaches_redis(m):
                gateway._candidate = None
                gateway._switch(self)
            self._answer(m)
        elif kind == "goaway":
            self.goaway = True
            self.news.set()
        elif kind == "error":  # the gateway then closes the connection
            self.refusal = from_answer(m)
        elif not current:  # nothing is pushed before the first beat
            pass
        elif kind == "jobs":
            for delivery in m.get("jobs") or ():
                gateway.on_job(delivery)
        elif kind == "cancel":
            for attempt in m.get("attempts") or ():
                gateway.on_cancel(attempt)
        elif kind == "sync":
            gateway.on_sync()

    def _answer(self, m: dict[str, Any]) -> None:
        call = self._pending.pop(m["id"], None)
        if call is None:
            return
        if call.beat:
            self._heard(m)
            self.beaten = self.beaten or m["type"] == "beat"
        if m["type"] == "error":
            call.end(None, from_answer(m))
            return
        for delivery in m.get("begun") or ():  # here, so that it keeps its place among the pushes
            self.gateway.on_job(delivery)
        call.end(m, None)

    # Doubt: the node looks for another gateway if no heartbeat is answered in time.

    def _await_beat(self) -> None:
        """The time begins with the first unanswered heartbeat, because a call may end before."""
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(self.part, self._is_late)

    def _is_late(self) -> None:
        self._late = None
        self.set_doubt("a heartbeat was not answered in time", False)

    def _end_await_beat(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def set_doubt(self, why: str, refused: bool) -> None:
        self.doubt, self.refused = why, refused
        self.news.set()

    def _heard(self, m: dict[str, Any]) -> None:
        self._end_await_beat()
        if m["type"] == "error" and m.get("code") == "unavailable":
            self.set_doubt("the gateway cannot reach Redis", True)
        else:
            self.doubt, self.calm = "", 0.0

    def move_pause(self) -> float:
        """Grows until the node's own gateway answers: during an outage of Redis connects would be a storm."""
        pause = self.calm + random.random() * self.part
        self.calm = min(max(2 * self.calm, self.part), self.limit if self.refused else _LONGEST_PAUSE)
        return pause


def _reaches_redis(m: dict[str, Any]) -> bool:
    """True if the answer to a heartbeat came from Redis and allows the node to live at that gateway."""
    return m["type"] == "beat" or m["type"] == "error" and m.get("code") == "unknown_node"


class Gateway:
    """Keeps the node connected. on_job, on_cancel and on_sync get what gateways push, on_ended its tasks."""

    def __init__(
        self,
        config: Config,
        epoch: str,
        on_job: Callable[[frames.Delivery], None],
        on_cancel: Callable[[str], None],
        on_sync: Callable[[], None],
        on_ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.config = config
        self.epoch = epoch
        self._on_ended = on_ended
        self.on_job, self.on_cancel, self.on_sync = on_job, on_cancel, on_sync
        self.urls = gateway_urls(config.gateway)
        self.current: Link | None = None
        self.fatal: Error | None = None  # why no more connections will come
        self.replaces = ""  # the epoch that the next registration may take over
        self.registered = False
        self._candidate: Link | None = None  # becomes current if Redis answers a heartbeat through it
        self._last_beat = ""
        self._changed = asyncio.Event()  # is replaced when current or fatal changes
        self._dials = 0
        self._rests: dict[str, float] = {}  # until when an address is not tried
        self._dial_timeout = _FIRST_DIAL_TIMEOUT
        self._bulk = Room(_BULK_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    # Life.

    async def start(self) -> None:
        """Connects to one of the gateways. It tries each once, in random order. Raises DialError."""
        failures: list[DialError] = []
        for url in random.sample(self.urls, len(self.urls)):
            try:
                link = await self._dial(url)
                break
            except DialError as err:
                failures.append(err)
        else:
            # A refusal counts most, because it does not pass; then what may pass.
            first = sorted(failures, key=lambda f: (not f.refusal, not f.passing))[0]
            first.message = "; ".join(dict.fromkeys([first.message] + [f.message for f in failures]))
            raise first
        _log.info("connected to gateway %s", link.host)
        self._adopt(link, True)
        self._keeper = asyncio.create_task(self._keep(link))
        self._keeper.add_done_callback(self._on_ended)

    async def stop(self) -> None:
        """Says goodbye and waits for everything to end."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._end(Error("closed", "the worker has stopped"))
        if self.current is not None:
            self.current.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CALL_TIMEOUT)
        if self.current is not None:  # it reads nothing any more
            self.current.socket.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_ended)

    # Calls.

    async def link(self) -> Link:
        """Waits for the current connection."""
        while True:
            if self.fatal is not None:
                raise self.fatal.with_traceback(None)
            if self.current is not None:
                return self.current
            await self._changed.wait()

    async def call(self, kind: str, rest: str = "") -> tuple[Link, dict[str, Any]]:
        """Sends a request, again on each new connection until it is answered: repeating is harmless."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                while True:
                    link = await self.link()
                    try:
                        return link, await link.request(kind, rest)
                    except Lost:
                        continue
        except TimeoutError:
            raise Error("unavailable", f"no answer to {kind} in time") from None

    async def register(self, profile: str) -> tuple[float, list[str]]:
        """Returns the heartbeat limit, and the jobs that an earlier epoch left."""
        replaces = f',"replaces":{_json.dumps(self.replaces)}' if self.replaces else ""
        link, answer = await self.call("register", f'"profile":{profile}{replaces}')
        self.registered, self.replaces = True, self.epoch
        self.on_sync()  # the gateway sends no jobs before a heartbeat
        return link.limit, answer.get("lost") or []

    async def heartbeat(self, rest: str) -> dict[str, Any]:
        self._last_beat = rest
        return (await self.call("heartbeat", rest))[1]

    async def progress(self, reports: str) -> list[str]:
        return (await self.call("progress", f'"reports":[{reports}]'))[1].get("outcomes") or []

    async def deregister(self) -> list[str]:
        return (await self.call("deregister"))[1].get("lost") or []

    async def complete(self, rest: str, result_bytes: int) -> str:
        """Ends an attempt and returns the outcome. An answer that is lost is not repeated: its jobs are lost too.

        Raises Error, Lost or TimeoutError.
        """
        link = self.current
        if link is None or self.fatal is not None:
            async with asyncio.timeout(CALL_TIMEOUT):
                link = await self.link()
        if result_bytes > link.inline:
            answer = await self._post(link, COMPLETE_PATH, f'{{"type":"complete",{rest}}}')
            for delivery in answer.get("begun") or ():
                self.on_job(delivery)
            return str(answer.get("outcome"))
        size = len(rest)
        if not link.places.try_take(1):
            await link.places.take(1)
        try:
            if not link.room.try_take(size):
                await link.room.take(size)
            try:
                answer = await link.request("complete", rest, expires=True)
            finally:
                link.room.give(size)
        finally:
            link.places.give(1)
        return str(answer.get("outcome"))

    async def spec(self, job_id: str) -> tuple[frames.Job, str]:
        """Returns the job and its tenant. A large job comes by HTTP."""
        rest = f'"job_id":{_json.dumps(job_id)}'
        link = await self.link()
        await link.specs.take(1)
        try:
            async with asyncio.timeout(SPEC_TIMEOUT):
                answer = await link.request("spec", rest)
        finally:
            link.specs.give(1)
        if answer.get("large"):
            answer = await self._post(link, SPEC_PATH, f'{{"type":"spec",{rest}}}')
        job = answer.get("job")
        if not isinstance(job, dict):
            raise Error("internal", f"the gateway's answer has no job {job_id}")
        found: Any = job
        return found, str(answer.get("tenant", ""))

    async def _post(self, link: Link, path: str, text: str) -> dict[str, Any]:
        """Sends a message beside the connection, and ends with the connection, whose session it belongs to."""
        await self._bulk.take(1)
        try:
            if link.lost:
                raise Lost
            body = text.encode()
            headers = {
                "Authorization": "Bearer " + link.token,
                "Content-Type": "application/json",
                "Freeslot-Node": self.config.node,
                "Freeslot-Session": str(link.welcome.get("session", "")),
            }
            from . import _http  # most workers never need it

            size = len(body) + (_BULK_READ_LIMIT if path == SPEC_PATH else 0)
            work = asyncio.ensure_future(
                _http.request(
                    "POST",
                    "http" + link.url.removeprefix("ws") + path,
                    headers,
                    body,
                    tls=self.config.tls,
                    max_bytes=_BULK_READ_LIMIT,
                )
            )
            try:
                await asyncio.wait(
                    (work, link.ended),
                    timeout=_BULK_TIMEOUT + size // _BULK_TIMEOUT_BYTES,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if link.lost:
                    raise Lost
                if not work.done():
                    raise TimeoutError(f"no answer to POST {path} in time")
                response = work.result()
            finally:
                work.cancel()
        finally:
            self._bulk.give(1)
        try:
            answer = _json.loads(response.body)
        except ValueError:
            answer = None
        if response.status == 200 and isinstance(answer, dict):
            return answer
        if response.status in (401, 403) or not isinstance(answer, dict) or not answer.get("code"):
            # Nothing was carried out, and the refusal is not final: the token's line may have changed.
            raise Error("unavailable", f"the gateway answered with HTTP status {response.status}")
        raise from_answer(answer)

    # Connecting.

    async def _keep(self, link: Link) -> None:
        """Keeps the node connected until it is superseded or stops."""
        pauses = Backoff(self.config.first_pause, self.config.longest_pause)
        while True:
            await link.news.wait()
            link.news.clear()
            if not link.ended.done():
                if link.goaway:
                    if len(self.urls) == 1:  # behind one address, a new connection finds the next replica
                        link.leave()
                        await asyncio.wait((link.ended,))
                elif link.doubt:
                    link = await self._try_other(link)
                    continue
                else:
                    continue
            replaced = await self._replace(link, pauses)
            if replaced is None:
                return
            link = replaced

    async def _replace(self, former: Link, pauses: Backoff) -> Link | None:
        """Connects to another gateway than the former, if there is one."""
        if former.beaten:
            pauses.reset()
        if self.fatal is not None:
            return None
        why: Error | None = former.error
        if former.code in (CLOSE_DEFECT, 1003, 1007, 1009):
            self._rest(former.url)
        if why is not None:
            _log.warning("the connection to gateway %s was lost: %s", former.host, why)
        refusal = former.code == CLOSE_RIGHTS or why is not None and why.code in ("unauthenticated", "permission_denied")
        to = former.url
        while True:
            to = self._other(to)
            pauses.longest = _LONGEST_RIGHTS_PAUSE if refusal else self.config.longest_pause
            await asyncio.sleep(max(pauses.next(), self._rests.get(to, 0.0) - time.monotonic()))
            try:
                link = await self._dial(to)
            except DialError as err:
                if why is None or why.code != err.code:
                    _log.warning("%s", err)
                why, refusal = err, err.refusal
                continue
            if self.fatal is not None:
                link.socket.cut()
                return None
            self._adopt(link, False)
            _log.info("connected to gateway %s", link.host)
            return link

    async def _try_other(self, link: Link) -> Link:
        """Moves the node to another gateway if Redis answers a heartbeat through that one.

        Otherwise the node stays, also if its own gateway has answered meanwhile. So an outage of
        Redis moves no node.
        """
        try:
            async with asyncio.timeout(link.move_pause()):
                while not (link.ended.done() or link.goaway):
                    await link.news.wait()
                    link.news.clear()
            link.news.set()
            return link
        except TimeoutError:
            pass
        why = link.doubt
        if not why:
            return link
        other = ""
        try:
            async with asyncio.timeout(link.part):
                candidate = await self._dial(self._other(link.url))
            self._start(candidate)
            try:
                moved = await self._move(candidate, link)
            except (Error, Lost) as err:
                moved, other = False, str(err)
            if moved:
                _log.warning("moved from gateway %s to %s: %s", link.host, candidate.host, why)
                self.on_sync()
                return candidate
            candidate.leave()
        except (TimeoutError, DialError) as err:
            other = str(err)
        if link.doubt:
            _log.info("stays at gateway %s: %s (%s)", link.host, why, other)
            link.news.set()
        return link

    async def _move(self, candidate: Link, link: Link) -> bool:
        """Sends the last heartbeat again, through the candidate, whose reader makes it the current one."""
        again = self._last_beat if '"now":true' in self._last_beat else self._last_beat + ',"now":true'
        if link.refused:  # the candidate's welcome shows that Redis is there: maybe for both gateways
            await self._ask(link, again, link.part / 2)
        if not link.doubt:
            self.on_sync()  # the answer may have named jobs
            return False
        self._candidate = candidate
        try:
            await self._ask(candidate, again, link.part)
        except SupersededError as err:
            self._end(err)
            raise
        finally:
            self._candidate = None
        return self.current is candidate

    async def _ask(self, link: Link, beat: str, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await link.request("heartbeat", beat)
        except (Lost, TimeoutError):
            pass
        except Error as err:
            if err.code == "superseded":
                raise SupersededError() from None

    def _rest(self, url: str) -> None:
        self._rests[url] = time.monotonic() + _DEFECT_PAUSE * (1 + random.random() / 4)

    def _other(self, than: str) -> str:
        """Returns a random gateway that does not rest, and not this one if there are several."""
        now = time.monotonic()
        others = [url for url in self.urls if url != than] or [than]
        random.shuffle(others)
        return min(others, key=lambda url: max(self._rests.get(url, 0.0) - now, 0.0))

    async def _dial(self, url: str) -> Link:
        """Connects, says hello and takes the welcome. Errors name neither token nor path."""
        try:
            link = await self._try_dial(url)
        except DialError as err:
            if err.defect:
                self._rest(url)
            raise
        self._dial_timeout = max(link.limit / 4, _MIN_DIAL_TIMEOUT)
        return link

    async def _try_dial(self, url: str) -> Link:
        where = f"gateway {host_of(url)}"
        try:
            token = self.config.read_token()
        except Error as err:
            raise DialError(err.code, err.message, err.field) from None
        self._dials += 1
        try:
            async with asyncio.timeout(self._dial_timeout):
                socket = await Socket.open(
                    url + NODE_PATH,
                    protocol=NODE_PROTOCOL,
                    headers={"Authorization": "Bearer " + token, "User-Agent": f"freeslot-python/{__version__}"},
                    tls=self.config.tls,
                    max_bytes=_READ_LIMIT,
                )
                try:
                    return Link(self, socket, url, token, await self._hello(socket))
                except BaseException:
                    socket.cut()
                    raise
        except Refused as err:
            refusal = refusal_of(err)
            if refusal is None:
                raise _unusable(where, f"HTTP status {err.status}", _is_defect(err.status)) from None
            if refusal.code == "not_found":
                refusal.message = "this replica is no gateway; set gateway.tokens_file there"
            raise self._refused(where, refusal) from None
        except Error as err:
            raise self._refused(where, err) from None
        except ssl.SSLCertVerificationError as err:  # also a ValueError
            failed = _unusable(where, reason_of(err), False)
            failed.untrusted = True
            raise failed from err
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _unusable(where, f"this is no gateway that speaks {NODE_PROTOCOL}", True) from None
        except Exception as err:
            raise _unusable(where, reason_of(err), False) from err

    def _refused(self, where: str, refusal: Error) -> DialError:
        field, message = "gateway", f"{where}: {refusal.message}"
        if refusal.code in ("unauthenticated", "permission_denied"):
            field = "token" if self.config.token else "token_file"
            message = f"{field} is refused by {where}: {refusal.message}"
        return DialError(refusal.code, message, field, refusal.retry_after)

    async def _hello(self, socket: Socket) -> frames.WelcomeMessage:
        if socket.subprotocol != NODE_PROTOCOL:
            raise ValueError
        await socket.send(
            _json.dumps(
                {
                    "type": "hello",
                    "node": self.config.node,
                    "epoch": self.epoch,
                    "connection": self._dials,
                    "version": f"python-{__version__}",
                }
            )
        )
        frame = _json.loads(await socket.recv())
        first = frame[0] if isinstance(frame, list) else frame
        if first["type"] == "error":
            raise from_answer(first)
        if first["type"] != "welcome" or first["protocol"] != NODE_PROTOCOL or first["heartbeat_limit_ms"] < 1:
            raise ValueError
        welcome: frames.WelcomeMessage = first
        return welcome

    def _start(self, link: Link) -> None:
        self._spawn(link.read())
        self._spawn(link.write())

    def _adopt(self, link: Link, first: bool) -> None:
        """Makes a connection the current one. A heartbeat through it brings what was missed meanwhile."""
        self._switch(link)
        self._start(link)
        if not first:
            self.on_sync()

    def _switch(self, link: Link) -> None:
        if self.current is not None:
            self.current.lose()
            self.current.leave()
        self.current = link
        if not self.registered:
            self.replaces = str(link.welcome.get("replaces", ""))
        self._announce()

    def _drop(self, link: Link) -> None:
        link.lose()
        if self.current is not link:
            return
        self.current = None
        if link.code == CLOSE_SUPERSEDED:
            self._end(SupersededError())
        self._announce()

    def _end(self, error: Error) -> None:
        if self.fatal is None:
            self.fatal = error
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _unusable(where: str, why: str, defect: bool) -> DialError:
    failed = DialError("unavailable", f"{where} cannot be used: {why}", "gateway")
    failed.defect = defect
    return failed


def _is_defect(status: int) -> bool:
    """True unless a proxy answers with this HTTP status while it reaches no gateway."""
    return not (status >= 500 or status in (408, 429))
