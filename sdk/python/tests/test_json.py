from __future__ import annotations

import json
import random

import pytest

from freeslot import _json


def test_slow_reader_agrees_with_pythons() -> None:
    """The reader for what Python's own does not read gives the same values for everything else."""
    source = random.Random(7)

    def value(depth: int) -> object:
        kind = source.randrange(8 if depth else 6)
        if kind == 6:
            return [value(depth - 1) for _ in range(source.randrange(4))]
        if kind == 7:
            return {value_text(): value(depth - 1) for _ in range(source.randrange(4))}
        return [None, True, False, source.randrange(-(10**20), 10**20), source.random() * 1e30, value_text()][kind]

    def value_text() -> str:
        return "".join(source.choice('a"\\/é\n\u2028 😀{}[],:') for _ in range(source.randrange(6)))

    for _ in range(500):
        made = value(4)
        for text in (json.dumps(made), json.dumps(made, indent=1, ensure_ascii=False)):
            assert _json._slowly(text) == json.loads(text) == made


@pytest.mark.parametrize("text", ["", "[", "[1,]", "{", '{"a"}', '{"a":}', '{"a":1,}', "[1 2]", "nul", "01", "[1]x", "]", "[}", '{"a":1]'])
def test_slow_reader_refuses_what_is_not_json(text: str) -> None:
    with pytest.raises(ValueError):
        _json._slowly(text)


def test_a_deep_payload_and_a_long_integer_do_not_spoil_a_frame() -> None:
    deep = "[" * 9000 + "]" * 9000
    frame = _json.loads(f'[{{"a":{deep}}},{{"b":1}},{{"c":{"9" * 5000}}}]')
    assert frame[1] == {"b": 1}
    assert frame[2]["c"] == float("inf")
    depth, inner = 0, frame[0]["a"]
    while inner is not None:
        depth, inner = depth + 1, inner[0] if inner else None
    assert depth == 9000
    with pytest.raises(ValueError, match="nested"):
        _json.dumps(frame[0])


def test_texts_have_a_form_in_utf8() -> None:
    assert _json.dumps({"é": "\u2028"}) == '{"é":"\u2028"}'
    assert _json.dumps("\ud800").encode() == b'"\\ud800"'
    with pytest.raises(ValueError):
        _json.dumps(float("nan"))
