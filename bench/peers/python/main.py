"""The Python SDK as a peer of the benchmark: the roles and lines of bench/load.

    main.py worker -gateway URL,... -token T -slots 16 -handler coroutine    or thread
    main.py load -ws URL,...                                                 a client, single frames, closed loops

The worker has two more services. Their payload is a number of seconds, for which they hold the
interpreter: hold-loop by a loop in Python, in a thread, and hold-call by one call in C that keeps
the GIL, in a process.
"""

import argparse
import asyncio
import ctypes
import json
import math
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "sdk" / "python" / "src"))

from freeslot import Client, Error, Job, RunningJob, Worker  # noqa: E402

SERVICE = "noop"
PAYLOAD = "x" * 254  # 256 bytes with its quotes
QUANTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99)


async def coroutine(job: RunningJob) -> str:
    return str(time.time_ns())


def thread(job: RunningJob) -> str:
    return str(time.time_ns())


def hold_loop(job: RunningJob) -> str:
    began, end = time.time_ns(), time.monotonic() + job.payload
    while time.monotonic() < end:
        pass
    return str(began)


def hold_call(job: RunningJob) -> str:
    began = time.time_ns()
    ctypes.PyDLL(None).usleep(int(job.payload * 1e6))  # unlike CDLL, PyDLL keeps the GIL
    return str(began)


async def work(args: argparse.Namespace) -> None:
    worker = Worker(args.gateway, token=args.token, node=args.node, slots=args.slots)
    worker.service(SERVICE)({"coroutine": coroutine, "thread": thread}[args.handler])
    worker.service("hold-loop")(hold_loop)
    worker.service("hold-call", process=True)(hold_call)
    await worker.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # so that a parent that was killed leaves none behind
    worker.stop()
    await worker.wait()


class Load:
    """One closed loop."""

    def __init__(self, client: Client, request: dict[str, float]) -> None:
        self.client = client
        self.in_flight = int(request["in_flight"])
        self.start = time.time_ns() + int(request["warm_up_ms"] * 1e6)
        self.end = self.start + int(request["measure_ms"] * 1e6)
        self.to_start: list[float] = []
        self.to_result: list[float] = []
        self.ended = 0
        self.failed: dict[str, int] = {}

    async def run(self) -> dict[str, object]:
        await asyncio.gather(*(self.call() for _ in range(self.in_flight)))
        return {
            "jobs": len(self.to_result),
            "jobs_per_second": round(len(self.to_result) * 1e9 / (self.end - self.start), 1),
            "ended": self.ended,
            "submit_to_start": summary(self.to_start),
            "submit_to_result": summary(self.to_result),
            "failed": self.failed,
        }

    async def call(self) -> None:
        job = Job(SERVICE, PAYLOAD)
        while (begin := time.time_ns()) < self.end and not self.failed:
            try:
                status = await (await self.client.submit(job)).wait()
                reason = "" if status.succeeded else status.state
            except Error as err:
                reason = err.code
            now = time.time_ns()
            if reason:
                self.failed[reason] = self.failed.get(reason, 0) + 1
                continue
            self.ended += 1
            if self.start <= now < self.end:
                self.to_start.append((int(status.result) - begin) / 1000)
                self.to_result.append((now - begin) / 1000)


def summary(us: list[float]) -> dict[str, object]:
    us.sort()

    def at(percent: float) -> int:
        return round(us[max(math.ceil(percent / 100 * len(us)) - 1, 0)]) if us else 0

    return {
        "count": len(us),
        "mean_us": round(sum(us) / max(len(us), 1), 1),
        "p50_us": at(50), "p90_us": at(90), "p99_us": at(99), "p999_us": at(99.9), "max_us": at(100),
        "curve_us": [at(q) for q in QUANTILES],
    }  # fmt: skip


async def submit(args: argparse.Namespace) -> None:
    async with Client(args.ws) as client:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            if request["loop"] == "closed" and request.get("batch", 1) == 1:
                answer = await Load(client, request).run()
            else:
                answer = {"error": "only closed loops of single frames are known"}
            print(json.dumps(answer), flush=True)


def main() -> None:
    roles = {"worker": work, "load": submit}
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("role", choices=roles)
    parser.add_argument("-gateway")
    parser.add_argument("-token")
    parser.add_argument("-node", default=f"bench-{os.getpid()}-1")
    parser.add_argument("-slots", type=int, default=16)
    parser.add_argument("-handler", choices=("coroutine", "thread"), default="coroutine")
    parser.add_argument("-ws")
    parser.add_argument("-redis", help="is not used")
    args = parser.parse_args()
    asyncio.run(roles[args.role](args))


if __name__ == "__main__":
    main()
