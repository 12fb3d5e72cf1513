from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import threading
from queue import SimpleQueue
from typing import Any

import pytest
from rig import Replica, System, aeventually, working
from websockets.legacy.server import serve as websocket_server

from freeslot import (
    Client,
    ClosedError,
    Error,
    FinalError,
    Handle,
    Job,
    JobError,
    LabelRule,
    Requirement,
    RunningJob,
    Worker,
    _socket,
)
from freeslot.sync import SyncClient


async def echo(job: RunningJob) -> Any:
    return job.payload


class Hold:
    """A handler that tells when it has begun, and goes on until it is released."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[RunningJob] = asyncio.Queue()
        self.released = asyncio.Event()

    async def __call__(self, job: RunningJob) -> Any:
        self.begun.put_nowait(job)
        await self.released.wait()
        return "done"


def held() -> tuple[Hold, Any]:
    hold = Hold()

    async def handler(job: RunningJob) -> Any:
        return await hold(job)

    return hold, handler


def test_run_and_its_errors(system: System, replica: Replica) -> None:
    async def main() -> None:
        async def fails(job: RunningJob) -> None:
            raise ValueError("it broke")

        async with working(system, {"t.echo": echo, "t.fails": fails}), Client(replica.url) as client:
            assert await client.run("t.echo", {"text": "grüß 😀"}) == {"text": "grüß 😀"}
            assert await client.run(Job("t.echo")) is None
            with pytest.raises(JobError) as failed:
                await client.run("t.fails")
            assert (failed.value.code, failed.value.message) == ("handler_error", "ValueError: it broke")
            assert failed.value.status.state == "failed"
            with pytest.raises(Error) as bad:
                await client.submit("t.echo", pool="not a pool")
            assert (bad.value.code, bad.value.field) == ("invalid_argument", "job.requirement.pool")

    asyncio.run(main())


def test_no_node_fits(own: System) -> None:
    async def refusal(client: Client) -> Error:
        with pytest.raises(Error) as nowhere:
            await client.submit("echo", pool="no-such-pool")
        return nowhere.value

    async def main() -> None:
        replica = own.replica("r1", heartbeat_interval="0.5s", heartbeat_limit="1s")
        async with working(own, {"echo": echo}, heartbeat_interval=0.2), Client(replica.url) as client:
            nowhere = await refusal(client)
            while nowhere.code == "unavailable":  # soon after a start, a node may still come back
                assert nowhere.temporary
                await asyncio.sleep(0.02)
                nowhere = await refusal(client)
            assert (nowhere.code, nowhere.temporary, nowhere.breakdown) == ("no_matching_node", False, {"pool": 1})

    asyncio.run(main())


def test_mistakes_of_the_program_name_the_field(replica: Replica) -> None:
    async def main() -> None:
        async with Client(replica.url) as client:
            for job, field in (
                (Job("a", object()), "job.payload"),
                (Job("a", priority="high"), "job.priority"),  # type: ignore[arg-type]
                (Job("a", priority=True), "job.priority"),
                (Job("a", requirement=Requirement(services="asr")), "job.requirement.services"),
                (Job("a", requirement=Requirement(labels={"zone": 1})), "job.requirement.labels.zone"),  # type: ignore[dict-item]
                (
                    Job("a", requirement=Requirement(label_rules=[LabelRule("gpu", "in", [1])])),  # type: ignore[list-item]
                    "job.requirement.label_rules[0].values[0]",
                ),
                (Job("a", "x" * (1 << 20)), "job.payload"),
            ):
                with pytest.raises(Error) as bad:
                    await client.submit(job)
                assert bad.value.field == field
            with pytest.raises(TypeError):
                await client.submit("a", colour="red")

    asyncio.run(main())
    for urls in ("", "127.0.0.1:7480", "ftp://host", "ws://"):
        with pytest.raises(Error) as bad_urls:
            Client(urls)
        assert bad_urls.value.field == "urls"


def test_batch_keeps_the_order_and_refuses_one_by_one(system: System, replica: Replica) -> None:
    async def main() -> None:
        async with working(system, {"b.echo": echo}, slots=8), Client(replica.url) as client:
            jobs = [Job("b.echo", i) for i in range(1200)]
            jobs[7] = Job("no such name")
            jobs[9] = Job("b.echo", {1, 2})
            outcomes = await client.batch(jobs)
            refused = {i: o for i, o in enumerate(outcomes) if isinstance(o, Error)}
            assert {i: e.field for i, e in refused.items()} == {7: "jobs[7].service", 9: "jobs[9].payload"}
            results = [(await o).result for o in outcomes if isinstance(o, Handle)]
            assert results == [i for i in range(1200) if i not in refused]
            with pytest.raises(Error):
                await client.batch([])

    asyncio.run(main())


def test_progress_cancel_attach(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()

        async def talks(job: RunningJob) -> Any:
            await job.progress({"done": 70})
            return await hold(job)

        async with working(system, {"p.talks": talks}), Client(replica.url) as first, Client(replica.url) as second:
            handle = await first.submit("p.talks")
            assert (await handle.assigned()) is not None
            async for progress in handle.progress():
                assert (progress.attempt, progress.value) == (1, {"done": 70})
                break
            taken = await second.attach(handle.job_id)
            assert await second.attach(handle.job_id) is taken
            with pytest.raises(Error) as detached:
                await handle
            assert detached.value.code == "unavailable"
            async for progress in taken.progress():
                assert progress.value == {"done": 70}, "expected the latest progress with the attach"
                break
            assert (await first.cancel(handle.job_id)).state == "cancelling"
            assert (await taken).state == "cancelled"
            ended = await first.attach(handle.job_id)
            assert ended.done and (await ended).state == "cancelled"
            with pytest.raises(Error) as unknown:
                await first.cancel("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
            assert unknown.value.code == "not_found"

    asyncio.run(main())


def test_a_key_makes_a_submit_repeatable(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()
        key = secrets.token_hex(8)
        async with working(system, {"k.hold": handler}), Client(replica.url) as client:
            first = await client.submit("k.hold", idempotency_key=key)
            again = await client.submit("k.hold", idempotency_key=key)
            assert again is first
            with pytest.raises(Error) as other:
                await client.submit("k.hold", 1, idempotency_key=key)
            assert other.value.code == "conflict"
            hold.released.set()
            assert await again.result() == "done"

    asyncio.run(main())


def test_giving_up_does_not_cancel(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()
        async with working(system, {"g.hold": handler}), Client(replica.url) as client:
            handle = await client.submit("g.hold")
            wait = asyncio.create_task(handle.wait())
            await hold.begun.get()
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            hold.released.set()
            assert await handle.result() == "done"

    asyncio.run(main())


def test_close_ends_what_waits(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()
        async with working(system, {"c.hold": handler}):
            client = Client(replica.url)
            with pytest.raises(RuntimeError):
                await client.submit("c.hold")
            await client.connect()
            handle = await client.submit("c.hold")
            wait = asyncio.create_task(handle.wait())
            await hold.begun.get()
            await client.close()
            await client.close()
            with pytest.raises(ClosedError):
                await wait
            with pytest.raises(ClosedError):
                await client.submit("c.hold")
            tasks = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
            assert not [name for name in tasks if "Client" in name or "Connection" in name]

    asyncio.run(main())


async def surely(client: Client, key: str) -> Any:
    """Runs a job whose submit may meet a replica that has just died: the key makes it repeatable."""
    while True:
        try:
            return await client.run("echo", key, idempotency_key=key)
        except Error as err:
            assert err.code == "unavailable"


def test_a_replica_that_dies_or_stops_loses_nothing(own: System) -> None:
    """The jobs' results come by another replica: after a kill, and after a goaway."""

    async def main() -> None:
        replicas = [own.replica(name) for name in ("r1", "r2", "r3")]
        urls = ",".join(r.url for r in replicas)
        hold, handler = held()
        async with working(own, {"hold": handler, "echo": echo}, slots=50):
            async with Client(urls, min_backoff=0.01) as client:
                handles = await client.batch([Job("hold") for _ in range(40)])
                for _ in handles:
                    await hold.begun.get()
                assert client._current is not None and client._current.url == 0
                replicas[0].send(signal.SIGKILL)
                assert await surely(client, "a") == "a"
                assert client._current is not None and client._current.url == 1
                leaving = client._current
                replicas[1].send(signal.SIGTERM)
                await leaving.news.wait()
                assert await surely(client, "b") == "b"
                hold.released.set()
                for handle in handles:
                    assert isinstance(handle, Handle)
                    status = await handle
                    assert (status.result, status.attempt) == ("done", 1)

    asyncio.run(main())


def test_a_lost_request_that_is_carried_out_late_takes_no_job_away() -> None:
    """A frozen replica carries out what it had received, and so takes the job from this client's next session.

    Here a script plays the replicas, because a real one does so only now and then.
    """
    status = {"job_id": "j", "tenant": "t", "service": "s", "state": "running", "node": "n", "attempt": 1, "slots": 1}

    async def main() -> None:
        sessions: asyncio.Queue[Any] = asyncio.Queue()

        async def serve(socket: Any) -> None:
            await send(socket, type="welcome", protocol="freeslot.v1", max_payload_bytes=1000, max_batch=10)
            await sessions.put(socket)
            await socket.wait_closed()

        async def send(socket: Any, **message: Any) -> None:
            await socket.send(json.dumps(message))

        async def receive(socket: Any, kind: str) -> str:
            message = json.loads(await socket.recv())
            assert message["type"] == kind
            return str(message["id"])

        async with websocket_server(serve, "127.0.0.1", 0, subprotocols=["freeslot.v1"]) as server:  # type: ignore[list-item]
            port = server.sockets[0].getsockname()[1]
            async with Client(f"ws://127.0.0.1:{port}", min_backoff=0.01) as client:
                first = await sessions.get()
                submit = asyncio.create_task(client.submit("s", idempotency_key="k"))
                await receive(first, "submit")
                first.transport.abort()
                with pytest.raises(Error) as lost:
                    await submit
                assert lost.value.code == "unavailable"
                second = await sessions.get()
                submit = asyncio.create_task(client.submit("s", idempotency_key="k"))
                await send(second, type="accepted", id=await receive(second, "submit"), job_id="j")
                handle = await submit
                await send(second, type="detached", job_id="j")  # to the first session
                attach = await receive(second, "attach")
                second.transport.abort()  # the attach may be carried out late, too
                assert attach
                third = await sessions.get()
                await send(third, type="status", id=await receive(third, "attach"), job=status)
                await send(third, type="detached", job_id="j")  # to the second session
                await send(third, type="status", id=await receive(third, "attach"), job=status)
                assert not handle.done
                await send(third, type="detached", job_id="j")  # to another client
                with pytest.raises(Error) as detached:
                    await handle
                assert detached.value.message.startswith("another client")

    asyncio.run(main())


def test_each_connect_asks_for_a_token(own: System) -> None:
    async def main() -> None:
        replica = own.replica("r1", tokens=[{"token": "one", "tenant": "acme", "role": "client"}])
        with pytest.raises(Error) as refused:
            await Client(replica.url, token="another").connect()
        assert refused.value.code == "unauthenticated"
        assert "another" not in str(refused.value)
        tokens = iter(["one"])

        async def source() -> str:
            return next(tokens)

        async with Client(replica.url, token_source=source) as client:
            with pytest.raises(Error) as unknown:
                await client.cancel("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
            assert unknown.value.code == "not_found"

    asyncio.run(main())


def test_a_source_of_tokens_fails(replica: Replica) -> None:
    async def main() -> None:
        async def hangs() -> str:
            await asyncio.Event().wait()
            return ""

        with pytest.raises(Error) as late:
            await Client(replica.url, token_source=hangs, dial_timeout=0.01).connect()
        assert (late.value.code, late.value.field) == ("unavailable", "token_source")

        def source() -> str:
            if not tokens:
                tokens.append("")
                raise OSError
            return tokens[0]

        tokens: list[str] = []
        client = Client(replica.url, token_source=source)
        with pytest.raises(OSError):
            await client.connect()
        async with client:
            pass

    asyncio.run(main())


def test_nothing_listens() -> None:
    async def main() -> None:
        with pytest.raises(Error) as nothing:
            await Client("ws://127.0.0.1:1,ws://user:secret@127.0.0.1:2").connect()
        assert nothing.value.code == "unavailable"
        assert "127.0.0.1:1" in nothing.value.message and "127.0.0.1:2" in nothing.value.message
        assert "secret" not in nothing.value.message

    asyncio.run(main())


def test_a_client_for_threads(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()

        async def talks(job: RunningJob) -> Any:
            await job.progress(1)
            return await hold(job)

        async def fails(job: RunningJob) -> None:
            raise FinalError("no_voice", "there is no voice")

        def use() -> None:
            with SyncClient(replica.url) as client:
                assert client.run("s.echo", [1]) == [1]
                handle = client.submit("s.talks")
                with pytest.raises(TimeoutError):
                    handle.wait(timeout=0.001)
                for progress in handle.progress():
                    assert progress.value == 1
                    loop.call_soon_threadsafe(hold.released.set)
                assert handle.result() == "done"
                assert handle.assigned() == handle.assignment and handle.done
                outcomes = client.batch([Job("s.echo", 1), Job("no such name")])
                assert isinstance(outcomes[1], Error)
                with pytest.raises(JobError) as failed:
                    client.run("s.fails")
                assert (failed.value.status.state, failed.value.code) == ("failed", "no_voice")
                assert client.attach(handle.job_id).wait().succeeded
                assert client.cancel(handle.job_id).state == "succeeded"
                fork(client)
            with pytest.raises(ClosedError):
                client.run("s.echo")

        loop = asyncio.get_running_loop()
        services = {"s.echo": echo, "s.talks": talks, "s.fails": fails}
        async with working(system, services, slots=4):
            await asyncio.to_thread(use)

    asyncio.run(main())


def test_close_ends_the_calls_of_other_threads(replica: Replica) -> None:
    for _ in range(5):
        with SyncClient(replica.url) as client:
            ends: SimpleQueue[str] = SimpleQueue()

            def waits(client: SyncClient = client, ends: SimpleQueue[str] = ends) -> None:
                with pytest.raises(ClosedError):
                    client._call(asyncio.Event().wait(), None)  # ends by nothing else
                ends.put("waits")

            def calls(client: SyncClient = client, ends: SimpleQueue[str] = ends) -> None:
                code = "not_found"
                while code == "not_found":
                    with pytest.raises(Error) as error:
                        client.cancel("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
                    code = error.value.code
                    ends.put(code)

            threads = [threading.Thread(target=target, daemon=True) for target in (waits, calls, calls, calls)]
            for thread in threads:
                thread.start()
            assert ends.get(timeout=60) == "not_found"
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        with pytest.raises(ClosedError):
            client.cancel("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")


def fork(client: SyncClient) -> None:
    """A forked process has the client's memory, but not its thread."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.run("s.echo")
        except Error as err:
            code = 0 if err.code == "closed" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.run("s.echo", 2) == 2


def test_a_flood_of_submits_is_held_back(system: System, replica: Replica) -> None:
    """Submits that no connection takes yet wait for it, and are sent once."""

    async def main() -> None:
        runs: list[Any] = []

        async def count(job: RunningJob) -> Any:
            runs.append(job.payload)

        async with working(system, {"f.count": count}, slots=16), Client(replica.url) as client:
            await asyncio.gather(*(client.run("f.count", i) for i in range(500)))
            assert sorted(runs) == list(range(500))

    asyncio.run(main())


def test_positions(system: System, replica: Replica) -> None:
    async def main() -> None:
        hold, handler = held()
        async with working(system, {"q.hold": handler}), Client(replica.url) as client:
            first = await client.submit("q.hold")
            await hold.begun.get()
            second = await client.submit("q.hold")
            assert (first.position, second.position) == (0, 1)
            assert second.assignment is None
            assert (await client.cancel(second.job_id)).state == "cancelled"
            assert (await second).node == ""
            assert await second.assigned() is None
            hold.released.set()
            await first

    asyncio.run(main())


def test_a_dial_that_is_given_up_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen replica accepts connections, and says nothing."""

    def patient(url: str, **options: Any) -> Any:
        return connect(url, **{**options, "close_timeout": 600})

    connect = _socket.connect
    monkeypatch.setattr(_socket, "connect", patient)

    async def main(frozen: socket.socket) -> None:
        url = f"ws://127.0.0.1:{frozen.getsockname()[1]}"
        async with asyncio.timeout(60):
            with pytest.raises(Error) as late:
                await Client(url, dial_timeout=0.05).connect()
        assert late.value.code == "unavailable"

    with socket.create_server(("127.0.0.1", 0)) as frozen:
        asyncio.run(main(frozen))


def test_a_token_in_the_clear_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of addresses of other machines, by client and worker."""
    urls = "ws://127.0.0.1:1,ws://[::1]:2,ws://a.localhost:3,wss://192.0.2.1:4,ws://user:secret@192.0.2.1:5"

    async def main() -> None:
        for token in ("", "t"):
            assert not caplog.messages
            with pytest.raises(Error):
                await Client(urls, token=token, dial_timeout=0.01).connect()
        told = "the token goes to 192.0.2.1:5 in the clear: use wss://"
        assert caplog.messages == [told]
        caplog.clear()
        worker = Worker("ws://localhost:1,ws://192.0.2.1:5", token="t", node="n")
        worker.service("s")(echo)
        start = asyncio.create_task(worker.start())
        await aeventually(lambda: caplog.messages)
        assert caplog.messages[0] == told
        worker.stop()
        with pytest.raises(Error):
            await start

    asyncio.run(main())


def test_the_loop_of_a_client(replica: Replica) -> None:
    client = Client(replica.url)

    async def other() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.submit("x")

    async def main() -> None:
        async with client:
            await asyncio.to_thread(asyncio.run, other())
            await aeventually(lambda: True)

    asyncio.run(main())
