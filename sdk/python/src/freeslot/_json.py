"""JSON as freeslot's protocols have it."""

from __future__ import annotations

import json
import re
from json import decoder as _decoder
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


def dumps(value: Any) -> str:
    """Encodes a value; the text has a form in UTF-8.

    It raises ValueError or TypeError for a value that JSON does not have, or that is nested deeper
    than Python's recursion limit.
    """
    try:
        text = _encode(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:  # half of a surrogate pair
                text = _encode_ascii(value)
        return text
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def loads(text: str | bytes) -> Any:
    """Decodes a value. ValueError if the text is not JSON.

    A frame carries other jobs, too. So one payload that is nested deeper than Python's recursion
    limit, or has an integer of more digits than Python reads, must not spoil the frame.
    """
    try:
        if not isinstance(text, str):
            text = text.decode()
        return _decode(text)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError):
        if not isinstance(text, str):  # not UTF-8
            raise
        return _slowly(text)


_scan_text: Any = _decoder.scanstring  # type: ignore[attr-defined]
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_LITERALS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


def _slowly(text: str) -> Any:
    """Decodes without recursion. Integers that Python does not read become floating point."""
    root: list[Any] = []
    stack: list[Any] = [root]  # the containers that are open
    keys: list[str | None] = [None]  # for each, the key whose value comes next
    at = 0

    def bad() -> json.JSONDecodeError:
        return json.JSONDecodeError("unexpected text", text, at)

    def skip(position: int) -> int:
        match = _SPACE.match(text, position)
        return match.end() if match else position

    def key(position: int) -> int:
        if text[position : position + 1] != '"':
            raise bad()
        keys[-1], position = _scan_text(text, position + 1, True)
        position = skip(position)
        if text[position : position + 1] != ":":
            raise bad()
        return skip(position + 1)

    at = skip(at)
    while True:
        value: Any
        head = text[at : at + 1]
        opened = False
        if head in ("[", "{") and head:
            value = [] if head == "[" else {}
            opened = True
            at = skip(at + 1)
        elif head == '"':
            value, at = _scan_text(text, at + 1, True)
        elif head in _LITERALS:
            word, value = _LITERALS[head]
            if not text.startswith(word, at):
                raise bad()
            at += len(word)
        else:
            match = _NUMBER.match(text, at)
            if not match:
                raise bad()
            try:
                value = float(match[0]) if match[1] or match[2] else int(match[0])
            except ValueError:
                value = float(match[0])
            at = match.end()
        owner = stack[-1]
        name = keys[-1]
        if name is None:
            owner.append(value)
        else:
            owner[name] = value
        if opened:
            stack.append(value)
            keys.append(None)
            if text[at : at + 1] not in ("]", "}"):
                at = key(at) if head == "{" else at
                continue
        while True:  # closes what ends here
            at = skip(at)
            if len(stack) == 1:
                if at != len(text):
                    raise bad()
                return root[0]
            end = text[at : at + 1]
            is_object = isinstance(stack[-1], dict)
            if end == ",":
                at = skip(at + 1)
                at = key(at) if is_object else at
                break
            if end != ("}" if is_object else "]"):
                raise bad()
            stack.pop()
            keys.pop()
            at += 1
