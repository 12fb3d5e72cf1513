"""A node that speaks: texts become WAV by espeak-ng, which must be installed.

    GATEWAY=ws://127.0.0.1:7480 TOKEN_FILE=my-node.token python3 espeak_worker.py
"""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import wave
from typing import Any

from freeslot import FinalError, RetryableError, RunningJob, Worker

VOICES = {"de": "de", "en": "en-gb", "fr": "fr-fr", "es": "es"}

worker = Worker(
    os.environ.get("GATEWAY", "ws://127.0.0.1:7480"),
    token_file=os.environ.get("TOKEN_FILE", "my-node.token"),
    node=os.environ.get("NODE", "my-node"),
    slots=2,
    max_result_bytes=8 << 20,
)


@worker.service("speak", languages={"tts": VOICES})
def speak(job: RunningJob) -> dict[str, Any]:
    """A plain function: the worker calls it in a thread, and a job's cancel ends the synthesizer."""
    voice = VOICES.get(str(job.requirement.get("target_language", "en")).partition("-")[0], "en-gb")
    sentences = re.findall(r"[^.!?]+[.!?]?", str((job.payload or {}).get("text", "")).strip())
    if not sentences:
        raise FinalError("no_text", 'the payload has no "text"')
    speech = io.BytesIO()
    with wave.open(speech, "wb") as out:
        for number, sentence in enumerate(sentences, 1):
            with wave.open(io.BytesIO(synthesize(job, voice, sentence))) as part:
                if number == 1:
                    out.setparams(part.getparams())
                out.writeframes(part.readframes(part.getnframes()))
            job.progress({"sentence": number, "of": len(sentences)})
    with wave.open(io.BytesIO(speech.getvalue())) as whole:
        seconds = whole.getnframes() / whole.getframerate()
    return {"wav": base64.b64encode(speech.getvalue()).decode(), "seconds": round(seconds, 2), "voice": voice}


def synthesize(job: RunningJob, voice: str, text: str) -> bytes:
    # A text that begins with a dash must not become an option.
    command = ["espeak-ng", "-v", voice, "--stdout", "--", text]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        while True:
            try:
                out, _ = run.communicate(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                if job.cancelled:
                    run.kill()
    if job.cancelled:
        raise RuntimeError(f"stopped: {job.cause}")
    if run.returncode != 0:
        raise RetryableError("espeak_failed", f"espeak-ng ended with {run.returncode}")
    # It writes a length of 2^31 into the header, as it does not know the length yet.
    data = out.index(b"data") + 8
    return out[: data - 4] + (len(out) - data).to_bytes(4, "little") + out[data:]


if __name__ == "__main__":
    worker.run()
