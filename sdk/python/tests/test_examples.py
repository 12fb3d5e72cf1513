"""Runs the examples, where what they need is installed."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from rig import ROOT, Process, System, eventually

EXAMPLES = ROOT / "sdk/python/examples"


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/openapi.json").close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
def test_speech_through_a_web_application(own: System, tmp_path: Path) -> None:
    replica = own.replica("r1")
    (tmp_path / "token").write_text(own.token)
    os.environ.update(
        PYTHONPATH=str(ROOT / "sdk/python/src"), GATEWAY=replica.url, TOKEN_FILE=str(tmp_path / "token"), NODE="speaks"
    )
    worker = Process(sys.executable, str(EXAMPLES / "espeak_worker.py"))
    try:
        eventually(lambda: replica.has("speaks"))
        job = {"service": "speak", "payload": {"text": "Guten Tag. -Wie geht es?"}, "requirement": {"target_language": "de"}}
        status = replica.get("/v1/jobs?wait_ms=60000", "POST", job)
        result = status["result"]
        assert result["voice"] == "de" and result["seconds"] > 1
        assert base64.b64decode(result["wav"]).startswith(b"RIFF")
        assert status["progress"]["value"]["of"] == 2
        empty = replica.get("/v1/jobs?wait_ms=60000", "POST", {"service": "speak", "payload": {}})
        assert empty["error"]["code"] == "no_text"
        if importlib.util.find_spec("fastapi") and importlib.util.find_spec("uvicorn"):
            web(replica.url)
    finally:
        assert worker.end(signal.SIGTERM) == 0


def web(url: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", str(port), "--log-level", "warning"]
    app = subprocess.Popen(command, cwd=EXAMPLES, env={**os.environ, "URL": url})
    at = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(at))
        body = json.dumps({"text": "One. Two. Three."}).encode()
        post = urllib.request.Request(f"{at}/speak?language=en", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(post) as accepted:
            job = json.load(accepted)["job_id"]
        with urllib.request.urlopen(f"{at}/jobs/{job}/events") as stream:
            text = stream.read().decode()
        names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
        assert names[-1] == "result" and set(names[:-1]) <= {"progress"}
        result = json.loads(text.rpartition("data: ")[2])
        assert result["state"] == "succeeded" and result["result"]["voice"] == "en-gb"
        with pytest.raises(urllib.error.HTTPError) as unknown:
            urllib.request.urlopen(f"{at}/jobs/0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z/events")
        unknown.value.close()
        assert unknown.value.status == 404
    finally:
        app.send_signal(signal.SIGINT)
        app.wait()
