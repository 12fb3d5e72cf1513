"""Handlers of signals that hold for one process."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_former: dict[int, Any] = {}  # handlers, while handle has replaced them
_masks: dict[int, Any] = {}  # of threads that fork


def handle(call: Callable[[], None]) -> Callable[[], None]:
    """Has call run at SIGTERM and SIGINT in this process, not in its forks, and returns what undoes that.

    call can interrupt the main thread anywhere, so it must take no lock.
    """

    def on_signal(number: int, frame: Any) -> None:
        call()

    for number in _NUMBERS:
        _former[number] = signal.signal(number, on_signal) or signal.SIG_DFL
    return _restore


def _restore() -> None:
    while _former:
        signal.signal(*_former.popitem())


def _before_fork() -> None:
    # The interpreter forgets a signal that comes to a fork too early.
    if _former:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)


def _unblock() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork() -> None:
    _restore()
    _unblock()


os.register_at_fork(before=_before_fork, after_in_parent=_unblock, after_in_child=_after_fork)
