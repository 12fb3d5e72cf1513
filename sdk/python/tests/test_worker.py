from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rig import ROOT, Process, Replica, System, aeventually, working
from test_client import echo, held

from freeslot import Client, Error, FinalError, JobError, RetryableError, RunningJob, SupersededError, Worker

PROGRAM = Path(__file__).with_name("program.py")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


def program(system: System, node: str, *args: str) -> Process:
    """Starts a worker of a process of its own."""
    gateway = ",".join(r.url for r in system.replicas)
    os.environ["PYTHONPATH"] = str(ROOT / "sdk/python/src")
    return Process(sys.executable, str(PROGRAM), gateway, system.token, node, *args)


def raised(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The types of the exceptions that were logged with a traceback."""
    return [record.exc_info[0] for record in caplog.records if record.exc_info]


async def failure(client: Client, service: str, payload: Any = None, **options: Any) -> JobError:
    with pytest.raises(JobError) as failed:
        await client.run(service, payload, **options)
    return failed.value


def test_what_a_handler_gets_and_gives(system: System, replica: Replica) -> None:
    threads: set[int] = set()

    async def coroutine(job: RunningJob) -> Any:
        await job.progress(1)
        return [job.id, job.attempt, job.tenant, job.service, job.slots, job.payload, job.requirement, job.cancelled]

    def plain(job: RunningJob) -> Any:
        threads.add(threading.get_ident())
        job.progress(1)
        return job.payload

    async def main() -> None:
        services = {"w.coroutine": coroutine, "w.plain": plain}
        async with working(system, services, slots=2), Client(replica.url) as client:
            handle = await client.submit("w.coroutine", {"a": [1.5]}, slots=2, features=())
            got = (await handle).result
            assert got == [handle.job_id, 1, "default", "w.coroutine", 2, {"a": [1.5]}, {}, False]
            assert await asyncio.gather(*(client.run("w.plain", i) for i in range(20))) == list(range(20))
            assert threading.get_ident() not in threads and 1 <= len(threads) <= 2

    asyncio.run(main())


def test_errors_of_handlers(system: System, replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    async def bad(job: RunningJob) -> Any:
        match job.payload:
            case "final":
                raise FinalError("no_voice", "there is no voice")
            case "code":
                raise FinalError("not a code")
            case "texts":
                raise FinalError("odd", 5)  # type: ignore[arg-type]
            case "delay":
                raise RetryableError("odd", "no delay", delay=timedelta(seconds=1))  # type: ignore[arg-type]
            case "mute":
                raise Mute
            case "retry":
                raise RetryableError("busy", f"attempt {job.attempt}", delay=0)
            case "exit":
                sys.exit(3)
            case "object":
                return object()
            case "large":
                return "x" * 2000
            case "progress":
                await job.progress("x" * 5000)
            case _:
                raise asyncio.CancelledError

    def plain(job: RunningJob) -> Any:
        sys.exit(4)

    async def main() -> None:
        services = {"e.bad": bad, "e.plain": plain}
        async with working(system, services, max_result_bytes=1000), Client(replica.url) as client:
            for payload, code, message in (
                ("final", "no_voice", "there is no voice"),
                ("code", "handler_error", "not a code"),
                ("texts", "odd", "5"),
                ("mute", "handler_error", "Mute: (it has no text)"),
                ("exit", "handler_error", "SystemExit: 3"),
                ("object", "handler_error", "the handler's result cannot be encoded as JSON"),
                ("large", "result_too_large", "the result has 2002 bytes, the node's limit is 1000"),
                ("progress", "handler_error", "progress has 5002 bytes of JSON"),
                ("cancelled", "handler_error", "the handler was cancelled"),
            ):
                error = await failure(client, "e.bad", payload)
                assert (error.code, error.status.state) == (code, "failed")
                assert message in error.message
            assert (await failure(client, "e.plain")).message == "SystemExit: 4"
            assert (await failure(client, "e.bad", "delay", max_attempts=1)).message == "no delay"
            dead = await failure(client, "e.bad", "retry", max_attempts=2)
            assert (dead.status.state, dead.status.failures, dead.code) == ("dead", 2, "busy")
            assert dead.message == "attempt 2"

    asyncio.run(main())
    assert raised(caplog) == [Mute, SystemExit, Error, SystemExit]


def test_large_jobs_and_results_go_by_http(system: System, replica: Replica) -> None:
    async def main() -> None:
        async with working(system, {"l.echo": echo}, slots=4), Client(replica.url) as client:
            large = {"text": "ü" * 100_000}
            assert await asyncio.gather(*(client.run("l.echo", large) for _ in range(6))) == [large] * 6

    asyncio.run(main())


def test_a_deep_payload_disturbs_no_other_job(system: System, replica: Replica) -> None:
    async def depth(job: RunningJob) -> int:
        depth, inner = 0, job.payload
        while inner:
            depth, inner = depth + 1, inner[0]
        return depth + 1

    async def main() -> None:
        body = b'{"service":"d.depth","payload":' + b"[" * 8000 + b"]" * 8000 + b"}"

        def post() -> Any:
            import json
            import urllib.request

            request = urllib.request.Request(
                f"http://{replica.address}/v1/jobs?wait_ms=60000", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        async with working(system, {"d.depth": depth, "d.echo": echo}, slots=4), Client(replica.url) as client:
            status, *others = await asyncio.gather(
                asyncio.to_thread(post), *(client.run("d.echo", i) for i in range(20))
            )
            assert status["result"] == 8000 and others == list(range(20))

    asyncio.run(main())


def test_cancel_reaches_the_handler(system: System, replica: Replica, caplog: pytest.LogCaptureFixture) -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def coroutine(job: RunningJob) -> Any:
            begun.put_nowait(job.id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(job.cause)
                raise

        async def finishes(job: RunningJob) -> Any:
            begun.put_nowait(job.id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "done all the same"

        async def fails(job: RunningJob) -> Any:
            begun.put_nowait(job.id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("told to stop") from None

        def plain(job: RunningJob) -> Any:
            loop.call_soon_threadsafe(begun.put_nowait, job.id)
            assert job.wait_cancelled() and job.cancelled
            seen.append(job.cause)
            raise RuntimeError("told to stop")

        services = {"x.coroutine": coroutine, "x.finishes": finishes, "x.fails": fails, "x.plain": plain}
        states = {"x.coroutine": "cancelled", "x.finishes": "succeeded", "x.fails": "cancelled", "x.plain": "cancelled"}
        async with working(system, services), Client(replica.url) as client:
            for service, state in states.items():
                handle = await client.submit(service)
                await begun.get()
                assert (await client.cancel(handle.job_id)).state == "cancelling"
                assert (await handle).state == state
            assert seen == ["cancelled", "cancelled"]

    asyncio.run(main())
    assert not raised(caplog)


def test_progress_is_thinned_and_never_after_the_end(system: System, replica: Replica) -> None:
    async def main() -> None:
        async def floods(job: RunningJob) -> Any:
            for i in range(2000):
                await job.progress(i)
            held_back.set()
            await job.progress("last")
            await released.wait()
            for i in range(100):
                await job.progress(i)
            return "done"

        held_back, released = asyncio.Event(), asyncio.Event()
        async with working(system, {"p.floods": floods}), Client(replica.url) as client:
            handle = await client.submit("p.floods")
            seqs = []
            async for progress in handle.progress():
                seqs.append(progress.seq)
                if progress.value == "last":
                    released.set()
            assert held_back.is_set() and seqs == sorted(set(seqs)) and len(seqs) < 100
            assert (await handle).result == "done"

    asyncio.run(main())


def test_a_silent_handler_is_stopped(system: System, replica: Replica) -> None:
    async def main() -> None:
        causes: list[str] = []

        async def silent(job: RunningJob) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                causes.append(job.cause)

        async with working(system, {"s.silent": silent}), Client(replica.url) as client:
            error = await failure(client, "s.silent", progress_timeout_ms=50, max_attempts=1)
            assert (error.code, error.status.state, causes) == ("stalled", "dead", ["stalled"])
            assert error.message == "the handler reported no progress for 0.05s"

    asyncio.run(main())


def test_a_handler_that_does_not_return_is_given_up(system: System, replica: Replica) -> None:
    async def main() -> None:
        let_go = threading.Event()

        def stuck(job: RunningJob) -> Any:
            let_go.wait()

        async with working(system, {"u.stuck": stuck, "u.echo": echo}, slots=2) as worker, Client(replica.url) as client:
            worker._settings.stop_grace = 0.05
            error = await failure(client, "u.stuck", progress_timeout_ms=50, max_attempts=1)
            assert error.message.endswith("and has not returned since")
            node = worker._config.node
            # The node offers the slots that it has, until the handler returns.
            await aeventually(lambda: replica.nodes()[node]["max_concurrency"] == 1)
            assert await client.run("u.echo", 1) == 1
            let_go.set()
            await aeventually(lambda: replica.nodes()[node]["max_concurrency"] == 2)

    asyncio.run(main())


def test_stop_lets_handlers_end_and_hands_the_others_back(system: System, replica: Replica) -> None:
    async def main() -> None:
        short, short_handler = held()
        causes: list[str] = []
        begun = asyncio.Event()

        async def long(job: RunningJob) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                causes.append(job.cause)

        async with Client(replica.url) as client:
            async with working(system, {"h.short": short_handler}, node="h-short", stop_timeout=60) as first:
                ends = await client.submit("h.short")
                await short.begun.get()
                first.stop()
                await aeventually(lambda: replica.nodes()["h-short"]["status"] == "draining")
                short.released.set()
                await first.wait()
                assert (await ends).result == "done"
            await aeventually(lambda: not replica.has("h-short"))
            async with working(system, {"h.long": long}, node="h-long", stop_timeout=0) as second:
                again = await client.submit("h.long")
                await begun.wait()
                second.stop()
                await second.wait()
            assert causes == ["stopping"]

            async def other(job: RunningJob) -> Any:
                return "elsewhere"

            async with working(system, {"h.long": other}):
                status = await again
            assert (status.result, status.failures) == ("elsewhere", 0)
            assert status.attempt >= 2

    asyncio.run(main())


def test_signals_drain_a_program(system: System, replica: Replica, tmp_path: Path) -> None:
    async def main() -> None:
        process = program(system, "signalled")
        try:
            async with Client(replica.url) as client:
                await aeventually(lambda: replica.has("signalled"))
                handle = await client.submit("until", str(tmp_path / "go"))
                async for _ in handle.progress():
                    break
                process.send(signal.SIGTERM)
                await aeventually(lambda: replica.nodes()["signalled"]["status"] == "draining")
                (tmp_path / "go").touch()
                assert (await handle).result == "done"
                assert await asyncio.to_thread(process.popen.wait) == 0
        finally:
            process.end()

    asyncio.run(main())


def test_a_third_signal_ends_the_process(system: System, replica: Replica, tmp_path: Path) -> None:
    async def main() -> None:
        process = program(system, "stubborn")
        try:
            async with Client(replica.url) as client:
                await aeventually(lambda: replica.has("stubborn"))
                handle = await client.submit("spin", str(tmp_path / "never"))
                async for _ in handle.progress():
                    break
                process.send(signal.SIGTERM)
                await aeventually(lambda: replica.nodes()["stubborn"]["status"] == "draining")
                process.send(signal.SIGTERM)
                await aeventually(lambda: not replica.has("stubborn"))
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.popen.wait) == 1
                await client.cancel(handle.job_id)
        finally:
            process.end()

    asyncio.run(main())


def test_a_busy_handler_does_not_lose_the_node(own: System, tmp_path: Path) -> None:
    """Busy in Python code in the worker's process, and in C in a process of its own."""

    async def main() -> None:
        replica = own.replica("r1", heartbeat_interval="1s", heartbeat_limit="4s")
        process = program(own, "busy")
        try:
            async with Client(replica.url) as client:
                await aeventually(lambda: replica.has("busy"))
                handles = [await client.submit(name, str(tmp_path / "go")) for name in ("spin", "grip")]
                for handle in handles:
                    async for _ in handle.progress():
                        break
                began = replica.nodes()["busy"]["last_heartbeat_ms"]
                node = await aeventually(lambda: beaten(replica, began + 2 * 4000))
                assert node["status"] == "online"
                process.send(signal.SIGTERM)  # the handler does not let the program's loop see it
                await aeventually(lambda: replica.nodes()["busy"]["status"] == "draining")
                (tmp_path / "go").touch()
                for handle, result in zip(handles, ("spun", "gripped")):
                    status = await handle
                    assert (status.result, status.attempt) == (result, 1)
                assert await asyncio.to_thread(process.popen.wait) == 0
        finally:
            process.end()

    def beaten(replica: Replica, after: int) -> dict[str, Any] | None:
        node = replica.nodes()["busy"]
        return node if node["last_heartbeat_ms"] > after else None

    asyncio.run(main())


def test_processes(system: System, replica: Replica) -> None:
    async def main() -> None:
        process = program(system, "processes", "2")
        try:
            async with Client(replica.url) as client:
                await aeventually(lambda: replica.has("processes"))
                assert await client.run("process", {"a": 1}) == {"a": 1}
                assert await client.run("process", "children") == 0
                for payload, code, message in (
                    ("raise", "handler_error", "ValueError: in the process"),
                    ("object", "handler_error", "the handler's result cannot be encoded as JSON"),
                    ("exit", "exit_3", "the handler's process ended with 3"),
                    ("die", "signalled", "signal 9 ended the handler's process"),
                ):
                    error = await failure(client, "process", payload, max_attempts=1)
                    assert error.code == code and message in error.message
                assert error.status.state == "dead", "a signal may pass"
                handle = await client.submit("process", "wait")
                async for _ in handle.progress():
                    break
                await client.cancel(handle.job_id)
                assert (await handle).state == "cancelled"
                # A child ends with its worker, also if that is killed.
                hangs = await client.submit("process", "hang", max_attempts=1)
                pid = 0
                async for progress in hangs.progress():
                    pid = progress.value
                    break
                process.end(signal.SIGKILL)
                await aeventually(lambda: not Path(f"/proc/{pid}").exists())
        finally:
            process.end()

    asyncio.run(main())


def test_a_process_that_hangs_does_not_keep_its_worker(system: System, replica: Replica) -> None:
    async def main() -> None:
        process = program(system, "hanging")
        try:
            async with Client(replica.url) as client:
                await aeventually(lambda: replica.has("hanging"))
                hangs = await client.submit("process", "hang", max_attempts=1)
                async for _ in hangs.progress():
                    break
                process.send(signal.SIGTERM)
                await aeventually(lambda: replica.nodes()["hanging"]["status"] == "draining")
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.popen.wait) == 0
                await client.cancel(hangs.job_id)
                assert (await hangs).state == "cancelled", "the job was handed back, and waits for another node"
        finally:
            process.end()

    asyncio.run(main())


def test_a_superseded_worker_ends(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()
        causes: list[str] = []

        async def told(job: RunningJob) -> Any:
            try:
                return await hold(job)
            finally:
                causes.append(job.cause)

        first = Worker(replica.url, token=system.token, node="twice", heartbeat_interval=0.1)
        first.service("v.hold")(told)
        await first.start()
        async with Client(replica.url) as client:
            await client.submit("v.hold", max_attempts=1)
            await hold.begun.get()
            async with working(system, {"v.hold": handler}, node="twice"):
                with pytest.raises(SupersededError):
                    await first.wait()
        assert causes == ["superseded"]

    asyncio.run(main())


def test_a_refused_worker_does_not_start(system: System, replica: Replica) -> None:
    async def main() -> None:
        refused = Worker(replica.url, token="fsn_unknown", node="refused")
        refused.service("r.echo")(echo)
        with pytest.raises(Error) as unknown:
            await refused.start()
        assert (unknown.value.code, unknown.value.field) == ("unauthenticated", "token")
        with pytest.raises(Error):
            await refused.wait()
        bad = Worker(replica.url, token=system.token, node="bad", labels={"not a name": "x"})
        bad.service("r.echo")(echo)
        with pytest.raises(Error) as label:
            await bad.start()
        assert label.value.code == "invalid_argument" and "labels" in label.value.field
        missing = Worker(replica.url, token_file="/nowhere/token", node="missing")
        missing.service("r.echo")(echo)
        with pytest.raises(Error) as file:
            await missing.start()
        assert file.value.field == "token_file"

    asyncio.run(main())


def test_a_worker_waits_for_its_gateway(own: System) -> None:
    async def main() -> None:
        replica = own.replica("r1")
        replica.send(signal.SIGSTOP)
        worker = Worker(f"ws://127.0.0.1:1,{replica.url}", token=own.token, node="early", max_backoff=0.05)
        worker.service("echo")(echo)
        start = asyncio.create_task(worker.start())
        await aeventually(lambda: worker._node is not None)
        replica.send(signal.SIGCONT)
        await start
        await aeventually(lambda: replica.has("early"))
        worker.stop()
        await worker.wait()
        stopped = Worker("ws://127.0.0.1:1", token=own.token, node="stopped")
        stopped.service("echo")(echo)
        start = asyncio.create_task(stopped.start())
        await aeventually(lambda: stopped._node is not None)
        stopped.stop()
        with pytest.raises(Error) as before:
            await start
        assert before.value.code == "closed"

    asyncio.run(main())


def test_gateways_that_die_stop_and_freeze(own: System) -> None:
    """The node goes on by another gateway, and no attempt is lost or done twice."""

    async def main() -> None:
        limits = {"heartbeat_interval": "2s", "heartbeat_limit": "16s"}
        replicas = [own.replica(f"r{i}", **limits) for i in range(4)]
        watcher, gateways = replicas[0], replicas[1:]
        hold, handler = held()
        services = {"hold": handler, "echo": echo}
        async with working(own, services, "mover", gateways, slots=8, heartbeat_interval=0.5):
            async with Client(watcher.url) as client:
                handle = await client.submit("hold")
                await hold.begun.get()
                frozen = gateways[0]
                for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                    via = watcher.nodes()["mover"]["connection"]["replica"]
                    gateway = next(r for r in gateways if r.name == via)
                    gateway.send(number)
                    if number == signal.SIGTERM:  # the others are gone: it comes back to where it can
                        frozen.send(signal.SIGCONT)
                    await aeventually(lambda: moved(watcher, via))
                    assert await client.run("echo", 1) == 1
                    frozen = gateway
                hold.released.set()
                status = await handle
                assert (status.result, status.attempt, status.failures) == ("done", 1, 0)
        assert hold.begun.empty()

    def moved(watcher: Replica, former: str) -> bool:
        connection = watcher.nodes().get("mover", {}).get("connection", {})
        return bool(connection.get("replica", former) != former)

    asyncio.run(main())


def test_a_lease_that_ends_stops_the_jobs_that_ask_for_it(own: System) -> None:
    async def main() -> None:
        replica = own.replica("r1", heartbeat_interval="0.5s", heartbeat_limit="2s")
        causes: asyncio.Queue[str] = asyncio.Queue()
        hold, handler = held()

        async def told(job: RunningJob) -> Any:
            try:
                return await hold(job)
            except asyncio.CancelledError:
                causes.put_nowait(job.cause)
                raise

        services = {"bound": told, "free": handler}
        async with working(own, services, slots=2, heartbeat_interval=0.5), Client(replica.url) as client:
            bound = await client.submit("bound", on_lease_loss="cancel", max_attempts=1)
            free = await client.submit("free")
            await hold.begun.get()
            await hold.begun.get()
            replica.send(signal.SIGSTOP)
            assert await causes.get() == "lease_lost"
            hold.released.set()
            replica.send(signal.SIGCONT)
            assert (await bound).error.code in ("lease_lost", "node_lost")  # type: ignore[union-attr]
            assert (await free).state == "succeeded"

    asyncio.run(main())


def test_redis_forgets_the_node(own: System) -> None:
    """The node registers again, under the same epoch."""

    async def main() -> None:
        import socket

        replica = own.replica("r1")
        async with working(own, {"echo": echo}, "forgotten", heartbeat_interval=0.1) as worker:
            assert worker._node is not None and worker._node._gateway is not None
            epoch = worker._node._gateway.epoch
            assert replica.nodes()["forgotten"]["epoch"] == epoch
            registered = replica.nodes()["forgotten"]["registered_at_ms"]
            with socket.socket(socket.AF_UNIX) as redis:
                redis.connect(own.redis.path)
                redis.sendall(b"EVAL \"for _,k in ipairs(redis.call('keys','*node*forgotten*')) do redis.call('del',k) end\" 0\r\n")
                assert redis.recv(100)[:1] in b"$:*_"
            await aeventually(lambda: again(replica, registered))
            assert replica.nodes()["forgotten"]["epoch"] == epoch
            async with Client(replica.url) as client:
                assert await client.run("echo", 1) == 1

    def again(replica: Replica, before: int) -> bool:
        node = replica.nodes().get("forgotten")
        return node is not None and node["registered_at_ms"] > before

    asyncio.run(main())


def test_figures(system: System, replica: Replica) -> None:
    pytest.importorskip("psutil")

    async def main() -> None:
        async with working(system, {"m.echo": echo}, "measured", heartbeat_interval=0.1):
            node = await aeventually(
                lambda: next((n for n in [replica.nodes()["measured"]] if "metrics" in n["resources"]), None)
            )
            figures = node["resources"]["metrics"]
            assert 0 < figures["memory"]["usage"] < 1 and figures["memory"]["total_bytes"] > 0
            assert 0 <= figures["cpu"]["usage"] <= 1 and figures["cpu"]["cores"] == os.cpu_count()
            assert node["resources"]["max_concurrency"] == 1

    asyncio.run(main())


def test_mistakes_of_the_program_name_what_is_wrong() -> None:
    def worker(**options: Any) -> Worker:
        given: dict[str, Any] = {"gateway": "ws://127.0.0.1:1", "token": "t", "node": "n", **options}
        return Worker(**given)

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"gateway": "http://host"}, "gateway"),
        ({"gateway": "wss://host/path"}, "gateway"),
        ({"node": "a b"}, "node"),
        ({"token": ""}, "token_file"),
        ({"token_file": "x"}, "token_file"),
        ({"slots": 0}, "slots"),
        ({"heartbeat_interval": 0.01}, "heartbeat_interval"),
        ({"max_result_bytes": 1 << 30}, "max_result_bytes"),
        ({"languages": {"spoken": ["de"]}}, "languages"),
    ]
    for options, field in wrong:
        with pytest.raises(Error) as bad:
            worker(**options)
        assert bad.value.field == field

    def local(job: RunningJob) -> None: ...

    for name, handler, process, field in (
        ("a b", echo, False, "service"),
        ("a", echo, True, "process"),
        ("a", local, True, "process"),
    ):
        with pytest.raises(Error) as bad:
            worker().service(name, process=process)(handler)
        assert bad.value.field == field
    twice = worker()
    twice.service("a")(echo)
    with pytest.raises(Error):
        twice.service("a")(echo)
