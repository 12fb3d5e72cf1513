from __future__ import annotations

import signal
from typing import Any, Iterator

import pytest
from rig import Replica, System


@pytest.fixture(scope="session")
def system() -> Iterator[System]:
    """A redis-server and one replica, for all tests that break neither."""
    system = System()
    try:
        system.replica("shared")
        yield system
    finally:
        system.end()


@pytest.fixture(scope="session")
def replica(system: System) -> Replica:
    return system.replicas[0]


@pytest.fixture
def own() -> Iterator[System]:
    """A redis-server of the test's own."""
    system = System()
    try:
        yield system
    finally:
        system.end()


@pytest.fixture(autouse=True)
def give_up() -> Iterator[None]:
    """Ends a test that waits for what does not come."""

    def late(*_: Any) -> None:
        raise AssertionError("the test has waited for two minutes")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
