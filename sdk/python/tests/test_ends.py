"""Ends of workers and handlers that something goes wrong for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import program
import pytest
from rig import ROOT, Process, Replica, System, aeventually, working
from test_client import echo, held
from test_worker import failure
from test_worker import program as start

from freeslot import Client, Error, RunningJob, Worker, _process


async def elsewhere(job: RunningJob) -> str:
    return "elsewhere"


def test_children_of_handlers_end_by_signals(system: System, replica: Replica) -> None:
    """The signal of a fork does not stop the worker."""

    async def main() -> None:
        process = start(system, "forks")
        try:
            async with Client(replica.url) as client, asyncio.timeout(60):
                await aeventually(lambda: replica.has("forks"))
                for service in ("forks", "forks-process"):
                    assert await client.run(service) == [1, 2]
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.popen.wait) == 0
        finally:
            process.end()

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [True, False])
def test_the_loop_of_the_program_ends(system: System, replica: Replica, cancels: bool) -> None:
    """The node leaves, and its jobs go to other nodes."""
    name = f"loop-{cancels}".lower()

    async def main() -> None:
        async with Client(replica.url) as client, asyncio.timeout(60):
            run = asyncio.run if cancels else run_and_close
            first = await asyncio.to_thread(run, begin(client, asyncio.get_running_loop()))
            late = await client.submit(name)
            await aeventually(lambda: not replica.has(name))
            async with working(system, {name: elsewhere}):
                for handle in (first, late):
                    status = await handle
                    assert (status.result, status.failures) == ("elsewhere", 0)

    async def begin(client: Client, loop: asyncio.AbstractEventLoop) -> Any:
        begun = asyncio.Event()

        async def forever(job: RunningJob) -> None:
            begun.set()
            await asyncio.Event().wait()

        worker = Worker(replica.url, token=system.token, node=name, slots=2)
        worker.service(name)(forever)
        await worker.start()
        await aeventually(lambda: replica.has(name))
        handle = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.submit(name), loop))
        await begun.wait()
        return handle

    def run_and_close(work: Any) -> Any:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(work)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    asyncio.run(main())


def test_a_process_that_starts_slowly_holds_nothing_up(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("IMPORT_GATE", str(gate))

    async def main() -> None:
        process = start(system, "slow-child")
        try:
            async with Client(replica.url) as client, asyncio.timeout(60):
                await aeventually(lambda: replica.has("slow-child"))
                handle = await client.submit("waits", "x" * 250_000)
                await aeventually(Path(f"{gate}.reached").exists)
                assert (await client.cancel(handle.job_id)).state == "cancelling"
                assert [await client.run("echo", i) for i in range(3)] == [0, 1, 2]
                gate.touch()
                assert (await handle).state == "cancelled"
        finally:
            gate.touch()
            process.end(signal.SIGTERM)  # a killed node would get jobs of other tests

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_handler_that_cannot_start(
    system: System, replica: Replica, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        handler = program.process if kind == "process" else lambda job: job.payload
        async with working(system, {f"n.{kind}": handler}), Client(replica.url) as client, asyncio.timeout(60):
            with monkeypatch.context() as patch:
                if kind == "thread":
                    patch.setattr(threading.Thread, "start", no_start)
                else:
                    patch.setattr(_process, "_Child", no_start)
                error = await failure(client, f"n.{kind}", max_attempts=1)
                assert (error.code, error.status.state) == ("start_failed", "dead")
            assert await client.run(f"n.{kind}", 1) == 1

    thread_start = threading.Thread.start

    def no_start(thread: threading.Thread | None = None) -> None:
        if thread is not None and not thread.name.startswith("freeslot-handler"):
            return thread_start(thread)
        raise AssertionError("no more can be started")

    asyncio.run(main())


def test_a_program_without_a_guard_tells(system: System, replica: Replica, tmp_path: Path) -> None:
    """A handler's process that runs the worker once more must not take the node."""
    (tmp_path / "bare.py").write_text(
        f"""
from freeslot import Worker
worker = Worker({replica.url!r}, token={system.token!r}, node="bare", slots=2)
@worker.service("bare", process=True)
def bare(job): pass
@worker.service("bare-echo")
async def echo(job): return job.payload
worker.run()
"""
    )

    async def main() -> None:
        os.environ["PYTHONPATH"] = str(ROOT / "sdk/python/src")
        process = Process(sys.executable, str(tmp_path / "bare.py"))
        try:
            async with Client(replica.url) as client, asyncio.timeout(60):
                await aeventually(lambda: replica.has("bare"))
                assert (await failure(client, "bare")).code == "exit_1"
                assert await client.run("bare-echo", 1) == 1
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.popen.wait) == 0
        finally:
            process.end()
        lines = "".join(iter(process.lines.get, ""))
        assert 'RuntimeError: a spawned process imports this module: call run below if __name__ ==' in lines

    asyncio.run(main())


def test_a_coroutine_that_ignores_its_cancel_does_not_keep_the_program(
    system: System, replica: Replica, tmp_path: Path
) -> None:
    async def main() -> None:
        process = start(system, "ignores")
        try:
            async with Client(replica.url) as client, asyncio.timeout(60):
                await aeventually(lambda: replica.has("ignores"))
                handle = await client.submit("stubborn", str(tmp_path / "told"))
                async for _ in handle.progress():
                    break
                process.send(signal.SIGTERM)
                await aeventually(lambda: replica.nodes()["ignores"]["status"] == "draining")
                process.send(signal.SIGTERM)
                await aeventually(lambda: process.popen.poll() is not None)
                assert process.popen.returncode == 0
                async with working(system, {"stubborn": elsewhere}):
                    assert (await handle).result == "elsewhere"
        finally:
            process.end()

    asyncio.run(main())


def test_a_start_that_is_cancelled() -> None:
    async def main(silent: socket.socket) -> None:
        for call in (Worker.start, Worker.serve):
            worker = Worker(f"ws://127.0.0.1:{silent.getsockname()[1]}", token="t", node="n")
            worker.service("s")(echo)
            task = asyncio.create_task(call(worker))
            await aeventually(lambda w=worker: w._node is not None)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(silent))


@pytest.mark.parametrize("part", ["node", "gateway"])
def test_a_defect_hands_the_jobs_back(system: System, replica: Replica, part: str) -> None:
    name = f"defect-{part}"

    async def main() -> None:
        hold, handler = held()
        worker = Worker(replica.url, token=system.token, node=name)
        worker.service(name)(handler)
        await worker.start()
        await aeventually(lambda: replica.has(name))
        async with Client(replica.url) as client, asyncio.timeout(60):
            handle = await client.submit(name)
            await hold.begun.get()
            node = worker._node
            assert node is not None
            if part == "node":
                node.post(lambda: 1 // 0)
            else:
                assert node._gateway is not None
                node.post(node._gateway._spawn, broken())
            with pytest.raises(Error) as defect:
                await worker.wait()
            assert defect.value.code == "internal" and "ZeroDivisionError" in defect.value.message
            assert not replica.has(name)
            async with working(system, {name: elsewhere}):
                status = await handle
                assert (status.result, status.failures) == ("elsewhere", 0)

    async def broken() -> None:
        1 // 0

    asyncio.run(main())


def test_a_process_that_was_killed_late_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = _process.Processes(1000)
    run = processes.prepare(RunningJob(1), program.process)
    follow = run._follow

    def followed(child: Any) -> Any:
        outcome = follow(child)
        run.give_up()
        return outcome

    monkeypatch.setattr(run, "_follow", followed)
    assert run().result == "1"
    assert processes._idle == []
