"""Which attempts a node holds, which have ended, and which cancels came before their attempts.

Nothing here does I/O or has a clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Mapping

# Reasons for which a handler is told to stop.
CANCELLED = "cancelled"
NOT_OWNED = "not_owned"
STOPPING = "stopping"
STALLED = "stalled"
LEASE_LOST = "lease_lost"
SUPERSEDED = "superseded"

WAITING, RUNNING, FINISHING = range(3)

MAX_ENDED = 1 << 16
MAX_EARLY_CANCELS = 1 << 12
# The last ended attempts are remembered in any case: a delivery that comes against the rules costs nothing then.
KEPT_ENDED = 1 << 10
# For each slot one attempt that Redis granted, and one that Redis no longer counts.
HELD_PER_SLOT = 2


class Attempt:
    """One try of one job that the node holds."""

    __slots__ = (
        "asked", "begun", "cause", "disowned", "grace", "has_slots", "heard", "id", "job", "job_id", "latest", "left",
        "number", "phase", "progress_due", "queued", "seq", "slots", "stall", "tenant", "timer", "work",
    )  # fmt: skip

    def __init__(self, name: str, job: Mapping[str, Any] | None, tenant: str) -> None:
        self.id = name
        self.job_id, _, number = name.rpartition(":")
        self.number = int(number)
        self.job: Mapping[str, Any] | None = job  # None until it has come
        self.tenant = tenant
        self.phase = WAITING
        self.cause = ""  # why it was told to stop
        self.asked = False  # a cancel of the job has come
        self.disowned = False  # the node does not own it: it is not named, and its end is not reported
        self.left = False  # its end is decided
        self.has_slots = False
        self.slots = 1
        self.begun = 0.0
        self.work: Any = None  # belongs to who runs the handler
        self.timer: Any = None  # patience while it waits, grace after a stop
        self.grace = False  # the timer is that of a stop
        self.stall: Any = None
        # Progress: handlers' threads write these.
        self.seq = 0
        self.latest: str | None = None
        self.heard = 0.0
        self.queued = False
        self.progress_due = 0.0


class Ledger:
    """on_stop is called for a held attempt when it is first told to stop."""

    def __init__(self, slots: int, on_stop: Callable[[Attempt], None]) -> None:
        self._limit = HELD_PER_SLOT * slots
        self._on_stop = on_stop
        self.held: dict[str, Attempt] = {}
        # Ended attempts and early cancels, with the numbers of the last heartbeat and report then.
        self._ended: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._cancels: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._beats = 0
        self._reports = 0
        self._reporting: OrderedDict[int, None] = OrderedDict()  # reports under way
        self._refused = False  # the limit turned an attempt away
        self.draining = False
        self.closed = False
        self._cut_off = False

    def offer(self, name: str, job: Mapping[str, Any] | None, tenant: str) -> Attempt | None:
        """Takes in an attempt that the node owns. None if it is known already, and if there is no room."""
        if self.closed or name in self.held or name in self._ended:
            return None
        if len(self.held) >= self._limit:
            self._refused = True  # the next heartbeat does not name it, so it is offered again
            return None
        attempt = Attempt(name, job, tenant)
        if self._cancels.pop(name, None) is not None:
            attempt.asked, attempt.cause = True, CANCELLED
        elif self.draining:
            attempt.cause = STOPPING
        self.held[name] = attempt
        return attempt

    def ask(self, name: str) -> None:
        """Cancels an attempt, or remembers that for one that has not come yet."""
        attempt = self.held.get(name)
        if attempt is not None:
            if attempt.phase != FINISHING:
                attempt.asked = True
                self.stop(attempt, CANCELLED)
        elif name not in self._ended and name not in self._cancels:
            self._cancels[name] = (self._beats, self._reports)
            if len(self._cancels) > MAX_EARLY_CANCELS:
                self._cancels.popitem(last=False)

    def disown(self, name: str) -> None:
        """Stops an attempt that the node does not own. While its end is reported, that answer decides."""
        attempt = self.held.get(name)
        if attempt is not None and attempt.phase != FINISHING:
            self._disown(attempt, NOT_OWNED)

    def _disown(self, attempt: Attempt, cause: str) -> None:
        attempt.disowned = True
        if attempt.cause:
            self._on_stop(attempt)  # a handler that was stopped before has less time now
        else:
            self.stop(attempt, cause)

    def stop(self, attempt: Attempt, cause: str) -> None:
        """Tells an attempt to stop; only the first cause counts."""
        if not attempt.cause:
            attempt.cause = cause
            self._on_stop(attempt)

    def begin(self, attempt: Attempt) -> bool:
        """Moves the attempt to running, unless it was stopped before."""
        if self._cut_off and (attempt.job or {}).get("on_lease_loss") == "cancel" and not attempt.cause:
            attempt.cause = LEASE_LOST
        if attempt.cause:
            return False
        attempt.phase = RUNNING
        return True

    def finish(self, attempt: Attempt) -> None:
        """Decides the attempt's end: a later cancel or loss of ownership does not count."""
        if not attempt.disowned:
            attempt.phase = FINISHING

    def remove(self, attempt: Attempt) -> bool:
        """Lets go of an ended attempt. True if a heartbeat is due, as another one was turned away."""
        self.held.pop(attempt.id, None)
        self._ended[attempt.id] = (self._beats, self._reports)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        due, self._refused = self._refused, False
        return due

    def beat(self) -> tuple[list[str], int]:
        """Starts a heartbeat: the attempts to name, and its number."""
        self._beats += 1
        return [a.id for a in self.held.values() if not a.disowned], self._beats

    def answered(self, beat: int) -> None:
        """Forgets what no delivery can bring again, now that this heartbeat's reply has been applied."""
        reports = next(iter(self._reporting), self._reports + 1)
        for old, kept in ((self._ended, KEPT_ENDED), (self._cancels, 0)):
            while len(old) > kept:
                name, (beats, reported) = next(iter(old.items()))
                if beats >= beat or reported >= reports:
                    break
                del old[name]

    def report(self) -> int:
        """Starts a report, whose answer may bring attempts."""
        self._reports += 1
        self._reporting[self._reports] = None
        return self._reports

    def reported(self, number: int) -> None:
        self._reporting.pop(number, None)

    def lose_lease(self) -> list[str]:
        """Stops the running jobs that ask for it; no such job begins until renew_lease."""
        self._cut_off = True
        lost = [
            a for a in self.held.values()
            if a.phase == RUNNING and (a.job or {}).get("on_lease_loss") == "cancel" and not a.cause
        ]  # fmt: skip
        for attempt in lost:
            self.stop(attempt, LEASE_LOST)
        return [attempt.job_id for attempt in lost]

    def renew_lease(self) -> None:
        self._cut_off = False

    def drain(self) -> None:
        """Stops the attempts that have not begun, and every attempt that is offered from now on."""
        self.draining = True
        for attempt in list(self.held.values()):
            if attempt.phase == WAITING:
                self.stop(attempt, STOPPING)

    def interrupt(self) -> list[str]:
        """Stops all held attempts."""
        held = list(self.held.values())
        for attempt in held:
            self.stop(attempt, STOPPING)
        return [attempt.job_id for attempt in held]

    def abandon(self) -> None:
        """Disowns all attempts, because the node belongs to another process."""
        for attempt in list(self.held.values()):
            self._disown(attempt, SUPERSEDED)
