"""The types of frames are those of docs/schema."""

from __future__ import annotations

import subprocess
import sys

from rig import ROOT


def test_frames_are_those_of_the_schemas() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "sdk/python/scripts/frames.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
