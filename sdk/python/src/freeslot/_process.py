"""Runs plain functions in processes of their own.

A function that holds the interpreter for seconds in one call, or that can crash, does not disturb
the worker there. Processes are spawned, not forked, so a child inherits neither threads nor locks
nor connections. A child serves one job at a time and is used again. It ends with its worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Callable

from . import _signals
from ._running import Outcome, RunningJob, encode, outcome_of

_FIELDS = ("payload", "id", "attempt", "tenant", "service", "slots", "requirement", "traceparent")
_context = multiprocessing.get_context("spawn")


class _Child:
    """A process and the pipe to it. One thread at a time uses it, but any may wake that or kill."""

    def __init__(self) -> None:
        self.pipe, theirs = _context.Pipe()
        self.woken, self.wake = _context.Pipe(duplex=False)
        self.process = _context.Process(target=_serve, args=(theirs,), name="freeslot-handler")
        try:
            self.process.start()
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()

    def _close(self) -> None:
        for pipe in (self.pipe, self.woken, self.wake):
            pipe.close()

    def end(self) -> int:
        """Kills the process and returns its exit code."""
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self._close()
        self.process.close()
        return -signal.SIGKILL if code is None else code


class Processes:
    """The children of a worker. No more exist than jobs have run at the same time.

    They are no daemons in the sense of multiprocessing, which may have no children themselves.
    """

    def __init__(self, max_result_bytes: int) -> None:
        self._max_result_bytes = max_result_bytes
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._closed = False

    def prepare(self, job: RunningJob, handler: Callable[[RunningJob], Any]) -> Run:
        return Run(self, job, handler)

    def take(self) -> _Child:
        """Returns a child for one job. Raises OSError if none can be started."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.is_alive():
                    self._busy.add(child)
                    return child
                child.end()
        child = _Child()
        with self._lock:
            if not self._closed:
                self._busy.add(child)
                return child
        child.end()
        raise OSError("the worker has ended")

    def give(self, child: _Child) -> None:
        """Takes a child back whose job has ended."""
        with self._lock:
            self._busy.discard(child)
            if not self._closed:
                self._idle.append(child)
                return
        child.end()

    def drop(self, child: _Child) -> int:
        """Ends a child that has died, or will not be used again, and returns its exit code."""
        with self._lock:
            self._busy.discard(child)
        return child.end()

    def close(self) -> None:
        """Ends all children; the jobs of busy ones go on elsewhere."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:  # their threads end them
                child.process.kill()
        for child in idle:
            child.end()

    @property
    def max_result_bytes(self) -> int:
        return self._max_result_bytes


class Run:
    """One job in a process. A thread calls it; the node's loop cancels it and gives it up."""

    def __init__(self, processes: Processes, job: RunningJob, handler: Callable[[RunningJob], Any]) -> None:
        self._processes = processes
        self._job = job
        self._handler = handler
        self._lock = threading.Lock()
        self._child: _Child | None = None  # while the job is there
        self._given_up = False

    def __call__(self) -> Outcome:
        try:
            child = self._processes.take()
        except Exception as err:
            return Outcome(code="start_failed", message=f"the process did not start: {err}", retryable=True)
        try:
            fields = {name: getattr(self._job, name) for name in _FIELDS}
            with self._lock:
                self._child = child
                if self._job.cancelled:
                    child.wake.send_bytes(b"x")
                if self._given_up:
                    child.process.kill()
            # It waits while a new process imports the program, so not with the lock.
            child.pipe.send(("job", self._handler, fields, self._processes.max_result_bytes))
            outcome = self._follow(child)
            with self._lock:
                self._child = None
            while child.woken.poll():
                child.woken.recv_bytes()
            if self._given_up:
                self._processes.drop(child)
            else:
                self._processes.give(child)
            return outcome
        except (EOFError, OSError):
            return self._died(child)
        except Exception as err:  # the function or the payload cannot be sent
            self._died(child)
            return outcome_of(err, self._job)

    def _follow(self, child: _Child) -> Outcome:
        """Takes the job's progress and its end, and tells the process to stop."""
        while True:
            if child.woken in wait([child.pipe, child.woken]):
                child.woken.recv_bytes()
                child.pipe.send(("cancel", self._job.cause))
                continue
            kind, value = child.pipe.recv()
            if kind == "done":
                outcome: Outcome = value
                return outcome
            if self._job._report is not None:
                self._job._report(value)

    def _died(self, child: _Child) -> Outcome:
        with self._lock:
            self._child = None
        child.process.join(1)
        code = self._processes.drop(child)
        if code < 0:
            return Outcome(code="signalled", message=f"signal {-code} ended the handler's process", retryable=True)
        return Outcome(code=f"exit_{code}", message=f"the handler's process ended with {code}", retryable=code == 75)

    def cancel(self, cause: str) -> None:
        with self._lock:
            self._job._cancel(cause)
            if self._child is not None:
                self._child.wake.send_bytes(b"x")

    def give_up(self) -> None:
        """Kills the process: unlike a thread it need not keep its slots."""
        with self._lock:
            self._given_up = True
            if self._child is not None:
                self._child.process.kill()


def _serve(pipe: Connection) -> None:
    """The life of a child."""
    # Signals of a terminal or a service manager reach the children, too. The worker decides.
    _signals.handle(lambda: None)
    jobs: SimpleQueue[tuple[Callable[[RunningJob], Any], RunningJob, int]] = SimpleQueue()
    writing = threading.Lock()
    current: list[RunningJob] = []

    def send(kind: str, value: Any) -> None:
        with writing:
            pipe.send((kind, value))

    def read() -> None:
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                os._exit(0)  # the worker has ended
            except Exception as err:  # the function cannot be found here
                send("done", outcome_of(err, RunningJob()))
                continue
            if message[0] == "cancel":
                for job in current:
                    job._cancel(message[1])
                continue
            _, handler, fields, max_result_bytes = message
            job = RunningJob(**fields, report=lambda raw: send("progress", raw))
            current[:] = [job]
            jobs.put((handler, job, max_result_bytes))

    threading.Thread(target=read, name="freeslot-pipe", daemon=True).start()
    while True:
        handler, job, max_result_bytes = jobs.get()
        try:
            outcome = encode(handler(job), max_result_bytes)
        except Exception as err:
            outcome = outcome_of(err, job)
        job._report = None
        send("done", outcome)
