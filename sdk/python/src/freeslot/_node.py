"""The node's side of a worker: heartbeats, leases, progress and the lives of attempts.

All of it runs in one event loop, in a thread of its own, so that no handler holds it up. Handlers
run elsewhere (see _runner.py), and only post to it. The rules are those of docs/node-protocol.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Protocol

from . import _json
from ._backoff import Backoff
from ._errors import Error, SupersededError
from ._gateway import Config, DialError, Gateway, Lost, Room
from ._ledger import (
    CANCELLED,
    LEASE_LOST,
    RUNNING,
    STALLED,
    STOPPING,
    WAITING,
    Attempt,
    Ledger,
)
from ._protocol import MAX_REPORTS, gateway_urls, warn_of_plain
from ._running import Outcome

if TYPE_CHECKING:
    from . import _node_frames as frames

_log = logging.getLogger("freeslot.worker")

_MIN_BEAT_GAP = 0.02
_START_TIMEOUT = 15.0  # of one attempt to connect and to register
_DRAINING_TIMEOUT = 1.0  # for which a job that is handed back waits until Redis knows that the node stops
_REPORT_TIMEOUT = 2.0  # for reports of interrupted jobs
_PATIENCE = 10.0  # for which a job waits for slots that a stuck handler has
_STOP_GRACE = 30.0  # within which a handler must return that its node has stopped or does not own
_MAX_ERROR_BYTES = 8 << 10
_MAX_RETRY_AFTER = 3600.0
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 300.0


@dataclass
class Settings:
    """Of a node. Times are in seconds."""

    gateway: Config
    profile: dict[str, Any]
    slots: int
    heartbeat_interval: float
    metadata_interval: float
    progress_interval: float
    stop_timeout: float
    interrupt_grace: float
    services: frozenset[str] = field(default_factory=frozenset)
    stop_grace: float = _STOP_GRACE


class Runner(Protocol):
    """Runs handlers. Its methods are called in the node's loop, and do not block."""

    def begin(self, attempt: Attempt) -> None: ...

    def cancel(self, attempt: Attempt) -> None: ...

    def give_up(self, attempt: Attempt) -> None: ...


class Figures(Protocol):
    """What a node tells about its machine."""

    def latest(self) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
        """Returns figures by type, and by type the time (monotonic) at which they were taken."""


class Node:
    def __init__(self, settings: Settings, runner: Callable[[Node], Runner], figures: Figures) -> None:
        self.settings = settings
        self._figures = figures
        self._runner = runner(self)
        self.ledger = Ledger(settings.slots, self._stopped)
        self.slots = Room(settings.slots)
        self._slot_waiters: deque[Attempt] = deque()
        self.limit = 0.0  # the heartbeat limit
        self._gateway: Gateway | None = None
        self._loop = asyncio.get_running_loop()
        self._beat_now = asyncio.Event()
        self._draining = asyncio.Event()  # set once no more jobs are placed here
        self._idle = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stop = asyncio.Event()
        self._failed = asyncio.Event()  # another process has the node
        self._reported = asyncio.Event()
        self._failure: Error | None = None
        self._lease: asyncio.TimerHandle | None = None
        self._lease_lost = False
        self._withheld = 0  # slots of handlers that were given up and have not returned
        self._registered = 0  # slots in the last registration; 0 if Redis does not know the node
        self._doubted = False  # Redis may have lost the profile
        self._sent: dict[str, float] = {}  # figures in the last heartbeat that brought any
        self._sent_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: dict[str, Attempt] = {}
        self._progress_news = asyncio.Event()
        self.handling = 0
        # Posts of handlers' threads.
        self._lock = threading.Lock()
        self._posts: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # Posts from other threads.

    def post(self, call: Callable[..., None], *args: Any) -> None:
        """Has call run in the node's loop. Any thread may post; nothing happens once the loop has ended."""
        with self._lock:
            self._posts.append((call, args))
            if len(self._posts) > 1:
                return
        try:
            self._loop.call_soon_threadsafe(self._take_posts)
        except RuntimeError:  # the loop is closed
            pass

    def _take_posts(self) -> None:
        with self._lock:
            posts, self._posts = self._posts, []
        for call, args in posts:
            try:
                call(*args)
            except Exception as err:  # the other posts count all the same
                self._break(err)

    # Life.

    async def start(self) -> None:
        """Connects and registers. While no gateway can be reached it tries again.

        Raises Error if the node is refused. stop ends it.
        """
        warn_of_plain(_log, gateway_urls(self.settings.gateway.gateway))
        pauses = Backoff(self.settings.gateway.first_pause, self.settings.gateway.longest_pause)
        said = ""
        while not self._stop.is_set():
            # Each try is an incarnation of its own: an earlier one whose answer was lost may have registered.
            gateway = Gateway(
                self.settings.gateway, os.urandom(16).hex(), self._job, self.ledger.ask, self.request_beat, self._ended
            )
            self._gateway = gateway
            try:
                async with asyncio.timeout(_START_TIMEOUT):
                    await gateway.start()
                    await self._register()
            except BaseException as err:
                await self._undo(gateway)
                if not isinstance(err, (Error, TimeoutError)):
                    raise
                if isinstance(err, DialError) and not err.passing or isinstance(err, Error) and not err.temporary:
                    raise
                if said != str(err):
                    said = str(err)
                    _log.warning("node %s is not registered yet: %s", self.settings.gateway.node, err)
                await _wait(self._stop, pauses.next())
                continue
            self._lease = self._loop.call_later(self.limit, self._lose_lease)
            for work in (self._heartbeats(), self._progresses()):
                self._spawn(work)
            return
        raise Error("closed", "the worker was stopped before it had started")

    async def _undo(self, gateway: Gateway) -> None:
        """Leaves nothing behind of a start that failed: its registration may have been carried out."""
        if gateway.current is not None and not gateway.registered and gateway.fatal is None:
            try:
                await gateway.deregister()
            except (Error, Lost):
                pass
        await gateway.stop()

    async def run(self) -> None:
        """Waits until the worker stops or is superseded, and ends it. Raises SupersededError."""
        loops = list(self._tasks)
        await _first(self._stop, self._failed)
        if not self._failed.is_set():
            await self._drain()
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        self.ledger.closed = True
        if self._failed.is_set():
            await self._supersede()
        for task in list(self._tasks):  # reports without an answer
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lease is not None:
            self._lease.cancel()
        assert self._gateway is not None
        if not self._failed.is_set():
            try:
                if lost := await self._gateway.deregister():
                    _log.warning("jobs %s were handed back, as their ends could not be reported", lost)
            except (Error, Lost) as err:
                _log.warning("the node could not be deregistered: %s", err)
        await self._gateway.stop()
        if self.handling:
            _log.warning("%d handlers ignore that they were stopped, and still run", self.handling)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Begins to stop in order."""
        self._stop.set()

    async def stopping(self) -> None:
        """Waits until the worker is asked to stop."""
        await self._stop.wait()

    def hurry(self) -> None:
        """Stops, and does not wait for running handlers."""
        self._hurry.set()
        self._stop.set()

    def _fail(self, error: SupersededError) -> None:
        self._failure = self._failure or error
        self._failed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            self._break(err)

    def _break(self, err: BaseException) -> None:
        """Ends the worker after a defect. Its jobs go to other nodes."""
        _log.error("a defect of the worker ends it", exc_info=err)
        self._failure = self._failure or Error("internal", f"a defect of the worker: {err!r}")
        self.hurry()

    async def _drain(self) -> None:
        """Lets running handlers end, then interrupts them, then gives up those that do not return."""
        _log.info("node %s drains", self.settings.gateway.node)
        self.ledger.drain()
        self._check_idle()
        self.request_beat()
        if await _first(self._idle, self._failed, self._hurry, timeout=self.settings.stop_timeout) in (0, 1):
            return
        if jobs := self.ledger.interrupt():
            _log.info("jobs %s are interrupted", jobs)
        if await _first(self._idle, self._failed, timeout=self.settings.interrupt_grace) in (0, 1):
            return
        for attempt in list(self.ledger.held.values()):
            self._give_up(attempt)
        await _first(self._idle, self._failed, timeout=_REPORT_TIMEOUT)

    async def _supersede(self) -> None:
        """Stops every handler and waits a little for them. Their results are dropped."""
        _log.error("another process has registered node %s", self.settings.gateway.node)
        self.ledger.draining = True
        self.ledger.abandon()
        self._check_idle()
        await _first(self._idle, timeout=self.settings.interrupt_grace)
        for attempt in list(self.ledger.held.values()):
            self._give_up(attempt)

    def _check_idle(self) -> None:
        if self.ledger.draining and not self.ledger.held:
            self._idle.set()

    # Attempts.

    def _job(self, delivery: frames.Delivery) -> None:
        """Starts an attempt that the node owns, unless it is known."""
        attempt = self.ledger.offer(delivery["attempt"], delivery.get("job"), str(delivery.get("tenant", "")))
        if attempt is None:
            return
        if attempt.cause:
            self._end_unbegun(attempt)
        elif attempt.job is None:
            self._spawn(self._read_spec(attempt))
        else:
            self._await_slots(attempt)

    async def _read_spec(self, attempt: Attempt) -> None:
        pauses = Backoff(0.05, 2.0)
        assert self._gateway is not None
        while not attempt.cause:
            try:
                attempt.job, attempt.tenant = await self._gateway.spec(attempt.job_id)
            except Error as err:
                if err.code in ("not_found", "invalid_argument"):
                    # No client waits for an end. If the node still owns the attempt, it is offered again.
                    _log.warning("job %s has no record: %s", attempt.job_id, err)
                    self.ledger.disown(attempt.id)
                    return
                await asyncio.sleep(pauses.next())
            except (Lost, TimeoutError, OSError, EOFError, ValueError):
                await asyncio.sleep(pauses.next())
            else:
                if not attempt.cause:
                    self._await_slots(attempt)
                return

    def _await_slots(self, attempt: Attempt) -> None:
        slots = (attempt.job or {}).get("slots", 1)
        attempt.slots = slots if isinstance(slots, int) and slots > 0 else 1
        self._slot_waiters.append(attempt)
        self._grant()
        if attempt.phase == WAITING and not attempt.left:
            attempt.timer = self._loop.call_later(_PATIENCE, self._end_unbegun, attempt)

    def _grant(self) -> None:
        while self._slot_waiters:
            attempt = self._slot_waiters[0]
            if attempt.left:
                self._slot_waiters.popleft()
                continue
            if not self.slots.try_take(attempt.slots):
                return
            self._slot_waiters.popleft()
            attempt.has_slots = True
            self._begin(attempt)

    def _release(self, attempt: Attempt) -> None:
        if attempt.has_slots:
            attempt.has_slots = False
            self.slots.give(attempt.slots)
            self._grant()

    def _begin(self, attempt: Attempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        attempt.begun = attempt.heard = time.monotonic()
        if not self.ledger.begin(attempt):
            self._end_unbegun(attempt)
            return
        job = attempt.job or {}
        if job.get("service") not in self.settings.services:
            message = f"node {self.settings.gateway.node} runs no service {job.get('service')}"
            self._conclude(attempt, Outcome(code="no_handler", message=message))
            self._release(attempt)
            return
        self.handling += 1
        if limit := job.get("progress_timeout_ms"):
            attempt.stall = self._loop.call_later(limit / 1000, self._stop_quiet, attempt, limit / 1000)
        self._runner.begin(attempt)

    def returned(self, attempt: Attempt, outcome: Outcome) -> None:
        """The handler has returned. The runner posts it, once for each attempt that it began."""
        self.handling -= 1
        if outcome.interrupted and not attempt.cause:
            attempt.cause = STOPPING
        if attempt.left:  # it was given up before
            self._withhold(-attempt.slots)
        else:
            self._conclude(attempt, outcome)
        self._release(attempt)

    def _stopped(self, attempt: Attempt) -> None:
        """The ledger has told an attempt to stop, or disowned one that had been told before."""
        if attempt.left:
            return
        if attempt.phase == WAITING:
            self._end_unbegun(attempt)
            return
        if attempt.phase != RUNNING:
            return
        self._runner.cancel(attempt)
        # While the worker stops, drain has limits of its own.
        if attempt.cause != STOPPING and not attempt.grace and not self._failed.is_set():
            if attempt.disowned or attempt.cause in (STALLED, LEASE_LOST):
                attempt.grace = True
                attempt.timer = self._loop.call_later(self.settings.stop_grace, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """Ends an attempt whose handler does not return. Its slots stay taken until it does."""
        if attempt.left or attempt.phase != RUNNING:
            return
        _log.error("the handler of job %s does not return", attempt.job_id)
        self._withhold(attempt.slots)
        self._conclude(attempt, Outcome(stuck=True))
        self._runner.give_up(attempt)

    def _withhold(self, slots: int) -> None:
        self._withheld += slots
        self.request_beat()

    def _stop_quiet(self, attempt: Attempt, limit: float) -> None:
        left = limit - (time.monotonic() - attempt.heard)
        if left > 0:
            attempt.stall = self._loop.call_later(left, self._stop_quiet, attempt, limit)
        elif attempt.phase == RUNNING:
            _log.warning("job %s reports no progress for %g s", attempt.job_id, limit)
            self.ledger.stop(attempt, STALLED)

    # Ends.

    def _end_unbegun(self, attempt: Attempt) -> None:
        """Ends an attempt whose handler was never called."""
        if attempt.left:
            return
        cause = attempt.cause
        if cause == CANCELLED or attempt.asked:
            end = '"state":"cancelled"'
        elif not cause:
            end = _hand_back("the node's slots did not come free in time")
        elif cause == LEASE_LOST:
            end = _hand_back("the node was cut off from Redis before the job began")
        else:
            end = _hand_back("the node stopped before the job began")
        self._end(attempt, end, 0)
        self._release(attempt)

    def _conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        """Decides what the handler's return means for the job."""
        cause = attempt.cause
        here = cause in (STALLED, LEASE_LOST)  # its own node has stopped it
        size = 0
        if outcome.stuck and not here:
            end = _hand_back("the node stopped while the job ran, and its handler did not return")
        elif outcome.broken:
            end = _failed(outcome.code, outcome.message)
        elif outcome.result is not None:
            size = outcome.size
            end = f'"state":"succeeded","result":{outcome.result}'
        elif here:
            end = self._failed_here(attempt, outcome)
        elif attempt.asked and cause:
            end = '"state":"cancelled"'
        elif cause == STOPPING:
            end = _hand_back("the node stopped while the job ran" + (f": {outcome.message}" if outcome.message else ""))
        elif outcome.retryable:
            end = _failed(outcome.code, outcome.message) + _retry(outcome.delay, attempt.number)
        else:
            end = _failed(outcome.code, outcome.message or "the handler was cancelled")
        self._end(attempt, end, size)

    def _failed_here(self, attempt: Attempt, outcome: Outcome) -> str:
        message = f"node {self.settings.gateway.node} could not reach Redis for {self.limit:g}s"
        if attempt.cause == STALLED:
            limit = (attempt.job or {}).get("progress_timeout_ms", 0) / 1000
            message = f"the handler reported no progress for {limit:g}s"
        if outcome.stuck:
            message += ", and has not returned since"
        elif outcome.message:
            message += f": {outcome.message}"
        return _failed(attempt.cause, message) + _retry(None, attempt.number)

    def _end(self, attempt: Attempt, end: str, result_bytes: int) -> None:
        for timer in (attempt.timer, attempt.stall):
            if timer is not None:
                timer.cancel()
        attempt.timer = attempt.stall = None
        attempt.left = True
        attempt.latest = None  # the end replaces an unsent report
        self.ledger.finish(attempt)
        if attempt.disowned:
            self._remove(attempt)
        else:
            self._spawn(self._report(attempt, end, result_bytes))

    def _remove(self, attempt: Attempt) -> None:
        if self.ledger.remove(attempt):
            self.request_beat()
        self._check_idle()

    async def _report(self, attempt: Attempt, end: str, result_bytes: int) -> None:
        """Tells how an attempt ended, until that is acknowledged or refused. The first report wins."""
        assert self._gateway is not None
        try:
            if end.endswith('"hand_back"') and attempt.cause:
                # Redis would otherwise give the slot to a waiting job, perhaps to the same one.
                await _first(self._draining, self._failed, timeout=_DRAINING_TIMEOUT)
            rest = f'"attempt":"{attempt.id}",{end}'
            pauses: Backoff | None = None
            while True:
                number = self.ledger.report()
                try:
                    outcome = await self._gateway.complete(rest, result_bytes)
                    if pauses is not None and outcome != "completed":
                        self.request_beat()  # for jobs that were in a lost answer
                    return
                except Error as err:
                    failure = err
                    if err.code == "superseded":
                        self._fail(SupersededError())
                        return
                    if err.code == "unknown_node":
                        self.request_beat()
                        return
                    if err.code in ("invalid_argument", "payload_too_large") and '"result":' in end:
                        end = _failed("handler_error", f"the result was refused: {err}")
                        rest, result_bytes = f'"attempt":"{attempt.id}",{end}', 0
                except (Lost, TimeoutError, OSError, EOFError, ValueError) as other:
                    failure = Error("unavailable", str(other) or "the connection was lost")
                finally:
                    self.ledger.reported(number)
                pauses = pauses or Backoff(self.settings.gateway.first_pause, self.settings.gateway.longest_pause)
                _log.debug("the end of job %s is reported again: %s", attempt.job_id, failure)
                self.request_beat()
                await asyncio.sleep(pauses.next())
        finally:
            self._remove(attempt)

    # Heartbeats.

    def request_beat(self) -> None:
        """Makes the loop beat at once; requests coalesce."""
        self._beat_now.set()

    async def _heartbeats(self) -> None:
        """Sends a heartbeat each interval, and at once when asked. No two are under way.

        After a failure it follows only its own growing pauses: the requests have the same cause.
        """
        interval = self.settings.heartbeat_interval
        pauses = Backoff(0.05, 2.0)
        failing = False
        wait = random.random() * interval
        while True:
            asked = failing
            if failing:
                await asyncio.sleep(wait)
            else:
                asked = await _wait(self._beat_now, wait)
            self._beat_now.clear()
            begun = time.monotonic()
            try:
                await self._beat(asked, begun)
            except SupersededError:
                return
            except Error as err:
                if not failing:
                    _log.warning("a heartbeat failed: %s", err)
                failing, self._doubted = True, True
                self._sent_at = float("-inf")
                wait = min(pauses.next(), interval)
                continue
            if failing:
                _log.info("heartbeats are answered again")
                failing = False
                pauses.reset()
            await asyncio.sleep(_MIN_BEAT_GAP)
            # Perhaps all nodes of a gateway were asked at once: they must not stay in step.
            pause = random.random() * interval if asked else interval * (1 - random.random() / 10)
            wait = max(pause - (time.monotonic() - begun), 0.0)

    async def _beat(self, asked: bool, begun: float) -> None:
        assert self._gateway is not None
        names, number = self.ledger.beat()
        stopping = self.ledger.draining
        parts = [f'"status":"{"draining" if stopping or self._offers() == 0 else "online"}"']
        if names:
            parts.append(f'"running":{_json.dumps(names)}')
        figures = self._resources(begun)
        if figures is not None:
            parts.append(f'"resources":{figures[0]}')
        if asked:
            parts.append('"now":true')
        try:
            beat = await self._gateway.heartbeat(",".join(parts))
        except Error as err:
            if err.code == "superseded":
                self._fail(SupersededError())
                raise SupersededError() from None
            if err.code != "unknown_node":
                raise
            if stopping:  # a draining node stays away
                self._draining.set()
                return
            _log.warning("Redis does not know the node any more; it registers again")
            self._registered = 0
            await self._register()
            self._sent_at = float("-inf")
            self.request_beat()
            return
        if figures is not None:
            self._sent, self._sent_at = figures[1], begun
        self._renew(begun)
        for name in beat.get("stop") or ():
            self.ledger.disown(name)
        for name in beat.get("cancel") or ():  # before start: such an attempt must not run
            self.ledger.ask(name)
        for name in beat.get("start") or ():
            self._job({"attempt": name, "tenant": ""})
        self.ledger.answered(number)
        if stopping:
            self._draining.set()
        elif self._doubted or max(self._offers(), 1) != self._registered:
            await self._register()

    async def _register(self) -> None:
        assert self._gateway is not None
        self._doubted = False
        offers = max(self._offers(), 1)  # a node that offers no slot is draining
        try:
            limit, lost = await self._gateway.register(
                _json.dumps({**self.settings.profile, "max_concurrency": offers})
            )
        except Error as err:
            self._doubted = True
            if err.code == "superseded":
                self._fail(SupersededError())
                raise SupersededError() from None
            raise
        self.limit = self.limit or limit
        self._registered = offers
        if lost:
            _log.warning("the node's earlier process left jobs %s unfinished", lost)

    def _offers(self) -> int:
        return max(self.settings.slots - self._withheld, 0)

    def _renew(self, begun: float) -> None:
        """Redis took the heartbeat in after begun, so the lease is never longer here than there."""
        if self._lease is not None:
            self._lease.cancel()
        left = max(begun + self.limit - time.monotonic(), 0.0)
        self._lease = self._loop.call_later(left, self._lose_lease)
        if self._lease_lost:
            self._lease_lost = False
            self.ledger.renew_lease()

    def _lose_lease(self) -> None:
        self._lease_lost = True
        if jobs := self.ledger.lose_lease():
            _log.warning("jobs %s are stopped: no heartbeat was answered for %g s", jobs, self.limit)

    def _resources(self, now: float) -> tuple[str, dict[str, float]] | None:
        """Returns the figures if they are due: after a while, or if one has changed by its threshold."""
        figures, taken = self._figures.latest()
        usage = {kind: figures[kind]["usage"] for kind in ("cpu", "memory") if "usage" in figures.get(kind, ())}
        due = now - self._sent_at >= self.settings.metadata_interval
        if not due and not any(
            abs(value - self._sent.get(kind, -1.0)) >= (0.2 if kind == "cpu" else 0.1) for kind, value in usage.items()
        ):
            return None
        running = [a for a in self.ledger.held.values() if a.phase == RUNNING]
        resources: dict[str, Any] = {"at_ms": 0}  # the first field: Redis fills it in
        if taken:
            resources["ages_ms"] = {kind: int((now - at) * 1000) for kind, at in taken.items()}
        for kind, value in usage.items():
            resources[f"{kind}_usage"] = value
        resources["current_jobs"] = self.handling
        resources["run_ms"] = int(sum(now - a.begun for a in running) * 1000)
        resources["max_concurrency"] = self.settings.slots
        if figures:
            resources["metrics"] = figures
        return _json.dumps(resources), usage

    # Progress.

    def progressed(self, attempt: Attempt) -> None:
        """A handler has reported. Posted once until the report was taken."""
        if attempt.left:
            return
        self._unsent[attempt.id] = attempt
        self._progress_news.set()

    async def _progresses(self) -> None:
        """Sends the handlers' progress, with one call under way, and gathers meanwhile."""
        pauses = Backoff(0.05, 2.0)
        wait: float | None = None
        failing = False
        assert self._gateway is not None
        while True:
            if failing:
                await asyncio.sleep(wait or 0.0)
            else:
                await _wait(self._progress_news, wait)
            self._progress_news.clear()
            now = time.monotonic()
            ready: list[tuple[Attempt, int, str]] = []
            next_due: float | None = None
            for attempt in list(self._unsent.values()):
                value, seq = attempt.latest, attempt.seq
                if attempt.left or value is None:
                    del self._unsent[attempt.id]
                elif attempt.progress_due <= now and len(ready) < MAX_REPORTS:
                    ready.append((attempt, seq, value))
                else:
                    left = max(attempt.progress_due - now, 0.0)
                    next_due = left if next_due is None else min(next_due, left)
            failing, wait = False, next_due
            if not ready:
                continue
            try:
                outcomes = await self._gateway.progress(
                    ",".join(f'{{"attempt":"{a.id}","seq":{seq},"value":{value}}}' for a, seq, value in ready)
                )
            except Error as err:
                _log.debug("progress was not taken: %s", err)
                failing, wait = True, pauses.next()
                continue
            pauses.reset()
            wait = 0.0 if self._unsent else None
            now = time.monotonic()
            for (attempt, seq, _), outcome in zip(ready, outcomes):
                attempt.progress_due = now + self.settings.progress_interval
                with self._lock:
                    if attempt.seq == seq:
                        attempt.latest, attempt.queued = None, False
                        self._unsent.pop(attempt.id, None)
                if outcome == "stale":
                    self.ledger.disown(attempt.id)
                elif outcome == "cancel":
                    self.ledger.ask(attempt.id)

    def report(self, attempt: Attempt, value: str) -> None:
        """Takes a report of a handler, in any thread. Only the latest is kept."""
        with self._lock:
            if attempt.left:
                return
            attempt.seq += 1
            attempt.latest = value
            attempt.heard = time.monotonic()
            if attempt.queued:
                return
            attempt.queued = True
        self.post(self.progressed, attempt)


def bounded(text: str) -> str:
    """Cuts a message, which is kept in Redis."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= _MAX_ERROR_BYTES:
        return raw.decode()
    return raw[:_MAX_ERROR_BYTES].decode("utf-8", "ignore") + "…"


def _failed(code: str, message: str) -> str:
    return f'"state":"failed","error":{_json.dumps({"code": code, "message": bounded(message)})}'


def _hand_back(message: str) -> str:
    """Makes the job wait again, for another node. The job has not failed."""
    return _failed("interrupted", message) + ',"next":"hand_back"'


def _retry(delay: float | None, attempt: int) -> str:
    """Jobs that failed together for one cause must not come back together."""
    if delay is None:
        delay = random.random() * min(_FIRST_RETRY * 2 ** min(attempt - 1, 20), _LONGEST_RETRY)
    return f',"next":"retry","retry_delay_ms":{int(min(max(delay, 0.0), _MAX_RETRY_AFTER) * 1000)}'


async def _wait(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for an event. False if the time was over before."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _first(*events: asyncio.Event, timeout: float | None = None) -> int:
    """Waits for one of the events and returns its place, or -1 when the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return next((i for i, event in enumerate(events) if event.is_set()), -1)
