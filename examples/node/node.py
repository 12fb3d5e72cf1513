#!/usr/bin/env python3
"""A node of freeslot in Python, with the standard library alone (3.9 or later).

It follows docs/node-protocol.md, and connects to a gateway:

    python3 node.py --gateway ws://127.0.0.1:7480 --token-file node.token --node py-1
"""

import argparse, asyncio, base64, hashlib, json, os, random, signal, ssl, struct, sys, time
import urllib.error, urllib.request, uuid
from urllib.parse import urlsplit

PROTOCOL, PATH = "freeslot.node.v1", "/v1/node"


class Refused(Exception):
    """The gateway answered with an error."""

    def __init__(self, error):
        super().__init__(f'{error.get("code")}: {error.get("message")}')
        self.code, self.retry_after = error.get("code"), error.get("retry_after_ms", 0) / 1000


class Closed(Exception):
    """The connection has ended, with a close code of WebSocket."""

    def __init__(self, code):
        super().__init__(f"closed with {code}")
        self.code = code


class WebSocket:
    """The client's side of RFC 6455, as far as the protocol needs it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url, headers, tls):
        at = urlsplit(url)
        secure = at.scheme == "wss"
        reader, writer = await asyncio.open_connection(at.hostname, at.port or (443 if secure else 80), ssl=tls if secure else None)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {at.path} HTTP/1.1", f"Host: {at.netloc}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *(f"{k}: {v}" for k, v in headers.items())]
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in fields)}
            if status.split()[1] != "101":
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                raise Refused(error_of(body, status))
            accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            if fields.get("sec-websocket-accept") != accept or fields.get("sec-websocket-protocol") != PROTOCOL:
                raise Closed(1002)
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer)

    def frame(self, opcode, data):
        size, mask = len(data), os.urandom(4)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += struct.pack("!BH", 0x80 | 126, size)
        else:
            head += struct.pack("!BQ", 0x80 | 127, size)
        pad = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")
        self.writer.write(head + mask + masked)

    async def send(self, message):
        self.frame(0x1, json.dumps(message).encode())
        await self.writer.drain()

    async def receive(self):
        """The messages of the next frame. Pings are answered on the way."""
        data = b""
        try:
            while True:
                first, size = await self.reader.readexactly(2)
                if size > 125:
                    size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
                if size + len(data) > 8 << 20:
                    raise Closed(1009)
                part = await self.reader.readexactly(size)
                opcode, last = first & 0xF, first & 0x80
                if opcode == 0x8:
                    raise Closed(int.from_bytes(part[:2], "big") if part else 1005)
                if opcode == 0x9:
                    self.frame(0xA, part)
                elif opcode in (0x0, 0x1):
                    data += part
                    if last:
                        found = json.loads(data)
                        return found if isinstance(found, list) else [found]
        except (OSError, asyncio.IncompleteReadError):
            raise Closed(1006) from None

    def close(self, code=1000):
        if not self.writer.is_closing():
            self.frame(0x8, struct.pack("!H", code))
            self.writer.close()


def error_of(body, otherwise):
    try:
        return json.loads(body)
    except ValueError:
        return {"code": "unavailable", "message": otherwise}


class Attempt:
    """One try of a job that the node holds."""

    def __init__(self, name, job):
        self.name, self.job = name, job
        self.task = None  # takes it to its end
        self.handler = None  # the task that runs it, a part of that
        self.reason = None  # why it is to stop
        self.ending = False  # its end is decided, and being reported
        self.heard = time.monotonic()
        self.seq, self.value = 0, None  # of its progress; value is None once it was sent

    def progress(self, value):
        self.seq, self.value, self.heard = self.seq + 1, value, time.monotonic()

    def stop(self, reason):
        if not self.ending and not self.reason:
            self.reason = reason
            if self.handler:
                self.handler.cancel()


# How an attempt ends that was stopped; one that is not here is not reported.
ENDS = {
    "cancelled": {"state": "cancelled"},
    "stalled": {"state": "failed", "error": {"code": "stalled", "message": "no progress"}, "next": "retry"},
    "lease_lost": {"state": "failed", "error": {"code": "lease_lost", "message": "cut off"}, "next": "retry"},
    "interrupted": {"state": "failed", "error": {"code": "interrupted", "message": "the node stops"}, "next": "hand_back"},
}


class Node:
    def __init__(self, addresses, token_file, node, slots, services, tls=None):
        self.addresses, self.token_file, self.node, self.slots, self.services = addresses, token_file, node, slots, services
        self.tls = tls or ssl.create_default_context()
        self.epoch, self.connection = str(uuid.uuid4()), 0
        self.socket = self.welcome = self.address = None
        self.registered = self.draining = False
        self.last_id, self.pending = 0, {}
        self.held, self.early = {}, set()
        # Ended attempts, each with the heartbeats and completes that had been sent at its end.
        self.ended, self.beats, self.answered, self.completes, self.reporting = {}, 0, 0, 0, set()
        self.beat_now, self.connected, self.superseded = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.lease = time.monotonic()
        self.uploads = asyncio.Semaphore(2)

    async def run(self, stop):
        loops = [asyncio.create_task(loop()) for loop in (self.connecting, self.beating, self.reporting_progress)]
        stops = [asyncio.create_task(event.wait()) for event in (stop, self.superseded)]
        await asyncio.wait(loops + stops, return_when=asyncio.FIRST_COMPLETED)
        if not self.superseded.is_set():
            await self.leave()
        left = set(loops + stops)
        while left:  # again and again: wait_for can swallow a cancel
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.1)
        for loop in loops:
            if not loop.cancelled():
                loop.result()  # raises what ended it

    async def leave(self):
        self.draining = True
        self.beat_now.set()
        if not await self.empty(10):
            for attempt in list(self.held.values()):
                attempt.stop("interrupted")
            await self.empty(5)
        try:
            await self.call({"type": "deregister"}, 2)
        except (Refused, Closed, asyncio.TimeoutError) as err:
            log("not deregistered", err)

    async def empty(self, seconds):
        until = time.monotonic() + seconds
        while self.held and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return not self.held

    # The connection.

    async def connecting(self):
        pause = 0.05
        while True:
            self.address = random.choice([a for a in self.addresses if a != self.address] or self.addresses)
            begun, longest = time.monotonic(), 2
            try:
                await self.session()
            except Refused as err:
                log("refused", err)
                if err.code in ("unauthenticated", "permission_denied"):
                    longest = 30
                pause = max(pause, err.retry_after)
            except Closed as err:
                log("connection lost", err)
                if err.code == 4010:
                    self.superseded.set()
                    return
                longest = {1003: 60, 1007: 60, 1009: 60, 4000: 60, 4003: 30}.get(err.code, 2)
                pause = 60 if longest == 60 else pause
                pause = 0 if err.code == 1001 else pause
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as err:
                log("no connection", repr(err))
            if time.monotonic() - begun > 10:
                pause = min(pause, 0.05)
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(max(2 * pause, 0.05), longest)

    def token(self):
        with open(self.token_file, encoding="utf-8") as file:
            return file.read().strip()

    async def session(self):
        self.connection += 1
        headers = {"Authorization": "Bearer " + self.token(), "Sec-WebSocket-Protocol": PROTOCOL}
        socket = await asyncio.wait_for(WebSocket.open(self.address + PATH, headers, self.tls), 5)
        try:
            await socket.send({"type": "hello", "node": self.node, "epoch": self.epoch, "connection": self.connection, "version": "example"})
            first, *others = await asyncio.wait_for(socket.receive(), 5)
            if first["type"] == "error":
                raise Refused(first)
            self.welcome, self.socket = first, socket
            self.connected.set()
            self.beat_now.set()
            while True:
                for message in others:
                    self.take(message)
                others = await socket.receive()
        finally:
            self.socket = None
            self.connected.clear()
            for answer in self.pending.values():
                if not answer.done():
                    answer.set_exception(Closed(1006))
            self.pending.clear()
            socket.close()

    async def call(self, message, seconds):
        """Sends a request and returns its answer. What it means for attempts is applied before that."""
        if not self.socket:
            raise Closed(1006)
        self.last_id += 1
        number, answer = self.last_id, asyncio.get_running_loop().create_future()
        self.pending[number] = answer
        try:
            try:
                await self.socket.send({**message, "id": number})
            except OSError:
                raise Closed(1006) from None
            return await asyncio.wait_for(answer, seconds)
        finally:
            self.pending.pop(number, None)  # a later answer is void

    def take(self, message):
        """Applies a message of the present connection."""
        kind, number = message["type"], message.get("id")
        if number:
            answer = self.pending.pop(number, None)
            if not answer or answer.done():
                return
            if kind == "error":
                answer.set_exception(Refused(message))
                return
            self.apply(message)
            answer.set_result(message)
        elif kind == "goaway":
            raise Closed(1001)
        elif kind == "error":
            log("session ends", message)  # the close code follows
        elif kind == "sync":
            self.beat_now.set()
        elif kind in ("jobs", "cancel"):
            self.apply(message)

    def apply(self, message):
        kind = message["type"]
        for name in message.get("stop", []):
            if name in self.held:
                self.held[name].stop("lost")
        for name in message.get("cancel", []) + message.get("attempts", []):
            if name in self.held:
                self.held[name].stop("cancelled")
            elif name not in self.ended and len(self.early) < 1000:
                self.early.add(name)
        for name in message.get("start", []):
            self.begin(name, None)
        for delivery in message.get("jobs", []) + message.get("begun", []):
            self.begin(delivery["attempt"], delivery.get("job"))
        if kind == "beat":
            self.answered = self.beats
            self.forget()

    def forget(self):
        oldest = min(self.reporting, default=self.completes + 1)
        self.ended = {name: at for name, at in self.ended.items() if at[0] >= self.answered or at[1] >= oldest}

    # Heartbeats.

    async def beating(self):
        due = 0.0
        while True:
            try:
                await asyncio.wait_for(self.beat_now.wait(), 0.5)
            except asyncio.TimeoutError:
                pass
            self.watch()
            asked = self.beat_now.is_set()
            if not self.socket or not (asked or time.monotonic() >= due):
                self.beat_now.clear()
                continue
            self.beat_now.clear()
            limit, socket = self.welcome["heartbeat_limit_ms"] / 1000, self.socket
            # Other agents were asked together with this one. They must not stay together.
            due = time.monotonic() + limit / 3 * random.uniform(0 if asked else 0.9, 1)
            try:
                await self.beat(asked, max(limit / 8, 0.1))
            except Refused as err:
                if err.code == "unknown_node":
                    self.registered = False
                elif err.code == "node_in_use":
                    log("in use", err)
                    socket.close()  # the next welcome says whether it still is
                    await asyncio.sleep(1)
                elif err.code in ("invalid_argument", "permission_denied"):
                    raise
                await asyncio.sleep(0.2)
                self.beat_now.set()
            except (Closed, asyncio.TimeoutError):
                socket.close()

    async def beat(self, asked, seconds):
        if not self.registered:
            profile = {"max_concurrency": self.slots, "installed_services": [{"name": name} for name in self.services], "capabilities": {}}
            answer = await self.call({"type": "register", "profile": profile, "replaces": self.welcome.get("replaces", "")}, 2)
            self.registered = True
            log("registered, lost jobs:", answer.get("lost", []))
        self.beats, begun = self.beats + 1, time.monotonic()
        status = "draining" if self.draining else "online"
        await self.call({"type": "heartbeat", "status": status, "running": list(self.held), "now": asked}, seconds)
        self.lease = begun

    def watch(self):
        """Stops attempts that hang, and those that must not run without a lease."""
        now = time.monotonic()
        cut_off = self.welcome and now - self.lease > self.welcome["heartbeat_limit_ms"] / 1000
        for attempt in list(self.held.values()):
            job = attempt.job or {}
            if job.get("progress_timeout_ms") and now - attempt.heard > job["progress_timeout_ms"] / 1000:
                attempt.stop("stalled")
            elif cut_off and job.get("on_lease_loss") == "cancel":
                attempt.stop("lease_lost")

    async def reporting_progress(self):
        while True:
            await asyncio.sleep(0.1)
            unsent = [attempt for attempt in self.held.values() if attempt.value is not None and not attempt.ending][:64]
            if not unsent or not self.socket:
                continue
            reports = [{"attempt": a.name, "seq": a.seq, "value": a.value} for a in unsent]
            try:
                answer = await self.call({"type": "progress", "reports": reports}, 2)
            except (Refused, Closed, asyncio.TimeoutError):
                continue
            for attempt, report, outcome in zip(unsent, reports, answer["outcomes"]):
                if attempt.seq == report["seq"]:
                    attempt.value = None
                if outcome != "taken":
                    attempt.stop("cancelled" if outcome == "cancel" else "lost")

    # Attempts.

    def begin(self, name, job):
        if name in self.held or name in self.ended:
            return
        attempt = self.held[name] = Attempt(name, job)
        if name in self.early:
            self.early.discard(name)
            attempt.reason = "cancelled"
        attempt.task = asyncio.create_task(self.attempt(attempt))

    async def attempt(self, attempt):
        try:
            end = await self.work(attempt)
            attempt.ending = True
            if end:
                await self.complete({"type": "complete", "attempt": attempt.name, **end})
                self.ended[attempt.name] = (self.beats, self.completes)
        except Exception as err:  # a defect of this program
            log("attempt", attempt.name, repr(err))
        finally:
            del self.held[attempt.name]

    async def work(self, attempt):
        """Runs the handler and returns the end of the attempt; None is not reported."""
        if attempt.job is None and not await self.read_spec(attempt):
            return None
        service = self.services.get(attempt.job["service"])
        if not attempt.reason and not service:
            return {"state": "failed", "error": {"code": "no_handler", "message": "no such service"}}
        if attempt.reason:
            return ENDS.get(attempt.reason)
        attempt.heard = time.monotonic()
        attempt.handler = asyncio.create_task(service(attempt.job.get("payload"), attempt.progress))
        try:
            return {"state": "succeeded", "result": await attempt.handler}
        except asyncio.CancelledError:
            return ENDS.get(attempt.reason)
        except Exception as err:
            return {"state": "failed", "error": {"code": "handler_error", "message": str(err)[:8000]}}

    async def read_spec(self, attempt):
        message = {"type": "spec", "job_id": attempt.name.rpartition(":")[0]}
        while not attempt.reason:
            try:
                answer = await self.call(message, 8)
                if answer.get("large"):
                    answer = await self.post("spec", message)
                attempt.job = answer["job"]
                return True
            except Refused as err:
                if err.code == "not_found":
                    return False
            except (Closed, OSError, asyncio.TimeoutError):
                pass
            await self.later()
        # Without its job an attempt can still be cancelled or handed back.
        attempt.job = {"service": ""}
        return True

    async def complete(self, message):
        """Reports an end until there is an answer. The first report wins."""
        while True:
            self.completes += 1
            number = self.completes
            self.reporting.add(number)
            try:
                if len(json.dumps(message)) > self.inline():
                    self.apply(await self.post("complete", message))
                else:
                    await self.call(message, 10)
                return
            except Refused as err:
                if err.code in ("superseded", "unknown_node"):
                    return
                if err.code in ("invalid_argument", "payload_too_large"):
                    if message["state"] != "succeeded":
                        return
                    message = {"type": "complete", "attempt": message["attempt"], "state": "failed",
                               "error": {"code": "result_too_large", "message": str(err)}}
            except (Closed, OSError, asyncio.TimeoutError):
                pass
            finally:
                self.reporting.discard(number)
            await self.later()
            self.beat_now.set()  # its start names the jobs that a lost answer had begun

    def inline(self):
        return self.welcome["inline_bytes"] if self.welcome else 65536

    async def later(self):
        await asyncio.sleep(0.1)
        await self.connected.wait()

    async def post(self, what, message):
        """A request beside the connection, for what is too large for it."""
        if not self.socket:
            raise Closed(1006)
        session = self.welcome["session"]
        headers = {"Authorization": "Bearer " + self.token(), "Content-Type": "application/json",
                   "Freeslot-Node": self.node, "Freeslot-Session": session}
        url = "http" + self.address[len("ws"):] + PATH + "/" + what
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)

        def send():
            try:
                with urllib.request.urlopen(request, timeout=60, context=self.tls if url.startswith("https") else None) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as err:
                raise Refused(error_of(err.read(), str(err))) from None

        async with self.uploads:
            answer = await asyncio.get_running_loop().run_in_executor(None, send)
        if not self.socket or self.welcome["session"] != session:
            raise Closed(1006)  # the answer of a former session is void
        return answer


# The services of this node. A handler gets the payload and a function that reports progress.


async def echo(payload, progress):
    return payload


async def upper(payload, progress):
    return str(payload).upper()


async def count(payload, progress):
    for n in range(1, int(payload) + 1):
        progress({"done": n})
        await asyncio.sleep(0.1)
    return int(payload)


def log(*words):
    print(*words, file=sys.stderr, flush=True)


async def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--gateway", required=True, help="ws:// or wss:// addresses, with commas between")
    flags.add_argument("--token-file", required=True)
    flags.add_argument("--node", required=True)
    flags.add_argument("--slots", type=int, default=4)
    flags.add_argument("--ca-file", help="certificates that may sign the gateways'")
    args = flags.parse_args()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    services = {"echo": echo, "upper": upper, "count": count}
    node = Node(args.gateway.split(","), args.token_file, args.node, args.slots, services, ssl.create_default_context(cafile=args.ca_file))
    await node.run(stop)
    return 3 if node.superseded.is_set() else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
