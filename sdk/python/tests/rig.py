"""Real programs for tests: a redis-server and replicas with a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from queue import SimpleQueue
from typing import Any, AsyncIterator

from freeslot import Worker

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("SDK_TEST_BIN", ROOT / "bin"))


class Process:
    """A program whose standard error is read line by line."""

    def __init__(self, *command: str) -> None:
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)  # a full pipe would hold the program up
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr:
            for line in self.popen.stderr:
                self.lines.put(line)
        self.lines.put("")

    def line(self) -> str:
        line = self.lines.get()
        assert line, f"the program ended with {self.popen.wait()}"
        return line

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        code = self.popen.wait()
        self._reader.join(5)  # children of the program may live on with its standard error
        return code


class Redis:
    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/redis.sock"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.popen = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--dir", folder, "--save", "", "--unixsocket", self.path],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if "Ready to accept connections" in line:
                break

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()


class Replica(Process):
    def __init__(self, system: System, name: str, **config: Any) -> None:
        self.name = name
        file = f"{system.folder}/{name}.yaml"
        config = {
            "replica_id": name,
            "redis": {"url": system.redis.url, "key_prefix": system.prefix},
            "lists": {"dir": f"{system.folder}/lists-{name}"},
            "gateway": {"tokens_file": f"{system.folder}/nodes.yaml"},
            **config,
        }
        Path(file).write_text(json.dumps(config))
        super().__init__(str(BIN / "scheduler"), "serve", "--listen", "127.0.0.1:0", "--config", file)
        while True:
            line = self.line()
            if not line.startswith("{"):
                raise AssertionError(f"{name} did not start: {line}")
            event = json.loads(line)
            if event.get("event") == "replica.started":
                self.address = event["address"]
                break

    @property
    def url(self) -> str:
        return f"ws://{self.address}"

    def get(self, path: str, method: str = "GET", body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, method=method)
        if data:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as err:
            with err:
                raise AssertionError(f"{path}: {err.status} {err.read()!r}") from None

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["node_id"]: node for node in self.get("/v1/nodes")["nodes"]}

    def has(self, *names: str) -> bool:
        return self.nodes().keys() >= set(names)


class System:
    """A redis-server of its own, and a token that may be any node."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="freeslot-python-")
        self.folder = self._folder.name
        self.redis = Redis(self.folder)
        self.prefix = "python"
        self.token = "fsn_" + secrets.token_hex(16)
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        Path(f"{self.folder}/nodes.yaml").write_text(f'- {{name: fleet, sha256: {digest}, nodes: ["*"]}}\n')
        self.replicas: list[Replica] = []

    def replica(self, name: str, **config: Any) -> Replica:
        replica = Replica(self, name, **config)
        self.replicas.append(replica)
        return replica

    def end(self) -> None:
        for replica in self.replicas:
            replica.end()
        self.redis.end()
        self._folder.cleanup()


@contextlib.asynccontextmanager
async def working(
    system: System, services: dict[str, Any], node: str = "", replicas: list[Replica] | None = None, **options: Any
) -> AsyncIterator[Worker]:
    """A worker that all replicas know. Functions of the module program run in processes."""
    replicas = replicas or system.replicas
    node = node or "py-" + secrets.token_hex(4)
    worker = Worker(",".join(r.url for r in replicas), token=system.token, node=node, **options)
    for service, handler in services.items():
        worker.service(service, process=handler.__module__ == "program")(handler)
    await worker.start()
    try:
        for replica in replicas:
            await aeventually(lambda r=replica: r.has(node))
        yield worker
    finally:
        worker.stop(hurry=True)
        await worker.wait()


def eventually(check: Any) -> Any:
    """Returns what check returns, once that is true. Gives up after a minute."""
    last: Any = None
    for _ in range(3000):
        if last := check():
            return last
        threading.Event().wait(0.02)
    raise AssertionError(f"it did not come about; last: {last!r}")


async def aeventually(check: Any) -> Any:
    """Is eventually for coroutines; check is a plain function."""
    last: Any = None
    for _ in range(3000):
        if last := await asyncio.to_thread(check):
            return last
        await asyncio.sleep(0.02)
    raise AssertionError(f"it did not come about; last: {last!r}")
