"""Workers make a process a node of a fleet and run the jobs that are placed there.

    worker = Worker("wss://scheduler.example.com:7481", token_file="/etc/freeslot/node-token", node="gpu-7", slots=4)

    @worker.service("tts", version="2.1", languages={"tts": ["de", "en"]})
    async def speak(job):
        await job.progress({"done": 10})
        return {"url": await synthesize(job.payload["text"])}

    worker.run()

The connection, the heartbeats and the leases live in a thread of their own, so a handler that is
busy in Python code does not lose the node. A call that holds the interpreter for seconds (in C,
without releasing the GIL) stops that thread, too: give such a service ``process=True``.

A job is done at least once: after a lost node it begins again elsewhere. A handler with effects
outside the job should make them repeatable, for instance by ``job.id``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import re
import ssl
import threading
from queue import SimpleQueue
from typing import Any, Callable, Iterable, Mapping, TypeVar

from . import _signals
from ._errors import Error, invalid
from ._figures import Figures
from ._gateway import Config
from ._node import Node, Settings
from ._protocol import gateway_urls
from ._runner import Handlers, Service
from ._running import RunningJob
from ._tasks import end_tasks

__all__ = ["RunningJob", "Worker"]

Handler = TypeVar("Handler", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STAGES = {"asr": "asr_languages", "tts": "tts_languages", "semantic": "semantic_languages"}
_MAX_RESULT_BYTES = 16 << 20
_LOOK_INTERVAL = 0.5  # between looks whether the program has closed its loop


class Worker:
    """One node. It is started at most once.

    ``gateway`` are addresses of replicas with a gateway, with commas between. ``token_file`` is
    read again at each connect. A job takes one of the ``slots``, or as many as it asks for.
    ``languages`` has BCP 47 tags by stage (``asr``, ``tts``, ``semantic``), as a service's has.
    Times are in seconds.

    ``stop_timeout`` is how long running handlers may go on after ``stop``. Then they are told to
    stop, and ``interrupt_grace`` later the rest is given up. Their jobs go to other nodes.
    """

    def __init__(
        self,
        gateway: str,
        *,
        node: str,
        token: str = "",
        token_file: str = "",
        slots: int = 1,
        labels: Mapping[str, str] | None = None,
        pools: Iterable[str] = (),
        features: Mapping[str, bool] | Iterable[str] = (),
        languages: Mapping[str, Iterable[str]] | None = None,
        tls: ssl.SSLContext | None = None,
        heartbeat_interval: float = 3.0,
        metadata_interval: float = 60.0,
        progress_interval: float = 0.1,
        stop_timeout: float = 30.0,
        interrupt_grace: float = 5.0,
        min_backoff: float = 0.05,
        max_backoff: float = 2.0,
        max_result_bytes: int = 1 << 20,
    ) -> None:
        gateway_urls(gateway)
        _check_name("node", node)
        if bool(token) == bool(token_file):
            raise invalid("token_file", "and token are both given or both missing, expected one of them")
        if not 1 <= slots <= 1024:
            raise invalid("slots", f"is {slots}, expected 1 to 1024")
        if not 1 <= max_result_bytes <= _MAX_RESULT_BYTES:
            raise invalid("max_result_bytes", f"is {max_result_bytes}, expected 1 to {_MAX_RESULT_BYTES}")
        for name, value, least in (
            ("heartbeat_interval", heartbeat_interval, 0.1),
            ("metadata_interval", metadata_interval, heartbeat_interval),
            ("progress_interval", progress_interval, 0.01),
            ("stop_timeout", stop_timeout, 0.0),
            ("interrupt_grace", interrupt_grace, 0.0),
        ):
            if value < least:
                raise invalid(name, f"is {value}, expected at least {least}")
        if not isinstance(features, Mapping):
            features = {feature: True for feature in features}
        self._config = Config(
            gateway=gateway, token=token, token_file=token_file, node=node, tls=tls,
            first_pause=min_backoff, longest_pause=max_backoff,
        )  # fmt: skip
        self._settings = Settings(
            gateway=self._config,
            profile={},
            slots=slots,
            heartbeat_interval=heartbeat_interval,
            metadata_interval=metadata_interval,
            progress_interval=progress_interval,
            stop_timeout=stop_timeout,
            interrupt_grace=interrupt_grace,
        )
        self._max_result_bytes = max_result_bytes
        self._profile: dict[str, Any] = {"node_id": node, "installed_services": [], "capabilities": {}}
        if pools := list(pools):
            self._profile["pool_ids"] = pools
        if labels:
            self._profile["labels"] = dict(labels)
        if features:
            self._profile["features_supported"] = dict(features)
        self._add_languages("languages", languages)
        self._services: dict[str, Service] = {}
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._stopping = ""  # "stop" or "hurry"
        self._thread: threading.Thread | None = None
        self._started: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    def service(
        self,
        name: str,
        *,
        version: str = "",
        languages: Mapping[str, Iterable[str]] | None = None,
        process: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Makes the decorated function the handler of a service.

        It gets a RunningJob, and what it returns (any value that JSON has) is the job's result. A
        coroutine function runs in the event loop of ``run`` or ``serve``, a plain function in a
        thread. With ``process`` a plain function of a module runs in a process, which imports the
        module anew: call ``run`` below ``if __name__ == "__main__":`` then.

        RetryableError asks for another attempt. FinalError and any other exception fail the job.
        """
        _check_name("service", name)
        if version:
            _check_name("version", version)

        def decorate(handler: Handler) -> Handler:
            if name in self._services:
                raise invalid("service", f"{name} has a handler already")
            if self._started is not None:
                raise RuntimeError("the worker has started")
            kind = "coroutine" if inspect.iscoroutinefunction(handler) else "process" if process else "thread"
            if process:
                if kind == "coroutine":
                    raise invalid("process", "is given for a coroutine function, expected a plain function")
                if "<" in getattr(handler, "__qualname__", "<"):  # a child imports it by its name
                    raise invalid("process", "is given for a function within a function, expected one of a module")
            self._services[name] = Service(handler, kind)
            self._profile["installed_services"].append({"name": name, **({"version": version} if version else {})})
            self._add_languages(f"languages of {name}", languages)
            return handler

        return decorate

    def _add_languages(self, field: str, languages: Mapping[str, Iterable[str]] | None) -> None:
        for stage, tags in (languages or {}).items():
            if stage not in _STAGES:
                raise invalid(field, f"has {stage!r}, expected asr, tts or semantic")
            known = self._profile["capabilities"].setdefault(_STAGES[stage], [])
            known.extend(tag for tag in tags if tag not in known)

    def run(self) -> None:
        """Runs the worker until SIGTERM or SIGINT, and stops it in order.

        A second signal interrupts the jobs. A third one ends the process at once, for handlers that
        do not heed that.

        Raises Error if the gateway refuses the node, SupersededError if another process takes it.
        """

        # A coroutine handler that is busy keeps the loop from seeing signals, so a thread waits for them.
        signals: SimpleQueue[bool] = SimpleQueue()

        def obey() -> None:
            while signals.get():
                self._signalled()

        restore = _signals.handle(lambda: signals.put(True))
        threading.Thread(target=obey, name="freeslot-signals", daemon=True).start()
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self.serve())
        finally:
            restore()
            signals.put(False)
            loop.run_until_complete(end_tasks(self._settings.interrupt_grace))
            asyncio.set_event_loop(None)
            loop.close()

    def _signalled(self) -> None:
        if self._stopping == "hurry":
            os._exit(1)
        self.stop(hurry=self._stopping != "")

    async def serve(self) -> None:
        """Runs the worker until stop, or until its task is cancelled, which interrupts the jobs."""
        await self.start()
        try:
            await self.wait()
        except asyncio.CancelledError:
            self.stop(hurry=True)
            with contextlib.suppress(Error):
                await self.wait()
            raise

    async def start(self) -> None:
        """Connects and registers the node. While no gateway can be reached it tries again.

        The worker ends with the event loop that start runs in, at the latest. Raises Error if a
        gateway refuses the node, and if the worker is stopped before.
        """
        if self._started is not None:
            raise RuntimeError("the worker was started before")
        if not self._services:
            raise invalid("service", "has no handler, expected at least one")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise RuntimeError('a spawned process imports this module: call run below if __name__ == "__main__":')
        loop = asyncio.get_running_loop()
        self._started, self._ended = loop.create_future(), loop.create_future()
        self._settings.profile = self._profile
        self._settings.services = frozenset(self._services)
        self._thread = threading.Thread(target=self._run_thread, args=(loop,), name="freeslot-node", daemon=True)
        self._thread.start()
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self.stop(hurry=True)
            with contextlib.suppress(Error):
                await self.wait()
            raise

    async def wait(self) -> None:
        """Waits until the worker has ended. Raises SupersededError if another process has taken the node."""
        if self._ended is None or self._thread is None:
            raise RuntimeError("start the worker first")
        await asyncio.shield(self._ended)
        self._thread.join()

    def stop(self, *, hurry: bool = False) -> None:
        """Begins to stop, from any thread: no new jobs, running ones may end, the node leaves.

        With ``hurry`` running handlers are told to stop at once. ``wait`` waits for the end.
        """
        with self._lock:
            self._stopping = "hurry" if hurry else self._stopping or "stop"
            node = self._node
        if node is not None:
            node.post(node.hurry if hurry else node.stop)

    # The thread of the node.

    def _run_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._live(loop))
        except BaseException as err:
            error = err
        for future in (self._started, self._ended):
            _settle_in(loop, future, error)

    async def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        figures = Figures()
        figures.start()
        handlers: list[Handlers] = []

        def runner(node: Node) -> Handlers:
            handlers.append(Handlers(node, self._services, loop, self._settings.slots, self._max_result_bytes))
            return handlers[0]

        node = Node(self._settings, runner, figures)
        watching = asyncio.create_task(_until_closed(loop, node))
        try:
            with self._lock:
                self._node = node
                if self._stopping:
                    node.post(node.stop)
            starting = asyncio.create_task(node.start())
            stopping = asyncio.create_task(node.stopping())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                raise Error("closed", "the worker was stopped before it had started")
            await starting
            _settle_in(loop, self._started, None)
            await node.run()
        finally:
            watching.cancel()
            figures.stop()
            handlers[0].close()


async def _until_closed(program: asyncio.AbstractEventLoop, node: Node) -> None:
    """Stops the node when the program has closed its loop: no coroutine can run or end any more."""
    while not program.is_closed():
        await asyncio.sleep(_LOOK_INTERVAL)
    node.hurry()


def _settle_in(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[None] | None, error: BaseException | None
) -> None:
    assert future is not None
    with contextlib.suppress(RuntimeError):  # the program has closed its loop
        loop.call_soon_threadsafe(_settle, future, error)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # not everyone waits for the end


def _check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(field, f"is {name!r}, expected 1 to 64 of A-Z a-z 0-9 . _ - with a letter or digit first")
