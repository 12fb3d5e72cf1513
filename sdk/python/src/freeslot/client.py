"""Clients submit jobs and get their results.

A client holds one connection to one replica. If it breaks, or the replica stops, the client
connects to the next of its addresses and attaches to all jobs that have no result yet. Handles go
on as if nothing had happened, and each gets its result once.

A submit whose connection broke before the answer raises ``unavailable``. The job may have been
accepted all the same, so the client does not repeat the submit: give the job an
``idempotency_key`` and repeat it yourself. Cancel and attach are repeated, which is harmless.

Giving up does not cancel: if a task that waits is cancelled, or its ``asyncio.timeout`` ends, the
job goes on. Use ``Client.cancel``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence

from . import _json
from ._backoff import Backoff
from ._errors import ClosedError, Error, JobError, from_answer, invalid
from ._protocol import CLIENT_PROTOCOL, client_urls, host_of, reason_of, refusal_of, warn_of_plain
from ._socket import Closed, NotSent, Refused, Socket
from ._types import Assignment, Job, JobStatus, Progress, encode_job, make_job

if TYPE_CHECKING:
    from . import _client_frames as frames

_log = logging.getLogger("freeslot.client")

# A shorter connection does not reset the backoff.
_STABLE_AFTER = 1.0
# Attaches under way at a time after a reconnect, and frames of one batch.
_ADOPT_LIMIT = 32
_BATCH_CALLS = 4
_GOODBYE_TIMEOUT = 10.0
_MOST_GHOSTS = 10_000

TokenSource = Callable[[], "str | Awaitable[str]"]


def _broken() -> Error:
    return Error(
        "unavailable", "the connection broke before the replica answered, the request may have been carried out"
    )


class Handle:
    """An accepted job. ``await handle`` is ``await handle.wait()``."""

    def __init__(self, job_id: str, position: int, connection: _Connection) -> None:
        self.job_id = job_id
        #: The job's place in the queue, from 1, when it was accepted or attached to; 0 if it did not wait.
        self.position = position
        self._connection = connection  # the one that brings the job's messages
        # Requests of this client that may yet take the job to a connection that is lost; see _Call.
        self._ghosts = 0
        self._assignment: Assignment | None = None
        self._progress: Progress | None = None
        self._status: JobStatus | None = None
        self._error: Error | None = None
        self._changed = asyncio.Event()  # is replaced at each change

    def __repr__(self) -> str:
        return f"<Handle {self.job_id}>"

    def __await__(self) -> Generator[Any, None, JobStatus]:
        return self.wait().__await__()

    @property
    def assignment(self) -> Assignment | None:
        """The latest attempt that this client knows; None before the first."""
        return self._assignment

    @property
    def done(self) -> bool:
        return self._status is not None or self._error is not None

    async def wait(self) -> JobStatus:
        """Waits for the job's end. A job that failed raises nothing: look at the state.

        It raises ClosedError if the client was closed, and Error if the result will not come:
        ``unavailable`` if another client attached to the job, ``not_found`` if its record is gone.
        """
        while not self.done:
            await self._changed.wait()
        if self._status is None:
            assert self._error is not None
            raise self._error.with_traceback(None)
        return self._status

    async def result(self) -> Any:
        """Waits for the job's end and returns its result. JobError if it did not succeed."""
        status = await self.wait()
        if not status.succeeded:
            raise JobError(status)
        return status.result

    async def assigned(self) -> Assignment | None:
        """Waits until the job has a node, or has ended without one (None)."""
        while self._assignment is None and not self.done:
            await self._changed.wait()
        return self._assignment

    async def progress(self) -> AsyncIterator[Progress]:
        """Yields what the handler reports, until the job has ended.

        Only the latest report is kept: a slow reader misses the ones between.
        """
        seen = (0, 0)
        while True:
            latest = self._progress
            if latest is not None and (latest.attempt, latest.seq) > seen:
                seen = (latest.attempt, latest.seq)
                yield latest
            elif self.done:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _assign(self, node: Any, attempt: Any) -> None:
        if node and isinstance(attempt, int) and attempt > (self._assignment.attempt if self._assignment else 0):
            self._assignment = Assignment(str(node), attempt)
            self._wake()

    def _report(self, progress: Progress | None) -> None:
        if progress is None or self.done:
            return
        latest = self._progress
        if latest is None or (progress.attempt, progress.seq) > (latest.attempt, latest.seq):
            self._progress = progress
            self._wake()


class _Call:
    """One request that waits for its answers.

    A replica that was frozen carries out what it had received, although the connection is lost by
    then. If that is an attach, or a submit under an idempotency key, it takes the job from the
    connection on which this client has it now. So each such request that was lost (a ghost, by its
    name) makes the client attach once more in place of taking the job for another client's.
    """

    def __init__(self, names: Sequence[str] = (), attach: bool = False, handle: Handle | None = None) -> None:
        jobs = 0 if attach else len(names)
        self.names = names  # what ghosts are called: job ids, and idempotency keys after "key "
        self.missing = max(jobs, 1)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broken = False  # the connection broke before all answers had come
        self.submitted: list[Handle | Error | None] = [None] * jobs
        self.attach = attach
        self.handle = handle  # of an attach; None makes a new one
        self.status: JobStatus | None = None
        self.error: Error | None = None

    def open(self, index: int) -> bool:
        return 0 <= index < len(self.submitted) and self.submitted[index] is None

    def answer(self, index: int, outcome: Handle | Error) -> bool:
        """Takes the answer to one job of a submit, and reports whether it was the last one."""
        if not self.open(index):
            return False
        self.submitted[index] = outcome
        self.missing -= 1
        return self.missing == 0

    def fail(self, error: Error) -> None:
        for i in range(len(self.submitted)):
            self.answer(i, error)
        self.error = error
        self.missing = 0


class _Connection:
    """One connection to one replica."""

    def __init__(self, client: Client, socket: Socket, url: int, first: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        self.client = client
        self.socket = socket
        self.url = url
        self.host = host_of(client._urls[url])
        self.welcome: frames.WelcomeMessage = first[0]
        self.early: list[frames.ReplicaMessage] = first[1:]  # messages that came with the welcome
        self.since = loop.time()
        self.pending: dict[str, _Call] = {}
        self.leaving = False  # the replica sent goaway
        self.closing = False  # all answers have come
        self.dead = False
        self.news = asyncio.Event()  # set by goaway and by the end
        self.ended = asyncio.Event()
        self.orphans = asyncio.Event()  # set if there may be jobs to take over
        self.writing = asyncio.Lock()

    def begin(self, call: _Call) -> str:
        self.client._last_id += 1
        request = f"{self.client._last_id:x}"
        self.pending[request] = call
        return request

    async def send(self, text: str) -> bool:
        """Returns False if nothing was sent, as the connection has ended."""
        async with self.writing:
            if not self.dead:
                try:
                    await self.socket.send(text)
                    return True
                except NotSent:
                    pass
                except Closed:
                    return True
        await self.ended.wait()
        return False

    # Tasks of a connection.

    async def read(self) -> None:
        reason: BaseException | None = None
        try:
            for message in self.early:
                self.receive(message)
            while True:
                frame = _json.loads(await self.socket.recv())
                for message in frame if isinstance(frame, list) else (frame,):
                    self.receive(message)
        except (Closed, ValueError, TypeError, KeyError, AttributeError) as err:
            reason = err
        finally:
            self.socket.cut()
            self.client._drop(self, reason)

    async def ping(self) -> None:
        while True:
            await asyncio.sleep(self.client._ping_interval)
            if not await self.socket.alive(self.client._ping_timeout):
                _log.warning("replica %s does not answer", self.host)
                self.socket.cut()
                return

    async def adopt_all(self) -> None:
        """Attaches, over this connection, to the jobs whose connections are lost."""
        places = asyncio.Semaphore(_ADOPT_LIMIT)

        async def adopt(handle: Handle) -> None:
            try:
                await self.adopt(handle)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            while not self.leaving:
                await self.orphans.wait()
                self.orphans.clear()
                for handle in self.client._take_orphans(self):
                    await places.acquire()
                    group.create_task(adopt(handle))

    async def adopt(self, handle: Handle) -> None:
        """Attaches to one job. If the connection is lost meanwhile, the job goes to the next one."""
        pauses = self.client._backoff()
        while not (self.dead or self.leaving or handle.done):
            call = _Call([handle.job_id], attach=True, handle=handle)
            request = self.begin(call)
            if not await self.send(_json.dumps({"type": "attach", "id": request, "job_id": handle.job_id})):
                return
            await call.done
            if call.error is None or call.broken:
                return
            if not call.error.temporary:
                self.client._finish(handle, None, call.error)
                return
            await asyncio.sleep(pauses.next())

    # Messages. Unknown types and answers without a call are ignored.

    def receive(self, m: frames.ReplicaMessage) -> None:
        jobs = self.client._jobs
        if m["type"] == "accepted":
            self._accepted(m)
        elif m["type"] == "assigned":
            if handle := jobs.get(m["job_id"]):
                handle._assign(m["node"], m["attempt"])
        elif m["type"] == "progress":
            if handle := jobs.get(m["job_id"]):
                handle._report(Progress.read(m))
        elif m["type"] == "result":
            status = JobStatus(m["job"])
            if handle := jobs.get(status.job_id):
                self.client._finish(handle, status, None)
        elif m["type"] == "status":
            self._status(m)
        elif m["type"] == "error":
            self._failed(m)
        elif m["type"] == "detached":
            # The job went to another client, unless this one took it to another connection.
            detached = jobs.get(m["job_id"])
            if detached is None or detached._connection is not self:
                pass
            elif detached._ghosts > 0:
                detached._ghosts -= 1
                self.client._spawn(self.adopt(detached))
            else:
                gone = Error("unavailable", "another client attached to the job and gets its result")
                self.client._finish(detached, None, gone)
        elif m["type"] == "goaway" and not self.leaving:
            self.leaving = True
            self.client._unuse(self)
            self.news.set()

    def _accepted(self, m: frames.AcceptedMessage) -> None:
        call = self.pending.get(m["id"])
        index = m.get("index", 0)
        if call is None or not call.open(index):
            return
        handle = self.client._jobs.get(m["job_id"])
        if handle is None:
            handle = Handle(m["job_id"], m.get("position", 0), self)
            self.client._jobs[handle.job_id] = handle
        elif not self.leaving:  # its idempotency key belongs to a job of this client
            handle._connection = self
        handle._ghosts += self.client._ghosts.pop(call.names[index], 0)
        if call.answer(index, handle):
            self._answered(m["id"], call)

    def _failed(self, m: frames.ErrorMessage) -> None:
        call = self.pending.get(m.get("id", ""))
        if call is None:
            return
        error = from_answer(m)
        if not call.submitted or "index" not in m:  # about the whole frame
            call.fail(error)
            self._answered(m["id"], call)
        elif call.answer(m["index"], error):
            self._answered(m["id"], call)

    def _status(self, m: frames.StatusMessage) -> None:
        """Takes the answer to a cancel or an attach. The next message can be the job's result."""
        call = self.pending.get(m["id"])
        if call is None or call.submitted:
            return
        call.status = JobStatus(m["job"])
        call.missing = 0
        if call.attach:
            self._attached(call, call.status)
        self._answered(m["id"], call)

    def _attached(self, call: _Call, status: JobStatus) -> None:
        client = self.client
        if call.handle is None:
            known = client._jobs.get(status.job_id)
            if known is not None:
                call.handle = known
                known._connection = self
            else:
                call.handle = Handle(status.job_id, status.position, self)
                if not status.ended:
                    client._jobs[status.job_id] = call.handle
        call.handle._ghosts += client._ghosts.pop(status.job_id, 0)
        call.handle._report(status.progress)
        if status.ended:
            client._finish(call.handle, status, None)
        elif status.state in ("running", "cancelling"):
            # The status of a waiting job names the node on which it ran last.
            call.handle._assign(status.node, status.attempt)

    def _answered(self, request: str, call: _Call) -> None:
        self.pending.pop(request, None)
        if not call.done.done():
            call.done.set_result(None)
        if self.leaving:
            # A job may have come with it, or this was the last answer of the connection.
            self.client._signal_orphans()

    def fail_pending(self, error: Error, broken: bool) -> None:
        for request, call in list(self.pending.items()):
            call.broken = broken
            if broken:
                self.client._lose(call)
            call.fail(error)
            self._answered(request, call)


class Client:
    """Submits jobs over one connection, which it renews as needed.

    ``urls`` are addresses of replicas, such as ``ws://127.0.0.1:7480``, with commas between.
    ``token_source`` is asked for a token at each connect, in place of ``token``; it may be a
    coroutine function. ``tls`` replaces the default context for ``wss://``. Times are in seconds.

        async with Client("wss://scheduler.example.com:7480", token=token) as client:
            print(await client.run("tts", {"text": "hello"}, target_language="de"))

    A client belongs to the event loop in which it connects. ``freeslot.sync`` has one for threads.
    """

    def __init__(
        self,
        urls: str,
        *,
        token: str = "",
        token_source: TokenSource | None = None,
        name: str = "",
        tls: ssl.SSLContext | None = None,
        dial_timeout: float = 10.0,
        min_backoff: float = 0.1,
        max_backoff: float = 5.0,
        ping_interval: float = 20.0,
        ping_timeout: float = 10.0,
        max_message_bytes: int = 64 << 20,
    ) -> None:
        self._urls = client_urls(urls)
        if token and token_source is not None:
            raise invalid("token_source", "is given beside token, expected one of them")
        self._token = token
        self._token_source = token_source
        self._agent = f"freeslot-python ({name})" if name else "freeslot-python"
        self._tls = tls
        self._dial_timeout = dial_timeout
        self._min_backoff, self._max_backoff = min_backoff, max_backoff
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._max_message_bytes = max_message_bytes

        self._loop: asyncio.AbstractEventLoop | None = None
        self._current: _Connection | None = None  # takes new requests
        self._ready = asyncio.Event()  # set while there is a current connection, and once closed
        self._connections: set[_Connection] = set()  # the current one, and those that still bring answers
        self._jobs: dict[str, Handle] = {}  # accepted jobs without a result
        self._ghosts: dict[str, int] = {}  # lost requests by name, the oldest first
        self._closed = False
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Connecting and closing.

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects to a replica. Each address is tried once; the first error is raised."""
        if self._loop is not None or self._closed:
            raise ClosedError() if self._closed else RuntimeError("connect was called before")
        if self._token or self._token_source is not None:
            warn_of_plain(_log, self._urls)
        self._loop = asyncio.get_running_loop()
        try:
            first = await self._dial_any()
        except BaseException:
            self._loop = None
            raise
        self._use(first)
        self._spawn(self._stay_connected(first))

    async def _dial_any(self) -> _Connection:
        failures: list[Error] = []
        for index in range(len(self._urls)):
            try:
                return await self._dial(index)
            except Error as err:
                failures.append(err)
        error = failures[0]
        error.message = "; ".join(failure.message for failure in failures)
        raise error

    async def close(self) -> None:
        """Ends the connection. Calls under way and waits without a result raise ClosedError.

        The jobs go on. It takes up to ten seconds if the replica does not answer.
        """
        if self._closed:
            return
        self._closed = True
        self._ready.set()
        open_now = list(self._connections)
        for connection in open_now:
            connection.fail_pending(ClosedError(), False)
        for handle in list(self._jobs.values()):
            self._finish(handle, None, ClosedError())
        for task in list(self._tasks):
            if task.get_name() != "read":
                task.cancel()
        await asyncio.gather(*(c.socket.close(_GOODBYE_TIMEOUT) for c in open_now), return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str = "") -> None:
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, index: int) -> _Connection:
        """Connects to one replica and takes its welcome."""
        url = self._urls[index]
        token = await self._ask_token()
        headers = {"User-Agent": self._agent}
        if token:
            headers["Authorization"] = "Bearer " + token
        host = host_of(url)
        try:
            async with asyncio.timeout(self._dial_timeout):
                socket = await Socket.open(
                    url,
                    protocol=CLIENT_PROTOCOL,
                    headers=headers,
                    tls=self._tls,
                    max_bytes=self._max_message_bytes,
                )
                try:
                    return _Connection(self, socket, index, await _welcome(socket))
                except BaseException:
                    socket.cut()
                    raise
        except Refused as err:
            if (refusal := refusal_of(err)) is not None:
                refusal.message = f"connect to {host}: {refusal.message}"
                raise refusal from None
            raise Error("unavailable", f"connect to {host}: {err}") from None
        except Exception as err:
            raise Error("unavailable", f"connect to {host}: {reason_of(err)}") from err

    async def _ask_token(self) -> str:
        if self._token_source is None:
            return self._token
        got = self._token_source()
        if not inspect.isawaitable(got):
            return str(got or "")
        try:
            async with asyncio.timeout(self._dial_timeout) as limit:
                token: str = await got
                return token
        except TimeoutError:
            if not limit.expired():  # it is the source's own
                raise
            raise Error("unavailable", "token_source: no answer in time", "token_source") from None

    def _backoff(self) -> Backoff:
        return Backoff(self._min_backoff, self._max_backoff, 2)

    async def _stay_connected(self, connection: _Connection) -> None:
        pauses = self._backoff()
        while True:
            await connection.news.wait()
            pause = 0.0
            if asyncio.get_running_loop().time() - connection.since < _STABLE_AFTER:
                pause = pauses.next()
            else:
                pauses.reset()
                if connection.dead:  # all clients of the replica come at the same time
                    pause = random.random() * self._min_backoff
            connection = await self._reconnect((connection.url + 1) % len(self._urls), pause, pauses)
            self._use(connection)

    async def _reconnect(self, index: int, pause: float, pauses: Backoff) -> _Connection:
        """Tries the addresses in turn, and pauses after each round."""
        tried = 0
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._dial(index)
            except Exception as err:  # also of the token source
                _log.warning("%s", err)
            tried += 1
            index = (index + 1) % len(self._urls)
            pause = pauses.next() if tried % len(self._urls) == 0 else 0.0

    def _use(self, connection: _Connection) -> None:
        self._connections.add(connection)
        self._current = connection
        self._ready.set()
        self._spawn(connection.read(), "read")
        self._spawn(self._until_end(connection, connection.ping))
        self._spawn(self._until_end(connection, connection.adopt_all))
        self._signal_orphans()
        _log.info("connected to %s", connection.host)

    async def _until_end(self, connection: _Connection, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs work that ends with its connection."""
        task = asyncio.create_task(work())
        try:
            await connection.ended.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _unuse(self, connection: _Connection) -> None:
        """Sends no further requests over a connection. Answers under way still come."""
        if self._current is connection and not self._closed:
            self._current = None
            self._ready.clear()

    def _drop(self, connection: _Connection, reason: BaseException | None) -> None:
        connection.dead = True
        self._unuse(connection)
        connection.fail_pending(_broken(), True)
        self._connections.discard(connection)
        self._signal_orphans()
        connection.ended.set()
        connection.news.set()
        if not self._closed and not connection.closing:
            _log.info("disconnected from %s: %s", connection.host, reason)

    def _lose(self, call: _Call) -> None:
        """Remembers a request without an answer that may be carried out later."""
        for i, name in enumerate(call.names):
            if name and (call.attach or call.open(i)):
                if call.handle is not None:
                    call.handle._ghosts += 1
                    continue
                self._ghosts[name] = self._ghosts.pop(name, 0) + 1
                if len(self._ghosts) > _MOST_GHOSTS:
                    del self._ghosts[next(iter(self._ghosts))]

    def _signal_orphans(self) -> None:
        if self._current is not None:
            self._current.orphans.set()

    def _take_orphans(self, connection: _Connection) -> list[Handle]:
        """Moves the jobs of lost and leaving connections to this one, and closes those that have ended."""
        orphans = []
        for handle in self._jobs.values():
            former = handle._connection
            if former is not connection and (former.dead or former.leaving):
                handle._connection = connection
                orphans.append(handle)
        for former in self._connections:
            if former.leaving and not former.pending and not former.closing:
                former.closing = True
                self._spawn(former.socket.close(_GOODBYE_TIMEOUT))
        return orphans

    def _finish(self, handle: Handle, status: JobStatus | None, error: Error | None) -> None:
        if handle.done:
            return
        if status is not None:
            handle._assign(status.node, status.attempt)
        if self._jobs.get(handle.job_id) is handle:
            del self._jobs[handle.job_id]
        handle._status, handle._error = status, error
        handle._wake()

    # Calls.

    async def _connected(self) -> _Connection:
        if self._loop is not asyncio.get_running_loop():
            if self._loop is None and not self._closed:
                raise RuntimeError("connect first, or use the client with async with")
            if not self._closed:
                raise RuntimeError("the client belongs to another event loop")
        while True:
            await self._ready.wait()
            if self._closed:
                raise ClosedError()
            if self._current is not None:
                return self._current

    async def _do(self, make: Callable[[], _Call], encode: Callable[[str], str]) -> _Call:
        """Sends a request and waits for its answers. A request that was sent is never repeated."""
        while True:
            connection = await self._connected()
            call = make()
            request = connection.begin(call)
            try:
                if await connection.send(encode(request)):
                    await call.done
                    return call
            except asyncio.CancelledError:
                if connection.pending.pop(request, None) and connection.leaving:
                    self._signal_orphans()
                raise
            connection.pending.pop(request, None)
            if self._closed:
                raise ClosedError()

    async def submit(self, job: Job | str, payload: Any = None, **options: Any) -> Handle:
        """Submits a job and returns when it is accepted. It may still wait for a free slot.

        ``job`` is a Job, or the name of its service with ``payload`` and options: the fields of Job
        and of Requirement. While there is no connection, submit waits for one.

        Raises Error. With code ``unavailable`` the job may have been accepted.
        """
        made = make_job(job, payload, options)
        connection = await self._connected()
        text = encode_job("job", made, connection.welcome["max_payload_bytes"])
        call = await self._do(
            lambda: _Call([_ghost(made)]), lambda request: f'{{"type":"submit","id":"{request}","job":{text}}}'
        )
        outcome = call.submitted[0]
        if isinstance(outcome, Handle):
            return outcome
        raise outcome or _broken()

    async def run(self, job: Job | str, payload: Any = None, **options: Any) -> Any:
        """Submits a job, waits for its end and returns its result. JobError if it did not succeed."""
        return await (await self.submit(job, payload, **options)).result()

    async def batch(self, jobs: Iterable[Job]) -> list[Handle | Error]:
        """Submits jobs in as few frames as the replica's limits allow.

        It returns when each job is accepted or refused, in the order of the jobs. It raises only if
        nothing was sent.
        """
        wanted = list(jobs)
        if not wanted:
            raise invalid("jobs", "is empty")
        connection = await self._connected()
        results: list[Handle | Error] = [_broken()] * len(wanted)
        parts = _split(wanted, results, connection)
        places = asyncio.Semaphore(_BATCH_CALLS)

        async def submit(part: list[tuple[int, str]]) -> None:
            text = ",".join(job for _, job in part)
            names = [_ghost(wanted[i]) for i, _ in part]
            async with places:
                try:
                    call = await self._do(
                        lambda: _Call(names),
                        lambda request: f'{{"type":"submit","id":"{request}","jobs":[{text}]}}',
                    )
                except ClosedError as err:
                    for i, _ in part:
                        results[i] = err
                    return
            for (i, _), outcome in zip(part, call.submitted):
                results[i] = outcome or _broken()

        await asyncio.gather(*map(submit, parts))
        return results

    async def cancel(self, job_id: str) -> JobStatus:
        """Asks for a job to be cancelled, and returns its status.

        A running job is cancelling, a waiting one is cancelled. The handle, if there is one, gets
        the end. Raises Error; ``not_found`` if the tenant has no such job.
        """
        job = _json.dumps(job_id)
        while True:
            call = await self._do(_Call, lambda request: f'{{"type":"cancel","id":"{request}","job_id":{job}}}')
            if not call.broken:
                break
        if call.error is not None or call.status is None:
            raise call.error or _broken()
        return call.status

    async def attach(self, job_id: str) -> Handle:
        """Makes this client the one that gets a job's result, and returns the job's handle.

        A client that waited for the job before does not get it. Raises what cancel raises.
        """
        job = _json.dumps(job_id)
        while True:
            known = self._jobs.get(job_id)
            if known is not None:
                return known
            call = await self._do(
                lambda: _Call([job_id], attach=True), lambda request: f'{{"type":"attach","id":"{request}","job_id":{job}}}'
            )
            if not call.broken:
                break
        if call.error is not None or call.handle is None:
            raise call.error or _broken()
        return call.handle


async def _welcome(socket: Socket) -> list[Any]:
    """Returns the messages of the first frame. The first one is the welcome."""
    frame = _json.loads(await socket.recv())
    first: Sequence[Any] = frame if isinstance(frame, list) else [frame]
    if not first or not isinstance(first[0], dict):
        raise ValueError(f"this is no replica that speaks {CLIENT_PROTOCOL}")
    if first[0].get("type") != "welcome" or first[0].get("protocol") != CLIENT_PROTOCOL:
        raise ValueError(f"this is no replica that speaks {CLIENT_PROTOCOL}")
    limits = {name: first[0].get(name, 0) for name in ("max_payload_bytes", "max_batch", "max_frame_bytes")}
    return [{**first[0], **limits}, *first[1:]]


def _ghost(job: Job) -> str:
    """Names the ghost of a job's submit. One without a key makes a job of its own, or none."""
    return f"key {job.idempotency_key}" if job.idempotency_key else ""


def _split(
    jobs: list[Job], results: list[Handle | Error], connection: _Connection
) -> list[list[tuple[int, str]]]:
    """Makes frames of the jobs that can be sent, and puts the errors of the others into results."""
    most, most_bytes = connection.welcome["max_batch"], connection.welcome["max_frame_bytes"]
    parts: list[list[tuple[int, str]]] = []
    part: list[tuple[int, str]] = []
    size = 128  # of the frame itself
    for i, job in enumerate(jobs):
        try:
            text = encode_job(f"jobs[{i}]", job, connection.welcome["max_payload_bytes"])
        except Error as err:
            results[i] = err
            continue
        n = len(text.encode()) + 1
        if part and (len(part) == most or most_bytes and size + n > most_bytes):
            parts.append(part)
            part, size = [], 128
        part.append((i, text))
        size += n
    if part:
        parts.append(part)
    return parts
