"""Errors that the package raises, and errors that a handler raises to end its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from ._types import JobStatus

_TEMPORARY = frozenset(("overloaded", "rate_limited", "unavailable"))


class Error(Exception):
    """A refusal by freeslot, or a failure to reach it.

    ``code`` is for programs and never changes its meaning; docs/protocol.md lists the codes.
    ``retry_after`` is in seconds; 0 is no estimate. ``breakdown`` counts, for ``no_matching_node``,
    the nodes by the first part of the requirement that they do not meet.
    """

    def __init__(
        self,
        code: str,
        message: str,
        field: str = "",
        retry_after: float = 0.0,
        breakdown: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after
        self.breakdown: dict[str, int] = dict(breakdown or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def temporary(self) -> bool:
        """True if the same request may succeed later unchanged."""
        return self.code in _TEMPORARY


class ClosedError(Error):
    """Raised by every call of a closed client, and by every wait that its close ends."""

    def __init__(self) -> None:
        super().__init__("closed", "the client is closed")


class SupersededError(Error):
    """Ends a worker whose node another process has registered."""

    def __init__(self) -> None:
        super().__init__("superseded", "another process has registered this node; each needs a node id of its own")


class JobError(Exception):
    """Raised in place of a job's result if the job did not succeed. ``status`` is its end."""

    def __init__(self, status: JobStatus) -> None:
        error = status.error
        self.status = status
        self.code: str = error.code if error else status.state
        self.message: str = error.message if error else f"the job is {status.state}"
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        return f"job {self.status.job_id} {self.status.state}: {self.code}: {self.message}"


class HandlerError(Exception):
    """The base of errors by which a handler chooses the code of its job's error."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message or code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class FinalError(HandlerError):
    """A handler raises it to fail its job for good, with this code."""


class RetryableError(HandlerError):
    """A handler raises it if another attempt may succeed.

    The next attempt is due after ``delay`` seconds (at most an hour). Without a delay it is due
    after a random pause below 1 s, whose bound doubles with each attempt, up to 5 minutes.
    """

    def __init__(self, code: str, message: str = "", delay: float | None = None) -> None:
        super().__init__(code, message)
        self.delay = delay


def invalid(field: str, text: str) -> Error:
    """Returns the error about one input; text follows the field's name."""
    return Error("invalid_argument", f"{field} {text}", field)


def from_answer(answer: Mapping[str, Any]) -> Error:
    """Returns the error in an answer of a replica."""
    ms = answer.get("retry_after_ms", 0)
    breakdown = answer.get("breakdown")
    return Error(
        str(answer.get("code") or "internal"),
        str(answer.get("message") or "the replica gave no reason"),
        str(answer.get("field") or ""),
        ms / 1000 if isinstance(ms, (int, float)) else 0.0,
        breakdown if isinstance(breakdown, dict) else None,
    )
