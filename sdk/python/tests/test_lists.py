from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from rig import BIN, Replica, System

from freeslot import Error
from freeslot.lists import Answer, NameLists, Subject, _clean


def schedctl(replica: Replica, *args: str) -> str:
    command = [str(BIN / "schedctl"), "--server", f"http://{replica.address}", *args]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def members(answers: list[Answer]) -> list[bool | None]:
    return [answer.member for answer in answers]


@pytest.mark.parametrize("whole", [False, True])
def test_checks(system: System, replica: Replica, tmp_path: Path, whole: bool) -> None:
    name = "whole" if whole else "asked"
    ids = tmp_path / "ids.txt"

    async def main() -> None:
        async with NameLists(f"http://127.0.0.1:1,http://{replica.address}", max_age=0) as lists:
            assert (await lists.check(name, ["a"])) == [Answer("a", None, "list_unknown")]
            schedctl(replica, "lists", "apply", name, *(["--whole"] if whole else []))
            assert (await lists.check(name, ["a"]))[0].why == "draft"
            ids.write_text("".join(f"user-{i}\n" for i in range(1500)))
            schedctl(replica, "lists", "import", name, str(ids), "--switch")
            wanted = [f"user-{i}" for i in range(1490, 1510)]
            assert members(await lists.check(name, wanted)) == [True] * 10 + [False] * 10
            assert (lists._lists[name].ids is not None) == whole
            assert members(await lists.check(name, ["", " a", "ü", "x" * 257])) == [None, None, False, None]
            many = await lists.check(name, [f"user-{i}" for i in range(2500)])
            assert members(many) == [True] * 1500 + [False] * 1000
            # Edits, then another version.
            schedctl(replica, "lists", "add", name, "new")
            schedctl(replica, "lists", "remove", name, "user-1")
            assert members(await lists.check(name, ["new", "user-1", "user-2"])) == [True, False, True]
            schedctl(replica, "lists", "add", name, "brief", "--for", "1ms")
            assert await lists.member(name, "brief") is False
            ids.write_text("other\n" + "".join(f"user-{i}\n" for i in range(3, 1500)))
            schedctl(replica, "lists", "import", name, str(ids), "--switch")
            assert members(await lists.check(name, ["other", "user-2"])) == [True, False]
            answer = (await lists.check(name, ["other"]))[0]
            assert answer.version == 2 and answer.revision > 0
            schedctl(replica, "lists", "rollback", name)
            assert (await lists.check(name, ["user-2"]))[0].version == 1
            assert members(await lists.check(name, ["other", "user-2", "user-3"])) == [False, True, True]

    asyncio.run(main())


def test_a_fresh_state_costs_no_request_and_an_old_one_is_unknown(own: System, tmp_path: Path) -> None:
    async def main() -> None:
        replica = own.replica("r1")
        schedctl(replica, "lists", "apply", "vip", "--whole")
        (tmp_path / "ids").write_text("a\n")
        schedctl(replica, "lists", "import", "vip", str(tmp_path / "ids"), "--switch")
        lists = NameLists(f"http://{replica.address}", max_age=3600)
        assert await lists.member("vip", "a") is True
        replica.end()
        assert members(await lists.check("vip", ["a", "b"])) == [True, False]
        lists._max_age = 0
        assert await lists.member("vip", "a") is True, "what is in memory answers for 3 s"
        lists._lists["vip"].asked = float("-inf")
        assert await lists.check("vip", ["a"]) == [Answer("a", None, "unavailable")]
        with pytest.raises(Error) as nothing:
            await lists.decide("vip", "a")
        assert nothing.value.code == "unavailable"

    asyncio.run(main())


def test_a_token_in_the_clear_is_told(caplog: pytest.LogCaptureFixture) -> None:
    urls = "http://127.0.0.1:1,http://localhost:2,https://192.0.2.1:3,http://user:secret@192.0.2.1:4"
    NameLists(urls)
    assert not caplog.messages
    NameLists(urls, token="t")
    assert caplog.messages == ["the token goes to 192.0.2.1:4 in the clear: use https://"]


def test_chains(system: System, replica: Replica, tmp_path: Path) -> None:
    chain = tmp_path / "chain.yaml"
    document = {
        "attributes": {"country": "string"},
        "name": "door",
        "rules": [{"name": "germans", "kind": "expression", "expression": 'country == "DE"', "outcome": "deny", "unknown": "skip"}],
        "default": "allow",
    }
    chain.write_text(json.dumps(document))

    async def main() -> None:
        schedctl(replica, "lists", "chain", "apply", "door", str(chain))
        lists = NameLists(f"http://{replica.address}")
        decision = await lists.decide("door", "user-1", {"country": "DE"})
        assert (decision.outcome, decision.rule) == ("deny", "germans")
        outcomes = [d.outcome for d in await lists.decide_all("door", [Subject(f"user-{i}") for i in range(1200)])]
        assert outcomes == ["allow"] * 1200
        with pytest.raises(Error) as bad:
            await lists.decide("door", "user-1", {"colour": "red"})
        assert bad.value.code == "invalid_argument"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("form", "given", "want"),
    [
        ("exact", "张三", "张三"),
        ("exact", "a\x85", None),
        ("exact", "a\n", None),
        ("exact", "\u3000a", None),
        ("exact", "\ud800", None),
        ("lower", " \tUser-1\n", "user-1"),
        ("lower", "ü", None),
        ("lower", "  ", None),
        ("integer", "-9223372036854775808", "-9223372036854775808"),
        ("integer", "9223372036854775808", None),
        ("integer", "007", None),
        ("integer", "1_000", None),
        ("integer", " 1", None),
        ("later", "a", None),
    ],
)
def test_forms(form: str, given: str, want: str | None) -> None:
    assert _clean(form, given) == want
