"""Runs handlers: coroutines in the program's event loop, plain functions in threads or processes."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable

from ._ledger import Attempt
from ._running import Outcome, RunningJob, encode, outcome_of

if TYPE_CHECKING:
    from ._node import Node
    from ._process import Processes


@dataclass(frozen=True)
class Service:
    """A handler. kind is coroutine, thread or process."""

    handler: Callable[[RunningJob], Any]
    kind: str


class Handlers:
    """Runs the handlers of a node. Its methods are called in the node's loop."""

    def __init__(
        self,
        node: Node,
        services: dict[str, Service],
        loop: asyncio.AbstractEventLoop,
        slots: int,
        max_result_bytes: int,
    ) -> None:
        self._node = node
        self._services = services
        self._loop = loop  # the program's
        self._max_result_bytes = max_result_bytes
        self._threads = _Threads(slots)
        self._processes: Processes | None = None
        self._lock = threading.Lock()
        self._starts: list[_Coroutine] = []

    def begin(self, attempt: Attempt) -> None:
        job = attempt.job or {}
        service = self._services[job["service"]]
        running = RunningJob(
            job.get("payload"),
            id=attempt.job_id,
            attempt=attempt.number,
            tenant=attempt.tenant,
            service=job["service"],
            slots=attempt.slots,
            requirement=job.get("requirement"),
            traceparent=job.get("traceparent", ""),
            report=lambda raw: self._node.report(attempt, raw),
        )
        attempt.work = _Thread(running)
        try:
            self._begin(attempt, running, service)
        except Exception as err:
            # No thread could be started, for instance. The job may fare better elsewhere.
            message = f"the handler did not start: {err}"
            self.returned(attempt, Outcome(code="start_failed", message=message, retryable=True))

    def _begin(self, attempt: Attempt, job: RunningJob, service: Service) -> None:
        if service.kind == "coroutine":
            attempt.work = _Coroutine(self, attempt, job, service.handler)
            self._start(attempt.work)
        elif service.kind == "thread":
            self._threads.submit(self._call, attempt, job, lambda: self._encode(service.handler(job)))
        else:
            if self._processes is None:
                from ._process import Processes

                self._processes = Processes(self._max_result_bytes)
            attempt.work = self._processes.prepare(job, service.handler)
            self._threads.submit(self._call, attempt, job, attempt.work)

    def cancel(self, attempt: Attempt) -> None:
        attempt.work.cancel(attempt.cause)

    def give_up(self, attempt: Attempt) -> None:
        attempt.work.give_up()

    def close(self) -> None:
        """Ends idle threads and processes."""
        self._threads.close()
        if self._processes is not None:
            self._processes.close()

    def returned(self, attempt: Attempt, outcome: Outcome) -> None:
        self._node.post(self._node.returned, attempt, outcome)

    def _encode(self, result: Any) -> Outcome:
        return encode(result, self._max_result_bytes)

    def _call(self, attempt: Attempt, job: RunningJob, work: Callable[[], Outcome]) -> None:
        try:
            outcome = work()
        except BaseException as err:
            outcome = outcome_of(err, job)
        self.returned(attempt, outcome)

    # Coroutines. Those that begin at the same time wake the program's loop once.

    def _start(self, run: _Coroutine) -> None:
        with self._lock:
            self._starts.append(run)
            if len(self._starts) > 1 and not self._loop.is_closed():
                return
        if not self.in_program(self._start_all):
            for run in self._take_starts():
                run.lose()

    def _take_starts(self) -> list[_Coroutine]:
        with self._lock:
            starts, self._starts = self._starts, []
        return starts

    def _start_all(self) -> None:
        for run in self._take_starts():
            run.start(self._loop)

    def in_program(self, call: Callable[[], None]) -> bool:
        """Has call run in the program's loop. False if the program has closed that."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    async def run(self, job: RunningJob, handler: Callable[[RunningJob], Any]) -> Outcome:
        try:
            return self._encode(await handler(job))
        except asyncio.CancelledError:
            raise
        except BaseException as err:  # sys.exit in a handler must not end the program's loop
            return outcome_of(err, job)


class _Coroutine:
    """A coroutine of the program. cancel and give_up are called in the node's loop."""

    __slots__ = ("attempt", "ended", "handler", "handlers", "job", "task")

    def __init__(
        self, handlers: Handlers, attempt: Attempt, job: RunningJob, handler: Callable[[RunningJob], Any]
    ) -> None:
        self.handlers = handlers
        self.attempt = attempt
        self.job = job
        self.handler = handler
        self.task: asyncio.Task[Outcome] | None = None
        self.ended = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task = loop.create_task(self.handlers.run(self.job, self.handler))
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Outcome]) -> None:
        # A CancelledError without a cancel is the handler's own.
        cancelled = Outcome(code="handler_error", interrupted=task.cancelling() > 0)
        self._end(cancelled if task.cancelled() else task.result())

    def _end(self, outcome: Outcome) -> None:
        if not self.ended:
            self.ended = True
            self.handlers.returned(self.attempt, outcome)

    def lose(self) -> None:
        """Ends the job because the program's loop is closed. So nothing else ends it meanwhile."""
        self._end(Outcome(code="handler_error", interrupted=True))

    def cancel(self, cause: str) -> None:
        self.job._cancel(cause)
        if not self.handlers.in_program(self._cancel):
            self.lose()

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def give_up(self) -> None:
        pass


class _Thread:
    __slots__ = ("cancel",)

    def __init__(self, job: RunningJob) -> None:
        self.cancel = job._cancel

    def give_up(self) -> None:
        pass


class _Threads:
    """A bounded pool. Its threads do not keep the program from ending while a handler hangs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._queue: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()

    def submit(self, call: Callable[..., None], *args: Any) -> None:
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            threading.Thread(target=self._work, name=f"freeslot-handler-{self._count + 1}", daemon=True).start()
            self._count += 1
        self._queue.put((call, args))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            call, args = item
            call(*args)
            del call, args, item  # a job's payload must not live until the next job comes
            self._idle.release()

    def close(self) -> None:
        for _ in range(self._count):
            self._queue.put(None)
