"""The filter of a list's version: a quick "no" for most ids that the version does not have.

docs/namelist.md, "For other languages", has the hash and the form of the blocks.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Callable, Iterable, Mapping

from ._backoff import Backoff

_MASK = (1 << 64) - 1
_HEAD = 48
_SUM = 8
_FUSE, _BLOOM = 1, 2
_MAX_KEYS = 1 << 19
_MAX_BITS = 14
_MAX_HASHES = 64
_OVERHEAD = 256  # of a block in Python; 214 were measured

MAX_BLOCK = 2 << 20  # of the wire form

Hash = Callable[[bytes, int], int]


def xxh3() -> Hash | None:
    """Returns XXH3-64 of bytes with a seed, or None if the package xxhash is not there."""
    try:
        from xxhash import xxh3_64_intdigest
    except ImportError:  # also a release before 2.0
        return None
    found: Hash = xxh3_64_intdigest
    return found


class Block:
    """One block of a filter."""

    __slots__ = ("_kind", "_keys", "_seed", "_length", "_count", "_wire")

    def __init__(self, wire: bytes) -> None:
        self._wire = wire
        self._kind = wire[5]
        self._keys, self._seed = _number(wire, 28, 4), _number(wire, 32, 8)
        self._length, self._count = _number(wire, 40, 4), _number(wire, 44, 4)

    @property
    def bytes(self) -> int:
        return len(self._wire) + _OVERHEAD

    def has(self, hash: int) -> bool:
        """False is certain."""
        if self._keys == 0:
            return False
        wire, length, count = self._wire, self._length, self._count
        if self._kind == _BLOOM:
            m = _mix(hash)
            at, step, bits = m & 0xFFFFFFFF, m >> 32 | 1, 64 * count
            for _ in range(length):
                bit = at % bits
                if not wire[_HEAD + (bit >> 3)] >> (bit & 7) & 1:
                    return False
                at = at + step & 0xFFFFFFFF  # as package filter does, which writes the blocks
            return True
        m = _mix(hash + self._seed & _MASK)
        a = m * (count * length) >> 64
        b = a + length ^ m >> 18 & length - 1
        c = a + 2 * length ^ m & length - 1
        return wire[_HEAD + a] ^ wire[_HEAD + b] ^ wire[_HEAD + c] == (m ^ m >> 32) & 0xFF


def decode(wire: bytes, build: str, index: int, hash: Hash) -> Block | None:
    """Reads a block. None if it is in a form that this release does not know; ValueError if it is damaged."""
    if len(wire) < _HEAD + _SUM or wire[:4] != b"FSLB":
        raise ValueError("the answer is not a block of a filter")
    if hash(wire[:-_SUM], 0) != _number(wire, len(wire) - _SUM, _SUM):
        raise ValueError("a block's checksum differs")
    if wire[4] != 1 or wire[5] not in (_FUSE, _BLOOM):
        return None
    if wire[8:24].hex() != build or _number(wire, 24, 4) != index:
        raise ValueError("the answer is another block")
    keys, length, count = (_number(wire, at, 4) for at in (28, 40, 44))
    content = len(wire) - _HEAD - _SUM
    if keys == 0:
        fits = content == 0
    elif wire[5] == _BLOOM:
        fits = 1 <= length <= _MAX_HASHES and count > 0 and content == 8 * count
    else:
        fits = length > 0 and length & (length - 1) == 0 and count > 0 and content == (count + 2) * length
    if keys > _MAX_KEYS or not fits:
        raise ValueError("a block's numbers do not fit its size")
    return Block(wire)


class Filter:
    """What is loaded of a version's filter."""

    def __init__(self, hash: Hash, seed: int, build: str, bits: int, size: int) -> None:
        self.hash, self.build = hash, build
        self._seed, self._bits = seed, bits
        self.need = (size >> bits) + _OVERHEAD  # of a block, about
        self.blocks: dict[int, Block | None] = {}  # None has no room
        self.bytes = 0
        self._pause = Backoff(1.0, 60.0, 2.0)
        self._next = 0.0  # when the next block may be loaded
        self._busy = False

    @classmethod
    def of(cls, head: Mapping[str, Any], serving: Mapping[str, Any], hash: Hash | None) -> Filter | None:
        """Returns the filter of a version without blocks. None if it has none that this release knows."""
        bits, size = serving.get("block_bits", 0), serving.get("filter_bytes", 0)
        if hash is None or serving.get("filter") not in ("fuse", "bloom") or not 0 <= bits <= _MAX_BITS or size <= 0:
            return None
        try:
            seed = int(head["seed"], 16)
        except (KeyError, ValueError):
            return None
        return cls(hash, seed, serving.get("build", ""), bits, size) if 0 <= seed <= _MASK else None

    def place(self, id: str) -> tuple[int, int]:
        """Returns the hash of an id in the list's form, and the index of its block."""
        hash = self.hash(id.encode(), self._seed)
        return hash, hash >> 64 - self._bits

    def no(self, id: str) -> bool:
        """Reports whether the version certainly does not have the id, in the list's form."""
        hash, index = self.place(id)
        block = self.blocks.get(index)
        return block is not None and not block.has(hash)

    def due(self) -> bool:
        """Reports whether a block may be loaded now."""
        return not self._busy and len(self.blocks) < 1 << self._bits and time.monotonic() >= self._next

    def lacking(self, ids: Iterable[str]) -> int | None:
        """Returns the block that most of these ids need and that is not there."""
        indexes = Counter(index for _, index in map(self.place, ids) if index not in self.blocks)
        return indexes.most_common(1)[0][0] if indexes else None

    def begin(self) -> None:
        """Begins to load a block: failed or end must follow. Other checks do not wait for it."""
        self._busy = True

    def end(self) -> None:
        self._busy = False

    def failed(self) -> None:
        self._next = time.monotonic() + self._pause.next()

    def unknown(self) -> None:
        """The blocks are in a form that this release does not know."""
        self._next = float("inf")

    def put(self, index: int, block: Block, room: int) -> None:
        self._pause.reset()
        fits = block.bytes <= room
        self.blocks[index] = block if fits else None
        self.bytes += block.bytes if fits else 0


def _mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


def _number(wire: bytes, at: int, size: int) -> int:
    return int.from_bytes(wire[at : at + size], "little")
