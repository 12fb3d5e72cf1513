"""What a handler sees of its job, and what its return means. Child processes load this, too."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Generator, Mapping

from . import _json
from ._errors import HandlerError, RetryableError, invalid

_log = logging.getLogger("freeslot.worker")

MAX_PROGRESS_BYTES = 4 << 10
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_lock = threading.Lock()  # for events of jobs that wait for a cancel


class _Taken(Awaitable[None]):
    """Gives the event loop a turn, so that a cancel can arrive between two reports."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


_taken = _Taken()


class RunningJob:
    """A job while a handler runs it.

    ``id`` and ``attempt`` (the number of the try, from 1) name the execution. ``payload`` is the
    decoded JSON value. A program may make one to test its handler.
    """

    __slots__ = (
        "_cause", "_event", "_report",
        "attempt", "id", "payload", "requirement", "service", "slots", "tenant", "traceparent",
    )  # fmt: skip

    def __init__(
        self,
        payload: Any = None,
        *,
        id: str = "",
        attempt: int = 1,
        tenant: str = "",
        service: str = "",
        slots: int = 1,
        requirement: Mapping[str, Any] | None = None,
        traceparent: str = "",
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.payload = payload
        self.id = id
        self.attempt = attempt
        self.tenant = tenant
        self.service = service
        self.slots = slots
        self.requirement: Mapping[str, Any] = requirement or {}
        self.traceparent = traceparent
        self._report = report
        self._cause = ""
        self._event: threading.Event | None = None

    def progress(self, value: Any) -> Awaitable[None]:
        """Reports how far the job is: any value of at most 4 KiB of JSON.

        A plain function calls it, a coroutine awaits it: ``await job.progress(...)``. It does not
        wait for the network. Of reports in quick succession the last one is sent. It raises Error
        if the value can never be sent, and does nothing once the handler has returned.
        """
        try:
            raw = _json.dumps(value)
        except (TypeError, ValueError) as err:
            raise invalid("progress", f"cannot be encoded as JSON: {err}") from None
        if (size := len(raw) if raw.isascii() else len(raw.encode())) > MAX_PROGRESS_BYTES:
            raise invalid("progress", f"has {size} bytes of JSON, expected at most {MAX_PROGRESS_BYTES}")
        if self._report is not None:
            self._report(raw)
        return _taken

    @property
    def cancelled(self) -> bool:
        """True once the handler should stop. The task of a coroutine is cancelled then, too."""
        return self._cause != ""

    @property
    def cause(self) -> str:
        """Why the handler should stop; empty while it need not.

        ``cancelled`` (by a client, or the deadline has passed), ``stopping`` (the node stops),
        ``stalled`` (no progress in time), ``lease_lost`` (cut off from freeslot), ``not_owned``
        (the job goes on elsewhere) or ``superseded`` (another process has the node).
        """
        return self._cause

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Blocks until the handler should stop, at most timeout seconds. For plain functions."""
        with _lock:
            if self._event is None:
                self._event = threading.Event()
                if self._cause:
                    self._event.set()
        return self._event.wait(timeout)

    def _cancel(self, cause: str) -> None:
        with _lock:
            self._cause = self._cause or cause
            if self._event is not None:
                self._event.set()


@dataclass(frozen=True)
class Outcome:
    """How a handler ended: with a result (JSON), or with an error."""

    result: str | None = None
    size: int = 0  # of the result, in bytes
    code: str = ""
    message: str = ""  # empty if the handler was cancelled
    retryable: bool = False
    delay: float | None = None
    broken: bool = False  # the result cannot be the job's
    stuck: bool = False  # it has not returned, and was given up
    interrupted: bool = False  # the program's loop ends, and has cancelled it


def encode(result: Any, max_bytes: int) -> Outcome:
    """Makes the outcome of a handler that has returned."""
    try:
        text = _json.dumps(result)
    except (TypeError, ValueError) as err:
        return Outcome(code="handler_error", message=f"the handler's result cannot be encoded as JSON: {err}", broken=True)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        message = f"the result has {size} bytes, the node's limit is {max_bytes}"
        return Outcome(code="result_too_large", message=message, broken=True)
    return Outcome(result=text, size=size)


def outcome_of(err: BaseException, job: RunningJob) -> Outcome:
    """Makes the outcome of a handler that has raised."""
    if isinstance(err, HandlerError):
        code = err.code if isinstance(err.code, str) and _CODE.fullmatch(err.code) else "handler_error"
        delay = getattr(err, "delay", None)
        if not isinstance(delay, (int, float)) or delay != delay:
            delay = None
        return Outcome(code=code, message=_text(err.message), retryable=isinstance(err, RetryableError), delay=delay)
    if not job.cancelled:  # to raise is a way to stop
        _log.error("the handler of job %s raised", job.id, exc_info=err)
    return Outcome(code="handler_error", message=f"{type(err).__name__}: {_text(err)}")


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return "(it has no text)"
