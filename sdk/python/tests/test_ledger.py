from __future__ import annotations

import pytest

from freeslot import _ledger
from freeslot._ledger import CANCELLED, FINISHING, LEASE_LOST, NOT_OWNED, STOPPING, SUPERSEDED, Attempt, Ledger


@pytest.fixture
def stopped() -> list[str]:
    return []


@pytest.fixture
def ledger(stopped: list[str]) -> Ledger:
    return Ledger(2, lambda attempt: stopped.append(attempt.id))


def offer(ledger: Ledger, name: str, **job: object) -> Attempt:
    attempt = ledger.offer(name, job, "t")
    assert attempt is not None, f"{name} was not taken"
    return attempt


def end(ledger: Ledger, attempt: Attempt) -> bool:
    ledger.finish(attempt)
    return ledger.remove(attempt)


def test_an_attempt_is_taken_once(ledger: Ledger) -> None:
    a = offer(ledger, "a:1")
    assert ledger.offer("a:1", {}, "t") is None
    end(ledger, a)
    assert ledger.offer("a:1", {}, "t") is None, "an ended attempt came again"
    assert offer(ledger, "a:2").number == 2


def test_an_ended_attempt_is_remembered_until_nothing_can_bring_it_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ledger, "KEPT_ENDED", 0)
    a = offer(ledger, "a:1")
    _, before = ledger.beat()
    report = ledger.report()  # of another attempt: its answer may bring a:1
    end(ledger, a)
    ledger.answered(before)  # this heartbeat named a:1
    assert ledger.offer("a:1", {}, "t") is None
    _, after = ledger.beat()
    ledger.answered(after)
    assert ledger.offer("a:1", {}, "t") is None, "the answer to a report under way may still bring it"
    ledger.reported(report)
    _, last = ledger.beat()
    ledger.answered(last)
    assert offer(ledger, "a:1")


def test_a_cancel_that_comes_first_is_remembered(ledger: Ledger, stopped: list[str]) -> None:
    ledger.ask("a:1")
    a = offer(ledger, "a:1")
    assert a.asked and a.cause == CANCELLED
    assert not ledger.begin(a)
    assert stopped == []


def test_room_is_bounded_and_a_refused_attempt_is_asked_for(ledger: Ledger) -> None:
    attempts = [offer(ledger, f"{i}:1") for i in range(4)]
    assert ledger.offer("more:1", {}, "t") is None
    assert end(ledger, attempts[0]) is True, "expected a heartbeat to be due"
    assert end(ledger, attempts[1]) is False
    assert offer(ledger, "more:1")


def test_the_first_cause_counts(ledger: Ledger, stopped: list[str]) -> None:
    a = offer(ledger, "a:1")
    assert ledger.begin(a)
    ledger.ask("a:1")
    ledger.drain()
    ledger.interrupt()
    assert a.cause == CANCELLED and stopped == ["a:1"]


def test_while_an_end_is_reported_its_answer_decides(ledger: Ledger, stopped: list[str]) -> None:
    a = offer(ledger, "a:1")
    assert ledger.begin(a)
    ledger.finish(a)
    ledger.disown("a:1")
    ledger.ask("a:1")
    assert a.phase == FINISHING and not a.disowned and stopped == []
    assert ledger.beat()[0] == ["a:1"], "a heartbeat names it until the report is answered"


def test_a_disowned_attempt_is_not_named(ledger: Ledger, stopped: list[str]) -> None:
    a = offer(ledger, "a:1")
    assert ledger.begin(a)
    ledger.disown("a:1")
    assert a.cause == NOT_OWNED and stopped == ["a:1"]
    assert ledger.beat()[0] == []


def test_a_lost_lease_stops_the_jobs_that_ask_for_it(ledger: Ledger) -> None:
    bound = offer(ledger, "bound:1", on_lease_loss="cancel")
    free = offer(ledger, "free:1")
    assert ledger.begin(bound) and ledger.begin(free)
    assert ledger.lose_lease() == ["bound"]
    assert (bound.cause, free.cause) == (LEASE_LOST, "")
    late = offer(ledger, "late:1", on_lease_loss="cancel")
    assert not ledger.begin(late) and late.cause == LEASE_LOST
    end(ledger, late)
    ledger.renew_lease()
    assert ledger.begin(offer(ledger, "later:1", on_lease_loss="cancel"))


def test_a_draining_node_begins_nothing(ledger: Ledger) -> None:
    waiting, running = offer(ledger, "w:1"), offer(ledger, "r:1")
    assert ledger.begin(running)
    ledger.drain()
    assert (waiting.cause, running.cause) == (STOPPING, "")
    assert not ledger.begin(offer(ledger, "new:1"))
    assert set(ledger.interrupt()) == {"w", "r", "new"}
    assert running.cause == STOPPING


def test_an_abandoned_node_owns_nothing(ledger: Ledger) -> None:
    a = offer(ledger, "a:1")
    assert ledger.begin(a)
    ledger.abandon()
    assert a.disowned and a.cause == SUPERSEDED


def test_memory_is_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ledger, "MAX_ENDED", 3)
    monkeypatch.setattr(_ledger, "MAX_EARLY_CANCELS", 3)
    for i in range(10):
        end(ledger, offer(ledger, f"{i}:1"))
        ledger.ask(f"unknown{i}:1")
    monkeypatch.setattr(_ledger, "KEPT_ENDED", 1)
    _, beat = ledger.beat()
    ledger.answered(beat)
    assert list(ledger._ended) == ["9:1"] and not ledger._cancels


def test_memory_is_bounded_while_no_heartbeat_is_answered(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ledger, "MAX_ENDED", 3)
    monkeypatch.setattr(_ledger, "MAX_EARLY_CANCELS", 3)
    for i in range(10):
        end(ledger, offer(ledger, f"{i}:1"))
        ledger.ask(f"unknown{i}:1")
    assert list(ledger._ended) == ["7:1", "8:1", "9:1"]
    assert list(ledger._cancels) == ["unknown7:1", "unknown8:1", "unknown9:1"]
