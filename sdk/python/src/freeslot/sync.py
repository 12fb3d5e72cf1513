"""A client for programs without asyncio. It runs a ``Client`` in a thread of its own.

    with SyncClient("ws://127.0.0.1:7480") as client:
        print(client.run("upper", "hello"))
        handle = client.submit("tts", {"text": "hello"})
        for progress in handle.progress():
            print(progress.value)
        print(handle.result())

All methods block, may be called from any thread, and take a ``timeout`` in seconds (None is none).
When it is over they raise TimeoutError, and the job goes on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from types import TracebackType
from typing import Any, Coroutine, Iterable, Iterator, TypeVar

from ._errors import ClosedError, Error
from ._tasks import end_tasks
from ._types import Assignment, Job, JobStatus, Progress, make_job
from .client import Client, Handle

__all__ = ["SyncClient", "SyncHandle"]

T = TypeVar("T")

_CLOSE_GRACE = 5.0


class SyncHandle:
    """An accepted job; see Handle."""

    def __init__(self, client: SyncClient, handle: Handle) -> None:
        self._client = client
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SyncHandle {self.job_id}>"

    @property
    def job_id(self) -> str:
        return self._handle.job_id

    @property
    def position(self) -> int:
        return self._handle.position

    @property
    def assignment(self) -> Assignment | None:
        return self._handle.assignment

    @property
    def done(self) -> bool:
        return self._handle.done

    def assigned(self, timeout: float | None = None) -> Assignment | None:
        """Waits until the job has a node, or has ended without one (None)."""
        return self._client._call(self._handle.assigned(), timeout)

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Waits for the job's end, whatever that is."""
        return self._client._call(self._handle.wait(), timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the job's end and returns its result. JobError if it did not succeed."""
        return self._client._call(self._handle.result(), timeout)

    def progress(self) -> Iterator[Progress]:
        """Yields what the handler reports, until the job has ended."""
        reports = self._handle.progress()

        async def following() -> Progress | None:
            return await anext(reports, None)

        while (progress := self._client._call(following(), None)) is not None:
            yield progress


class SyncClient:
    """Takes the arguments of Client. Use it with ``with``, or call connect and close."""

    def __init__(self, urls: str, **options: Any) -> None:
        self._client = Client(urls, **options)
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = False  # no call begins any more

    def __enter__(self) -> SyncClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Connects to a replica. Raises Error."""
        if self._thread is not None:
            raise RuntimeError("connect was called before")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, args=(self._loop,), name="freeslot-client", daemon=True)
        self._thread.start()
        try:
            self._call(self._client.connect(), None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the connection; the jobs go on. Calls of other threads raise ClosedError."""
        if self._loop is None or self._thread is None or os.getpid() != self._process:
            return
        with self._lock:
            if not self._closing:
                self._closing = True
                asyncio.run_coroutine_threadsafe(self._stop(self._loop), self._loop)
        self._thread.join()

    async def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._client.close()
        finally:
            loop.stop()

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.run_until_complete(end_tasks(_CLOSE_GRACE))  # with the calls that close did not end
        loop.close()

    def _call(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        if os.getpid() != self._process:
            work.close()
            raise Error("closed", "the client belongs to the process that forked this one, make one here")
        if self._loop is None:
            work.close()
            raise RuntimeError("connect first, or use the client with with")
        with self._lock:
            if self._closing:
                work.close()
                raise ClosedError()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise ClosedError() from None
        except concurrent.futures.TimeoutError:
            if future.done():  # the error is the call's own
                raise
            future.cancel()
            raise TimeoutError("no answer in time") from None
        except BaseException:
            future.cancel()  # KeyboardInterrupt
            raise

    def submit(
        self, job: Job | str, payload: Any = None, *, timeout: float | None = None, **options: Any
    ) -> SyncHandle:
        """Submits a job and returns when it is accepted; see Client.submit."""
        made = make_job(job, payload, options)
        return SyncHandle(self, self._call(self._client.submit(made), timeout))

    def run(self, job: Job | str, payload: Any = None, *, timeout: float | None = None, **options: Any) -> Any:
        """Submits a job, waits for its end and returns its result. JobError if it did not succeed."""
        return self._call(self._client.run(make_job(job, payload, options)), timeout)

    def batch(self, jobs: Iterable[Job], timeout: float | None = None) -> list[SyncHandle | Error]:
        """Submits jobs; see Client.batch."""
        outcomes = self._call(self._client.batch(jobs), timeout)
        return [outcome if isinstance(outcome, Error) else SyncHandle(self, outcome) for outcome in outcomes]

    def cancel(self, job_id: str, timeout: float | None = None) -> JobStatus:
        """Asks for a job to be cancelled; see Client.cancel."""
        return self._call(self._client.cancel(job_id), timeout)

    def attach(self, job_id: str, timeout: float | None = None) -> SyncHandle:
        """Makes this client the one that gets a job's result; see Client.attach."""
        return SyncHandle(self, self._call(self._client.attach(job_id), timeout))
