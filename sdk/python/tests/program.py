"""A worker as a program of its own: program.py GATEWAY TOKEN NODE [SLOTS]."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from freeslot import RunningJob, Worker

gateway, token, node, *rest = sys.argv[1:] if __name__ == "__main__" else ("ws://127.0.0.1:1", "none", "child")
worker = Worker(
    gateway,
    token=token,
    node=node,
    slots=int(rest[0]) if rest else 4,
    heartbeat_interval=0.5,
    stop_timeout=60,
    interrupt_grace=0.2,
)

if __name__ != "__main__" and (gate := os.environ.get("IMPORT_GATE")):
    Path(gate + ".reached").touch()
    while not Path(gate).exists():
        time.sleep(0.01)


@worker.service("echo")
async def echo(job: RunningJob) -> Any:
    return job.payload


@worker.service("spin")
async def spin(job: RunningJob) -> str:
    """Never gives its loop a turn, in Python code."""
    job.progress(os.getpid())
    while not Path(job.payload).exists():
        pass
    return "spun"


@worker.service("grip", process=True)
def grip(job: RunningJob) -> str:
    """Holds its interpreter in one call after the other."""
    job.progress(os.getpid())
    while not Path(job.payload).exists():
        sum(range(3 * 10**7))
    return "gripped"


@worker.service("until")
async def until(job: RunningJob) -> str:
    await job.progress("begun")
    while not Path(job.payload).exists():
        await asyncio.sleep(0.01)
    return "done"


@worker.service("stubborn")
async def stubborn(job: RunningJob) -> None:
    """Ignores that it is stopped."""
    await job.progress("begun")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Path(job.payload).touch()


@worker.service("forks")
def forks(job: RunningJob) -> Any:
    """Has children of both kinds, and ends them."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    child.terminate()
    child.join(20)
    assert child.exitcode == -signal.SIGTERM, child.exitcode
    sleep = subprocess.Popen(["sleep", "600"])
    sleep.terminate()
    assert sleep.wait(20) == -signal.SIGTERM
    with context.Pool(2) as pool:
        return pool.map(abs, [-1, -2])


@worker.service("forks-process", process=True)
def forks_process(job: RunningJob) -> Any:
    return forks(job)


@worker.service("waits", process=True)
def waits(job: RunningJob) -> None:
    job.wait_cancelled()
    raise RuntimeError(job.cause)


@worker.service("process", process=True)
def process(job: RunningJob) -> Any:
    job.progress(os.getpid())
    match job.payload:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "raise":
            raise ValueError("in the process")
        case "object":
            return object()
        case "wait":
            job.wait_cancelled()
            raise RuntimeError(job.cause)
        case "children":
            child = multiprocessing.get_context("spawn").Process(target=os.getpid)
            child.start()
            child.join()
            return child.exitcode
        case "hang":
            while True:
                time.sleep(60)
    return job.payload


if __name__ == "__main__":
    worker.run()
