"""The filter of name lists: vectors of docs/namelist.md, and lists of a real replica."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rig import ROOT, Replica, System
from test_lists import members, schedctl

from freeslot import Error, _filter, _http
from freeslot._filter import Block, Filter, decode
from freeslot.lists import NameLists

DOC = (ROOT / "docs/namelist.md").read_text()
BUILD = "00112233445566778899aabbccddeeff"


def xxh3() -> _filter.Hash:
    found = _filter.xxh3()
    assert found, "the package xxhash is missing: scripts/deps.sh python"
    return found


def vectors() -> dict[int, bytes]:
    """The blocks of user-1 to user-3, by kind."""
    found = [bytes.fromhex(text) for text in re.findall(r"```text\n(46534c42[0-9a-f\n]+)```", DOC)]
    return {wire[5]: wire for wire in found}


def summed(wire: bytes) -> bytes:
    return wire[:-8] + xxh3()(wire[:-8], 0).to_bytes(8, "little")


def test_hashes() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([0-9a-f]{16})` \| \d+ \| (\d+) \|$", DOC, re.M)
    assert len(rows) == 6
    for seed, text, want, block in rows:
        id = "x" * 256 if text.startswith("256 times") else text.strip("`")
        number = 2**64 - 1 if seed.startswith("2^64") else int(seed)
        assert Filter(xxh3(), number, BUILD, 5, 1).place(id) == (int(want, 16), int(block))
    assert Filter(xxh3(), 0, BUILD, 0, 1).place("user-1")[1] == 0


@pytest.mark.parametrize("kind", [1, 2])
def test_vectors(kind: int) -> None:
    wire, hash = vectors()[kind], xxh3()
    block = decode(wire, BUILD, 0, hash)
    assert block
    assert all(block.has(hash(f"user-{i}".encode(), 42)) for i in (1, 2, 3))
    passed = sum(block.has(hash(f"stranger-{i}".encode(), 42)) for i in range(10_000))
    assert passed == sum(contains(wire, hash(f"stranger-{i}".encode(), 42)) for i in range(10_000)) < 500
    for at in range(len(wire)):
        with pytest.raises(ValueError):
            decode(wire[:at], BUILD, 0, hash)
        with pytest.raises(ValueError):
            decode(wire[:at] + bytes([wire[at] ^ 1]) + wire[at + 1 :], BUILD, 0, hash)
    for build, index in ((BUILD[::-1], 0), (BUILD, 1)):
        with pytest.raises(ValueError, match="another block"):
            decode(wire, build, index, hash)
    # Intact, but of other numbers, or in a form of a later release.
    for at, value in ((28, b"\0\0\0\x01"), (28, b"\0\0\0\0"), (40, b"\xff\xff\xff\x7f"), (44, b"\0\0\0\0")):
        with pytest.raises(ValueError, match="numbers"):
            decode(summed(wire[:at] + value + wire[at + 4 :]), BUILD, 0, hash)
    for at in (4, 5):
        assert decode(summed(wire[:at] + b"\x03" + wire[at + 1 :]), BUILD, 0, hash) is None
    empty = decode(summed(wire[:28] + bytes(20) + bytes(8)), BUILD, 0, hash)
    assert empty and not empty.has(1)


def contains(wire: bytes, hash: int) -> bool:
    """Is what Block.has does, written as docs/namelist.md writes it."""
    mask = 2**64 - 1

    def mix(h: int) -> int:
        h ^= h >> 33
        h = (h * 0xFF51AFD7ED558CCD) & mask
        h ^= h >> 33
        h = (h * 0xC4CEB9FE1A85EC53) & mask
        return h ^ (h >> 33)

    seed, length, count = (int.from_bytes(wire[a:b], "little") for a, b in ((32, 40), (40, 44), (44, 48)))
    if wire[5] == 2:
        m = mix(hash)
        bits = [((m + i * ((m >> 32) | 1)) & 0xFFFFFFFF) % (64 * count) for i in range(length)]
        return all((wire[48 + bit // 8] >> (bit % 8)) & 1 for bit in bits)
    m = mix((hash + seed) & mask)
    a = (m * (count * length)) >> 64
    b = (a + length) ^ ((m >> 18) & (length - 1))
    c = (a + 2 * length) ^ (m & (length - 1))
    return wire[48 + a] ^ wire[48 + b] ^ wire[48 + c] == (m ^ (m >> 32)) & 0xFF


def test_filters_that_are_not_known() -> None:
    head = {"seed": "a2b0b79d85927a8d"}
    serving = {"filter": "fuse", "block_bits": 0, "filter_bytes": 80, "build": BUILD}
    assert Filter.of(head, serving, xxh3())
    for change in ({"filter": "none"}, {"filter": "later"}, {"block_bits": 15}, {"filter_bytes": 0}):
        assert Filter.of(head, {**serving, **change}, xxh3()) is None
    assert Filter.of({"seed": "later"}, serving, xxh3()) is None
    assert Filter.of(head, serving, None) is None
    assert Filter.of(head, {}, xxh3()) is None


class Requests:
    """Counts the requests of NameLists, and may change or refuse the answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.change: Any = lambda path, response: response
        real = _http.request

        async def request(method: str, url: str, *args: Any, **options: Any) -> _http.Response:
            what = "block" if "/blocks/" in url else url.partition("?")[0].rpartition("/")[2]
            self.seen.append(what)
            response: _http.Response = self.change(what, await real(method, url, *args, **options))
            return response

        monkeypatch.setattr(_http, "request", request)

    def count(self, what: str) -> int:
        found = self.seen.count(what)
        self.seen = [one for one in self.seen if one != what]
        return found


def made(replica: Replica, folder: Path, name: str, first: int = 0, end: int = 3000, filter: str = "fuse") -> None:
    ids = folder / "ids.txt"
    ids.write_text("".join(f"user-{i}\n" for i in range(first, end)))
    schedctl(replica, "lists", "apply", name, "--filter", filter)
    schedctl(replica, "lists", "import", name, str(ids), "--switch")


def users(first: int, end: int) -> list[str]:
    return [f"user-{i}" for i in range(first, end)]


@pytest.mark.parametrize("kind", ["fuse", "bloom"])
def test_most_noes_cost_no_request(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    made(replica, tmp_path, kind, filter=kind)
    requests = Requests(monkeypatch)

    async def main() -> None:
        lists = NameLists(f"http://{replica.address}", max_age=3600)
        assert await lists.member(kind, "stranger") is False
        assert requests.count("block") == 1
        requests.count("check")
        for i in range(500):
            answer = (await lists.check(kind, [f"stranger-{i}"]))[0]
            assert (answer.member, answer.version) == (False, 1) and answer.revision > 0
        assert requests.count("check") <= 25, "0.4 % of fuse and 1 % of Bloom pass"
        assert members(await lists.check(kind, users(0, 4000))) == [True] * 3000 + [False] * 1000
        assert requests.count("check") <= 4 and requests.count("block") == 0

    asyncio.run(main())


def test_edits_and_versions(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(replica, tmp_path, "moving")
    requests = Requests(monkeypatch)

    async def main() -> None:
        lists = NameLists(f"http://{replica.address}", max_age=0)
        strangers = users(5000, 5050)
        await lists.check("moving", ["user-1"])
        assert members(await lists.check("moving", strangers)) == [False] * 50
        filter = lists._lists["moving"].filter
        assert filter and requests.count("block") == 1
        strangers = [id for id in strangers if filter.no(id)]
        # Edits come first.
        schedctl(replica, "lists", "add", "moving", strangers[0])
        schedctl(replica, "lists", "add", "moving", strangers[1], "--for", "1ms")
        schedctl(replica, "lists", "remove", "moving", "user-1")
        requests.count("check")
        wanted = [strangers[0], strangers[1], "user-1", strangers[2]]
        assert members(await lists.check("moving", wanted)) == [True, False, False, False]
        assert requests.count("check") == 0
        # Another version has another filter, and no edit of before.
        made(replica, tmp_path, "moving", 2000, 6000)
        answers = await lists.check("moving", [*users(0, 2000), *users(2000, 6000)])
        assert members(answers) == [False] * 2000 + [True] * 4000
        assert {answer.version for answer in answers} == {2}
        now = lists._lists["moving"].filter
        assert requests.count("block") == 1 and now and now is not filter and now.build != filter.build
        schedctl(replica, "lists", "rollback", "moving")
        answers = await lists.check("moving", [*users(2, 3000), *users(6000, 6100), *wanted])
        assert members(answers) == [True] * 2998 + [False] * 100 + [True, False, False, False]
        assert {answer.version for answer in answers} == {1}
        assert requests.count("block") == 1
        # Redis lost its data, or another list has taken the name.
        requests.change = lambda what, r: _http.Response(r.status, r.headers, r.body.replace(b'"history":"', b'"history":"0'))
        assert members(await lists.check("moving", [strangers[2], "user-2"])) == [False, True]
        assert requests.count("block") == 1
        schedctl(replica, "lists", "rm", "moving")
        assert members(await lists.check("moving", [strangers[2], "user-2"])) == [None, None]

    asyncio.run(main())


def test_without_a_block_the_ids_are_asked(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(replica, tmp_path, "bare")
    made(replica, tmp_path, "none", filter="none")
    requests = Requests(monkeypatch)

    async def right(lists: NameLists, name: str = "bare", blocks: int = 0) -> None:
        for _ in range(2):
            requests.count("check")
            assert members(await lists.check(name, ["user-1", "stranger", "stranger-2"])) == [True, False, False]
            assert requests.count("check") == 1
        assert requests.count("block") == blocks

    async def main() -> None:
        url = f"http://{replica.address}"
        await right(NameLists(url), "none")
        await right(NameLists(url, max_bytes=0))
        whole = NameLists(url)
        await whole.check("bare", ["stranger"])
        of = whole._lists["bare"].filter
        assert of and of.bytes > 3000
        requests.count("block")
        # A block that is larger than it was announced.
        tight = NameLists(url, max_bytes=of.bytes - 1)
        await tight._refresh("bare", tight._lists.setdefault("bare", type(whole._lists["bare"])()))
        announced = tight._lists["bare"].filter
        assert announced
        announced.need = 0
        await right(tight, blocks=1)
        assert announced.bytes == 0
        # The bound is that of all lists together.
        both = NameLists(url, max_bytes=2 * of.bytes - 1)
        made(replica, tmp_path, "second")
        await both.check("bare", ["stranger"])
        await right(both, "second", blocks=1)
        # Damage on the way, and a refusal: not asked again at once.
        damaged = NameLists(f"{url},http://{replica.address}")
        requests.change = lambda what, r: r if what != "block" else _http.Response(200, {}, r.body[:60] + b"?" + r.body[61:])
        await right(damaged, blocks=2)
        requests.change = lambda what, r: r if what != "block" else _http.Response(404, {}, b'{"code":"not_found"}')
        await right(NameLists(url), blocks=1)
        requests.change = lambda what, r: r if what != "block" else _http.Response(200, {}, summed(r.body[:4] + b"\x02" + r.body[5:]))
        await right(NameLists(url), blocks=1)
        requests.change = lambda what, r: r
        # Without the package.
        monkeypatch.setitem(sys.modules, "xxhash", None)
        await right(NameLists(url))

    asyncio.run(main())


def test_a_no_is_as_old_as_other_answers(own: System, tmp_path: Path) -> None:
    async def main() -> None:
        replica = own.replica("r1")
        made(replica, tmp_path, "vip")
        lists = NameLists(f"http://{replica.address}", max_age=3600)
        await lists.check("vip", ["user-1"])
        of = lists._lists["vip"].filter
        assert of
        stranger = next(id for id in users(3000, 4000) if of.no(id))
        replica.end()
        assert await lists.member("vip", stranger) is False
        assert (await lists.check("vip", ["user-1"]))[0].why == "unavailable"
        lists._max_age = 0
        assert await lists.member("vip", stranger) is False, "what is in memory answers for 3 s"
        lists._lists["vip"].asked = float("-inf")
        assert (await lists.check("vip", [stranger]))[0].why == "unavailable"

    asyncio.run(main())


def test_half_of_what_is_new_is_not_taken(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(replica, tmp_path, "paged")
    requests = Requests(monkeypatch)

    async def main() -> None:
        lists = NameLists(f"http://{replica.address}", max_age=0)
        before = await lists.check("paged", ["user-1", "user-3000"])
        assert members(before) == [True, False]
        made(replica, tmp_path, "paged", 2000, 4000)
        pages = 0

        def cut(what: str, response: _http.Response) -> _http.Response:
            nonlocal pages
            if what != "changes":
                return response
            pages += 1
            if pages > 1:
                raise ConnectionResetError("cut")
            body = response.body.replace(b'"edits":[]', b'"edits":[{"revision":1,"entries":[]}],"more":true')
            body = body if b'"more":true' in body else body.rstrip()[:-1] + b',"edits":[{"revision":1,"entries":[]}],"more":true}'
            return _http.Response(response.status, response.headers, body)

        requests.change = cut
        known = lists._lists["paged"]
        assert not await lists._refresh("paged", known)
        assert pages == 2 and known.serving()["number"] == 1 and known.serving()["build"] == known.build
        requests.change = lambda what, r: r
        assert members(await lists.check("paged", ["user-1", "user-3000"])) == [False, True]

    asyncio.run(main())


def test_a_cancelled_load_is_begun_again(
    system: System, replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(replica, tmp_path, "slow")
    requests = Requests(monkeypatch)

    async def main() -> None:
        lists = NameLists(f"http://{replica.address}")
        real, begun = _http.request, asyncio.Event()

        async def hang(method: str, url: str, *args: Any, **options: Any) -> _http.Response:
            if "/blocks/" in url:
                begun.set()
                await asyncio.Event().wait()
            return await real(method, url, *args, **options)

        monkeypatch.setattr(_http, "request", hang)
        check = asyncio.create_task(lists.check("slow", ["stranger"]))
        await begun.wait()
        assert await lists.member("slow", "stranger") is False, "others do not wait for the block"
        assert requests.count("check") == 1
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
        monkeypatch.setattr(_http, "request", real)
        assert await lists.member("slow", "stranger") is False
        assert requests.count("block") == 1

    asyncio.run(main())


def test_a_block_has_a_size() -> None:
    block = decode(vectors()[1], BUILD, 0, xxh3())
    assert isinstance(block, Block) and block.bytes > len(vectors()[1])


def test_refusals_of_checks_are_raised(system: System, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(monkeypatch)
    requests.change = lambda what, r: _http.Response(403, {}, b'{"code":"forbidden","message":"no"}')

    async def main() -> None:
        with pytest.raises(Error) as refused:
            await NameLists(f"http://{replica.address}").check("any", ["a"])
        assert refused.value.code == "forbidden"

    asyncio.run(main())
