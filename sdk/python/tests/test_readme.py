"""Runs what README.md shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rig import ROOT, Process, Replica, System, eventually
from test_lists import schedctl

PYTHON = ROOT / "sdk/python"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (PYTHON / page).read_text(), re.M | re.S)


def run(file: Path, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(PYTHON / "src"), **environment}
    done = subprocess.run([sys.executable, file.name], cwd=file.parent, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepare_lists(replica: Replica, folder: Path) -> None:
    (folder / "ids").write_text("user-1\n")
    rule = {"name": "germans", "kind": "expression", "expression": 'country == "DE"', "outcome": "deny", "unknown": "skip"}
    chain = {"name": "door", "attributes": {"country": "string"}, "rules": [rule], "default": "allow"}
    (folder / "door.json").write_text(json.dumps(chain))
    schedctl(replica, "lists", "apply", "vip")
    schedctl(replica, "lists", "import", "vip", str(folder / "ids"), "--switch")
    schedctl(replica, "lists", "chain", "apply", "door", str(folder / "door.json"))


def test_first_steps_and_examples(own: System, tmp_path: Path) -> None:
    replica = own.replica("r1")
    node, submit, larger, client, sync, lists = blocks("README.md")
    (tmp_path / "my-node.token").write_text(own.token)
    for name, block in (("node", node), ("submit", submit), ("larger", larger), ("client", client), ("sync", sync), ("lists", lists)):
        (tmp_path / f"{name}.py").write_text(block.replace("ws://127.0.0.1:7480", replica.url))
    os.environ.update(PYTHONPATH=str(PYTHON / "src"), GATEWAY=replica.url, TOKEN_FILE=str(tmp_path / "my-node.token"))
    os.chdir(tmp_path)
    workers: list[Any] = []
    try:
        workers = [Process(sys.executable, "node.py"), Process(sys.executable, "larger.py")]
        eventually(lambda: replica.has("my-node", "gpu-7"))
        assert run(tmp_path / "submit.py") == "HELLO\n"
        lines = run(tmp_path / "client.py", URL=replica.url).splitlines()
        assert lines[0] == "{'text': 'hello', 'attempt': 1}"
        assert lines[1:-3] and set(lines[1:-3]) <= {"{'percent': 0}", "{'percent': 50}"}
        assert lines[-3:] == [
            "succeeded {'text': 'good morning', 'attempt': 1}",
            "failed no_text there is nothing to say",
            "{'text': 'two', 'attempt': 1}",
        ]
        assert run(tmp_path / "sync.py", URL=replica.url).splitlines()[-1] == "{'text': 'good morning', 'attempt': 1}"
        assert replica.get("/v1/jobs?wait_ms=60000", "POST", {"service": "wait", "payload": {"seconds": 0.01}})["attempt"] == 2
        found = {"service": "search", "payload": {"pattern": "e.*o", "text": "hello"}}
        assert replica.get("/v1/jobs?wait_ms=60000", "POST", found)["result"] is True
        prepare_lists(replica, tmp_path)
        assert run(tmp_path / "lists.py", HTTP_URL=f"http://{replica.address}").splitlines() == [
            "True",
            "user-1 True ",
            "stranger False ",
            "deny germans None",
        ]
    finally:
        os.chdir(ROOT)
        codes = [worker.end(signal.SIGTERM) for worker in workers]
    assert codes == [0, 0]
