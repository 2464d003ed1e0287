"""A config file whose servers run in this process, and a way to run a command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.cli.app import main

CONFIG: dict[str, Any] = {
    "clients": {
        "offline": {"provider": "offline"},
        "openai": {"provider": "openai", "api_key": "sk-0123456789abcdef0123"},
    },
    "models": {
        "planner": {"client": "offline", "model": "planner"},
        "gpt": {"client": "openai", "model": "gpt-5.4"},
    },
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "units": {"bundled": "units", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"description": "Numbers", "servers": {"math": ["power"]}}},
    "tool_discovery": {"enabled": True},
}

Run = Callable[..., tuple[int, str, str]]
Typed = Callable[..., None]


class Keyboard(io.StringIO):
    """A stdin that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; returns its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Have commands read lines as if somebody typed them on a terminal."""

    def type_lines(*lines: str) -> None:
        monkeypatch.setattr(sys, "stdin", Keyboard("".join(f"{line}\n" for line in lines)))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return type_lines
