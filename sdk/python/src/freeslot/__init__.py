"""freeslot for Python: nodes that run jobs, and clients that submit them.

``Worker`` makes a process a node of a fleet, by a replica's gateway. ``Client`` submits jobs from
asyncio, ``freeslot.sync.SyncClient`` from threads. ``NameLists`` asks name lists by HTTP. Locks and
the service registry are not in Python yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import ClosedError, Error, FinalError, HandlerError, JobError, RetryableError, SupersededError
from ._version import __version__

if TYPE_CHECKING:
    from ._types import Assignment, Failure, Job, JobStatus, LabelRule, Progress, Requirement
    from .client import Client, Handle
    from .lists import NameLists
    from .worker import RunningJob, Worker

__all__ = [
    "Assignment",
    "Client",
    "ClosedError",
    "Error",
    "Failure",
    "FinalError",
    "Handle",
    "HandlerError",
    "Job",
    "JobError",
    "JobStatus",
    "LabelRule",
    "NameLists",
    "Progress",
    "Requirement",
    "RetryableError",
    "RunningJob",
    "SupersededError",
    "Worker",
    "__version__",
]

_MODULES = {
    **dict.fromkeys(("Client", "Handle"), "client"),
    "NameLists": "lists",
    **dict.fromkeys(("RunningJob", "Worker"), "worker"),
}


def __getattr__(name: str) -> Any:
    # A worker has no use for the client, nor a client for the worker: each costs memory.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, '_types')}"), name)
