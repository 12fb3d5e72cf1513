"""Pauses between attempts."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that grow from the first to the longest, with jitter, so that many do not come in step."""

    def __init__(self, first: float, longest: float, factor: float = 1.5) -> None:
        self._first, self.longest, self._factor = first, longest, factor
        self._pause = first

    def next(self) -> float:
        pause = min(self._pause, self.longest)
        self._pause = min(pause * self._factor, self.longest)
        return pause * (0.5 + random.random())

    def reset(self) -> None:
        self._pause = self._first
