"""A worker as a program of its own: program.py GATEWAY TOKEN NODE [SLOTS]."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
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
