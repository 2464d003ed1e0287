"""The programs that look at a release, in an environment of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".third-party" / "release"
BIN = FOLDER / ("Scripts" if os.name == "nt" else "bin")


def run_tool(name: str, *arguments: str | Path, stdin: str | None = None) -> str:
    """Run one of them; return what it printed, or skip the test where they are not installed.

    Args:
        name: The name of the program.
        *arguments: Its arguments.
        stdin: What it reads.

    Raises:
        AssertionError: It found something; with what it printed.
    """
    if not (FOLDER / "installed").is_file():
        pytest.skip("the tools are missing: `python3 .ci/third_party.py release` installs them")
    done = subprocess.run(
        [BIN / name, *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
