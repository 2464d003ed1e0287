"""Runs pytest with the package's plugin, and without the plugins of this project's own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kit.lean import lean

WITHOUT_OURS = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "casual_mcp_nb.pytest_plugin",
    "-p",
    "no:cacheprovider",
]


def run(
    folder: Path, *options: str, file: str = "test_lesson.py", openai: bool = False
) -> tuple[int, str]:
    """Run a file of tests in a folder. Returns the exit status, and what pytest says."""
    ran = subprocess.run(
        [*WITHOUT_OURS, *options, file],
        cwd=folder,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            **lean(openai=openai),
            "MCP_STORE": "off",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    return ran.returncode, ran.stdout + ran.stderr
