"""Wraps this SDK for test/conformance: commands come on standard input, answers go to standard output.

    PYTHONPATH=sdk/python/src /usr/bin/python3 sdk/python/conformance_driver.py client|worker
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, AsyncIterator, Awaitable, Callable

from freeslot import (
    Client,
    Error,
    FinalError,
    Handle,
    Job,
    LabelRule,
    Requirement,
    RetryableError,
    RunningJob,
    Worker,
)

Command = dict[str, Any]


def emit(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def error_of(err: BaseException) -> dict[str, Any]:
    if isinstance(err, asyncio.CancelledError):
        return {"code": "aborted", "message": "the call was given up"}
    if not isinstance(err, Error):
        return {"code": "failed", "message": f"{type(err).__name__}: {err}"}
    error: dict[str, Any] = {"code": err.code, "message": err.message, "field": err.field}
    error |= {"retry_after_ms": round(err.retry_after * 1000), "breakdown": err.breakdown}
    return {name: value for name, value in error.items() if value}


async def commands() -> AsyncIterator[Command]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=256 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip():
            yield json.loads(line)


class Driver:
    """Runs commands side by side."""

    def __init__(self) -> None:
        self.calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        async for command in commands():
            task = asyncio.create_task(self.answer(command))
            self.calls[command["id"]] = task
            task.add_done_callback(self.ended)
        await self.end()

    def ended(self, task: asyncio.Task[None]) -> None:
        self.calls = {number: call for number, call in self.calls.items() if call is not task}

    async def answer(self, command: Command) -> None:
        number = command["id"]
        do: Callable[[Command], Awaitable[dict[str, Any]]] = getattr(self, "do_" + command["do"])
        try:
            answer = await do(command)
        except BaseException as err:
            emit(id=number, error=error_of(err))
        else:
            emit(id=number, **answer)

    async def end(self) -> None:
        raise NotImplementedError


def seconds(command: Command, **names: str) -> dict[str, float]:
    return {name: command[key] / 1000 for name, key in names.items() if key in command}


class ClientDriver(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.client: Client | None = None
        self.token = ""
        self.handles: dict[str, Handle] = {}

    async def end(self) -> None:
        if self.client is not None:
            await self.client.close()

    async def do_dial(self, c: Command) -> dict[str, Any]:
        self.token = c.get("token", "")
        options: dict[str, Any] = seconds(
            c,
            min_backoff="min_backoff_ms",
            max_backoff="max_backoff_ms",
            ping_interval="ping_interval_ms",
            ping_timeout="ping_timeout_ms",
            dial_timeout="dial_timeout_ms",
        )
        if "max_message_bytes" in c:
            options["max_message_bytes"] = c["max_message_bytes"]
        client = Client(c["url"], token_source=lambda: self.token, **options)
        await client.connect()
        self.client = client
        return {}

    def dialled(self) -> Client:
        assert self.client is not None, "dial comes first"
        return self.client

    async def do_submit(self, c: Command) -> dict[str, Any]:
        return self.accepted(await self.dialled().submit(job_of(c["job"])))

    async def do_batch(self, c: Command) -> dict[str, Any]:
        outcomes = await self.dialled().batch([job_of(job) for job in c["jobs"]])
        return {"jobs": [{"error": error_of(o)} if isinstance(o, Error) else self.accepted(o) for o in outcomes]}

    def accepted(self, handle: Handle) -> dict[str, Any]:
        self.handles[handle.job_id] = handle
        return {"job_id": handle.job_id, **({"position": handle.position} if handle.position else {})}

    async def do_wait(self, c: Command) -> dict[str, Any]:
        return {"job": (await self.handles[c["job_id"]].wait()).raw}

    async def do_progress(self, c: Command) -> dict[str, Any]:
        async for p in self.handles[c["job_id"]].progress():
            emit(id=c["id"], progress={"attempt": p.attempt, "seq": p.seq, "at_ms": p.at_ms, "value": p.value})
        return {"done": True}

    async def do_attach(self, c: Command) -> dict[str, Any]:
        return self.accepted(await self.dialled().attach(c["job_id"]))

    async def do_cancel(self, c: Command) -> dict[str, Any]:
        return {"job": (await self.dialled().cancel(c["job_id"])).raw}

    async def do_abandon(self, c: Command) -> dict[str, Any]:
        if task := self.calls.get(c["of"]):
            task.cancel()
        return {}

    async def do_token(self, c: Command) -> dict[str, Any]:
        self.token = c["token"]
        return {}

    async def do_close(self, c: Command) -> dict[str, Any]:
        await self.dialled().close()
        return {}


def job_of(raw: dict[str, Any]) -> Job:
    job = dict(raw)
    if "requirement" in job:
        requirement = dict(job["requirement"])
        if "label_rules" in requirement:
            requirement["label_rules"] = [LabelRule(**rule) for rule in requirement["label_rules"]]
        job["requirement"] = Requirement(**requirement)
    return Job(**job)


class WorkerDriver(Driver):
    def __init__(self) -> None:
        super().__init__()
        self.worker: Worker | None = None
        self.running: dict[str, tuple[RunningJob, asyncio.Future[Any]]] = {}
        self.waiting: asyncio.Task[None] | None = None

    async def end(self) -> None:
        if self.worker is not None and self.waiting is not None:
            self.worker.stop(hurry=True)
            for _, end in self.running.values():
                end.cancel()
            await self.waiting

    async def do_start(self, c: Command) -> dict[str, Any]:
        options: dict[str, Any] = seconds(
            c,
            heartbeat_interval="heartbeat_ms",
            stop_timeout="stop_timeout_ms",
            min_backoff="min_backoff_ms",
            max_backoff="max_backoff_ms",
        )
        options |= {name: c[name] for name in ("token", "token_file") if name in c}
        worker = Worker(c["gateway"], node=c["node"], slots=c.get("slots", 1), **options)
        for service in c["services"]:
            worker.service(service["name"], version=service.get("version", ""))(self.handle)
        await worker.start()
        self.worker = worker
        self.waiting = asyncio.create_task(self.wait(worker))
        return {}

    async def wait(self, worker: Worker) -> None:
        try:
            await worker.wait()
        except Exception as err:
            emit(event="stopped", error=error_of(err))
        else:
            emit(event="stopped")

    async def handle(self, job: RunningJob) -> Any:
        """Runs until finish: a cancel is only told."""
        attempt = f"{job.id}:{job.attempt}"
        end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.running[attempt] = job, end
        emit(
            event="job",
            attempt=attempt,
            job_id=job.id,
            number=job.attempt,
            tenant=job.tenant,
            service=job.service,
            payload=job.payload,
        )
        try:
            while True:
                try:
                    return await asyncio.shield(end)
                except asyncio.CancelledError:
                    if end.cancelled():
                        raise
                    emit(event="cancelled", attempt=attempt)
        finally:
            del self.running[attempt]

    async def do_progress(self, c: Command) -> dict[str, Any]:
        job, _ = self.running[c["attempt"]]
        await job.progress(c["value"])
        return {}

    async def do_finish(self, c: Command) -> dict[str, Any]:
        _, end = self.running[c["attempt"]]
        error = c.get("error")
        if error is None:
            end.set_result(c.get("result"))
        elif error.get("retryable"):
            delay = error["retry_delay_ms"] / 1000 if "retry_delay_ms" in error else None
            end.set_exception(RetryableError(error["code"], error.get("message", ""), delay))
        else:
            end.set_exception(FinalError(error["code"], error.get("message", "")))
        return {}

    async def do_stop(self, c: Command) -> dict[str, Any]:
        assert self.worker is not None, "start comes first"
        self.worker.stop()
        return {}


if __name__ == "__main__":
    asyncio.run({"client": ClientDriver, "worker": WorkerDriver}[sys.argv[1]]().serve())
