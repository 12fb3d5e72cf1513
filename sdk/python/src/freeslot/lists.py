"""Name lists and chains, asked by HTTP.

    async with NameLists("https://scheduler.example.com:7480", token=token) as lists:
        if await lists.member("vip", "user-1"):                      # None is unknown
            ...
        decision = await lists.decide("checkout", "user-1", {"country": "DE"})

Edits of a list are in memory, and so are all ids of a list that is held whole
(``schedctl lists apply --whole``): then a check costs a request once a second at most. Of other
lists blocks of the filter are in memory, up to ``max_bytes``, if the package xxhash is there
(``pip install 'freeslot[lists]'``). The filter says most noes. An id that neither an edit nor the
filter decides is asked at each check. Lookups are not counted in a list's statistics.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar
from urllib.parse import quote, urlsplit

from . import _filter, _http, _json
from ._errors import Error, from_answer, invalid
from ._protocol import reason_of, warn_of_plain

__all__ = ["Answer", "Decision", "NameLists", "Subject"]

_log = logging.getLogger("freeslot.client")

_MAX_CHECK = 1000  # ids or subjects of a request
_MAX_BYTES = 64 << 20  # of an answer: 100,000 ids fit
_STALE_AFTER = 3.0
_MAX_ID_BYTES = 256

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """``member`` is None if that is unknown; ``why`` then says why."""

    id: str
    member: bool | None
    why: str = ""
    version: int = 0
    revision: int = 0


@dataclass(frozen=True)
class Subject:
    """Whom a chain decides about."""

    key: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """``outcome`` is allow, deny, variant or unknown. ``raw`` has all fields."""

    outcome: str
    variant: str
    value: Any
    rule: str
    reason: str
    raw: Mapping[str, Any]


class _List:
    """What is known of one list."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.forget()

    def forget(self) -> None:
        self.asked = float("-inf")  # when it was last read
        self.head: dict[str, Any] | None = None
        self.mark: tuple[Any, Any] = (None, None)  # history and birth
        self.revision = 0
        self.base = 0  # of the version that serves
        self.gap = 0  # edits up to this revision may be missing
        self.clock = 0.0  # Redis' time less this process's, in ms
        self.edits: dict[str, tuple[int, bool, int]] = {}  # revision, removed, expiry
        self.ids: dict[str, int] | None = None  # all of the build, with expiries
        self.filter: _filter.Filter | None = None  # of the build
        self.build = ""

    def serving(self) -> dict[str, Any]:
        serving: dict[str, Any] = (self.head or {}).get("serving") or {}
        return serving


class NameLists:
    """Asks replicas; the next of ``urls`` when one fails.

    ``max_age`` is how old the state of a list may be, in seconds. With 0 each check asks.
    ``max_bytes`` bounds the filters of all lists together, about 1.2 bytes an id. With 0 none is loaded.
    """

    def __init__(
        self,
        urls: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        max_age: float = 1.0,
        timeout: float = 5.0,
        max_bytes: int = 16 << 20,
    ) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        if not self._urls or any(
            urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname for url in self._urls
        ):
            raise invalid("urls", "has an entry that is no address, expected http://host:port or https://host:port")
        random.shuffle(self._urls)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token
            warn_of_plain(_log, self._urls)
        self._tls = tls
        self._max_age = max_age
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._hash = _filter.xxh3()
        self._lists: dict[str, _List] = {}

    async def __aenter__(self) -> NameLists:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lists.clear()

    async def member(self, name: str, id: str) -> bool | None:
        """Reports whether the list has the id; None is unknown."""
        return (await self.check(name, [id]))[0].member

    async def check(self, name: str, ids: Iterable[str]) -> list[Answer]:
        """Answers for each id. While no replica answers, what is not in memory is unknown.

        Raises Error if a replica refuses the call, such as for its token.
        """
        wanted = list(ids)
        known = self._lists.setdefault(name, _List())
        try:
            for _ in range(3):
                if await self._refresh(name, known) and await self._load(name, known, wanted):
                    await self._refresh(name, known)  # the answers are no older for it
                try:
                    return await self._answer(name, known, wanted)
                except Error as err:
                    if err.code != "conflict":  # the build has moved or gone: the head names another one
                        raise
                    known.asked = float("-inf")
        except Error as err:
            if not err.temporary:
                raise
        return [Answer(id, None, "unavailable") for id in wanted]

    async def decide(self, chain: str, subject: Subject | str, attributes: Mapping[str, Any] | None = None) -> Decision:
        """Asks a chain about one subject, which may be given by its key and attributes. Raises Error."""
        if not isinstance(subject, Subject):
            subject = Subject(subject, attributes or {})
        return (await self.decide_all(chain, [subject]))[0]

    async def decide_all(self, chain: str, subjects: Iterable[Subject]) -> list[Decision]:
        """Asks a chain about subjects, in their order. The replica decides from its memory."""
        wanted: list[dict[str, Any]] = []
        for s in subjects:
            wanted.append({"key": s.key, "attributes": dict(s.attributes)} if s.attributes else {"key": s.key})
        decisions: list[Decision] = []
        for at in range(0, len(wanted), _MAX_CHECK):
            body = {"subjects": wanted[at : at + _MAX_CHECK]}
            answer = await self._request("POST", f"/v1/chains/{quote(chain, safe='')}/evaluate", body)
            for d in answer.get("decisions") or ():
                decisions.append(
                    Decision(
                        str(d.get("outcome", "unknown")),
                        str(d.get("variant", "")),
                        d.get("value"),
                        str(d.get("rule", "")),
                        str(d.get("reason", "")),
                        d,
                    )
                )
        return decisions

    # The state of a list.

    async def _refresh(self, name: str, known: _List) -> bool:
        """Reads the head and the edits since the last time, unless that was just now.

        False if no replica answers, but what is in memory still does.
        """
        async with known.lock:
            now = time.monotonic()
            if now - known.asked < self._max_age:
                return True
            try:
                await self._read(name, known)
                return True
            except Error as err:
                if not err.temporary or now - known.asked > _STALE_AFTER:
                    raise
                return False

    async def _read(self, name: str, known: _List) -> None:
        """Reads all pages, then takes them over at once.

        A new head beside the edits or the ids of an older one could give a wrong answer.
        """
        path = f"/v1/lists/{quote(name, safe='')}"
        revision, gap, mark, begun = known.revision, known.gap, known.mark, known.head is not None
        edits: dict[str, tuple[int, bool, int]] = {}
        while True:
            began = time.monotonic()
            delta = await self._request("GET", f"{path}/changes?after={revision}")
            head, page = delta.get("head"), delta.get("edits") or ()
            found = (delta.get("history"), (head or {}).get("birth"))
            if begun and (found != mark or head is None or head["revision"] < revision):
                known.forget()  # another life of the list, or of its Redis
                return await self._read(name, known)
            mark, begun = found, True
            if (floor := (head or {}).get("floor", 0)) > revision:
                gap = floor
            for edit in page:
                for e in edit["entries"]:
                    edits[e["id"]] = (edit["revision"], bool(e.get("remove")), e.get("expires_ms", 0))
                revision = edit["revision"]
            if not (page and delta.get("more")):
                break
        serving: dict[str, Any] = (head or {}).get("serving") or {}
        base = serving.get("base", 0)
        if base < known.base:  # a rollback: it needs edits that were dropped
            known.forget()
            return await self._read(name, known)
        known.head, known.mark, known.gap, known.base = head, mark, gap, base
        known.clock = delta["at_ms"] - began * 1000
        known.edits.update(edits)
        known.revision = max(revision, (head or {}).get("revision", 0))
        if serving.get("build", "") != known.build:
            known.build, known.ids = serving.get("build", ""), None
            known.filter = _filter.Filter.of(head or {}, serving, self._hash)
            known.edits = {id: e for id, e in known.edits.items() if e[0] > base}
        if known.build and (head or {}).get("whole") and known.ids is None:
            build = quote(known.build, safe="")
            try:
                answer = await self._request("GET", f"{path}/versions/{serving['number']}/ids?build={build}")
                known.ids = answer.get("ids") or {}
            except Error as err:
                if err.code not in ("conflict", "invalid_argument"):  # a version of more ids than one can hold
                    raise
        known.asked = began

    async def _load(self, name: str, known: _List, ids: Sequence[str]) -> bool:
        """Loads the block of the filter that most of the ids need, if one is missing. True if it asked for one.

        No failure ends the check: without the block the ids are asked.
        """
        head, filter = known.head, known.filter
        if head is None or filter is None or known.ids is not None or not filter.due() or filter.need > self._room():
            return False
        cleaned = (_clean(head["form"], id) for id in ids)
        index = filter.lacking(id for id in cleaned if id is not None and id not in known.edits)
        if index is None:
            return False
        path = f"/v1/lists/{quote(name, safe='')}/versions/{known.serving()['number']}/blocks/{index}"
        filter.begin()
        try:
            block = await self._call(
                "GET",
                f"{path}?build={quote(filter.build, safe='')}",
                b"",
                _filter.MAX_BLOCK,
                partial(_filter.decode, build=filter.build, index=index, hash=filter.hash),
            )
            if block is None:
                filter.unknown()
            else:
                filter.put(index, block, self._room())
        except Error:
            filter.failed()
        finally:
            filter.end()
        return True

    def _room(self) -> int:
        return self._max_bytes - sum(known.filter.bytes for known in self._lists.values() if known.filter)

    async def _answer(self, name: str, known: _List, ids: Sequence[str]) -> list[Answer]:
        """Follows the order of decisions in docs/namelist.md, "For other languages"."""
        head, serving = known.head, known.serving()
        now = known.clock + time.monotonic() * 1000
        version, revision, build = serving.get("number", 0), known.revision, known.build

        def answer(id: str, member: bool | None, why: str = "") -> Answer:
            return Answer(id, member, why, version, revision)

        if head is None:
            return [answer(id, None, "list_unknown") for id in ids]
        if head["state"] in ("draft", "deleting", "deleted") or not serving:
            return [answer(id, None, str(head["state"])) for id in ids]
        if known.gap > known.base:
            return [answer(id, None, "edits_missing") for id in ids]
        ended = 0 < head.get("expires_ms", 0) <= now
        base = serving.get("base", 0)
        out: list[Answer | None] = [None] * len(ids)
        ask: dict[int, str] = {}
        for i, given in enumerate(ids):
            id = _clean(head["form"], given)
            edit = known.edits.get(id) if id is not None else None
            if id is None:
                out[i] = answer(given, None, "invalid_id")
            elif ended:
                out[i] = answer(given, False if head.get("expired_no") else None, "expired")
            elif edit is not None and edit[0] > base:
                out[i] = answer(given, not edit[1] and not 0 < edit[2] <= now)
            elif known.ids is not None:
                expires = known.ids.get(id)
                out[i] = answer(given, expires is not None and not 0 < expires <= now)
            elif known.filter is not None and known.filter.no(id):
                out[i] = answer(given, False)
            else:
                ask[i] = id
        places = list(ask)
        for at in range(0, len(places), _MAX_CHECK):
            part = places[at : at + _MAX_CHECK]
            body = {"version": version, "build": build, "ids": [ask[i] for i in part]}
            found = (await self._request("POST", f"/v1/lists/{quote(name, safe='')}/check", body))["found"]
            for i, entry in zip(part, found):
                why = str(entry.get("why", ""))
                out[i] = answer(ids[i], None if why else bool(entry["member"]), why)
        return [a or answer(ids[i], None, "unavailable") for i, a in enumerate(out)]

    # Requests.

    async def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Asks the replicas in turn. Raises the refusal of one, or unavailable if none answers."""
        return await self._call(method, path, b"" if body is None else _json.dumps(body).encode(), _MAX_BYTES, _object)

    async def _call(self, method: str, path: str, data: bytes, max_bytes: int, read: Callable[[bytes], _T]) -> _T:
        """Is _request for any answer. If read raises ValueError the answer is bad, and the next replica is asked."""
        failure = Error("unavailable", "no replica answers")
        for _ in range(len(self._urls)):
            url = self._urls[0]
            try:
                async with asyncio.timeout(self._timeout):
                    response = await _http.request(
                        method, url + path, self._headers, data, tls=self._tls, max_bytes=max_bytes
                    )
                if response.status < 400:
                    return read(response.body)
                failure = from_answer(_object(response.body))
                if failure.code not in ("unavailable", "internal"):
                    raise failure
            except (OSError, EOFError, ValueError) as err:
                failure = Error("unavailable", f"{urlsplit(url).hostname} does not answer: {reason_of(err)}")
            self._urls.append(self._urls.pop(0))
        raise failure


def _object(body: bytes) -> dict[str, Any]:
    answer = _json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    return answer


def _clean(form: str, id: str) -> str | None:
    """Brings an id into the list's form. None if the form does not allow it."""
    if form == "lower":
        id = id.strip(" \t\r\n\v\f")
        if not all(" " <= c <= "~" for c in id):
            return None
        id = id.lower()
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        return None
    if not 0 < size <= _MAX_ID_BYTES:
        return None
    if form == "lower":
        return id
    if form == "integer":
        try:
            number = int(id) if id.isascii() else None
        except ValueError:
            return None
        return id if number is not None and -(1 << 63) <= number < 1 << 63 and str(number) == id else None
    if form != "exact" or any(c < " " or "\x7f" <= c <= "\x9f" for c in id):
        return None
    return None if id[0].isspace() or id[-1].isspace() else id
