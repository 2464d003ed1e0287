"""What is public is as it was committed, and nothing that a release had goes without a warning."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SURFACE = ROOT / ".ci" / "surface"


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"surface_{name}", SURFACE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


changes = module("changes")


def test_what_is_public_is_as_committed() -> None:
    pytest.importorskip("griffe", reason="the dependency group docs brings it")
    pytest.importorskip("fastapi_offline", reason="an extra brings it")
    done = subprocess.run(
        [sys.executable, str(SURFACE), "--check"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}"


def test_the_list_is_read_as_it_was_written() -> None:
    text = (ROOT / "docs" / "surface" / "next.txt").read_text(encoding="utf-8")
    surface = changes.read(text)
    assert changes.written(surface, text.splitlines()[0].removeprefix("# ")) == text
    said = surface["Of a session"]["session.tools.call"]
    assert said == "(name: str, /, **arguments: Any) -> ToolCall"
    assert surface["Config keys"]["clients.*.provider"] == ": string (required)"
    assert surface["Commands"]["casual-mcp-nb call NAME"] == " (required)"
    # Each signature can be compared, and is compatible with itself.
    assert changes.breaks(surface, surface, "1.0.0") == []


RELEASED = """# Of 1.1.0

## Python

p.ask(text: str, limit: int = 3, *, quiet: bool = False, **more: Any) -> str
p.find(text: str) -> str [deprecated since 1.1]
p.Turn
p.Turn.answer: str

## Config keys

clients.*.provider: string (required)
clients.*.timeout: number | null
clients

## HTTP responses

GET /chat 200 text: string | null

## Commands

tool call NAME (required)
tool call
"""


def broken(old: str, new: str, version: str = "1.2.0") -> list[str]:
    """What breaks if a line of the release becomes another one; without one, it is gone."""
    assert old in RELEASED
    now = changes.read(RELEASED.replace(old, new))
    return [str(each) for each in changes.breaks(changes.read(RELEASED), now, version)]


ASK = "p.ask(text: str, limit: int = 3, *, quiet: bool = False, **more: Any) -> str\n"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("p.Turn.answer: str\n", "", "Python: p.Turn.answer is gone"),
        (ASK, "", "Python: p.ask is gone"),
        (ASK, "p.ask: str\n", "Python: p.ask cannot be called any more"),
        (
            ASK,
            "p.ask(text: str, *, limit: int = 3, quiet: bool = False, **more: Any)\n",
            "Python: p.ask does not take limit by position any more",
        ),
        (
            ASK,
            "p.ask(limit: int, text: str = '', *, quiet: bool = False, **more: Any)\n",
            "Python: p.ask does not take text by position any more",
        ),
        (
            ASK,
            "p.ask(text: str, limit: int = 3, *, quiet: bool, **more: Any)\n",
            "Python: p.ask needs quiet now",
        ),
        (
            ASK,
            "p.ask(text: str, limit: int = 3, *, model: str, quiet: bool = False, **more: Any)\n",
            "Python: p.ask needs model, which is new",
        ),
        (
            ASK,
            "p.ask(text: str, limit: int = 3, *, quiet: bool = False)\n",
            "Python: p.ask does not take **more any more",
        ),
        (
            "timeout: number | null",
            "timeout: number",
            "Config keys: clients.*.timeout does not take null any more",
        ),
        (
            "timeout: number | null",
            "timeout: number | null (required)",
            "Config keys: clients.*.timeout is required now",
        ),
        (
            "clients\n",
            "clients\nclients.*.region: string (required)\n",
            "Config keys: clients.*.region is new and required",
        ),
        (
            "text: string | null",
            "text: string | null | integer",
            "HTTP responses: GET /chat 200 text can be integer now",
        ),
        (
            "tool call\n",
            "tool call\ntool call SERVER (required)\n",
            "Commands: tool call SERVER is new and required",
        ),
    ],
)
def test_what_worked_in_the_last_release_and_does_not_now_is_red(
    old: str, new: str, what: str
) -> None:
    assert what in broken(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p.Turn\n", "p.Turn\np.Step\n"),
        (
            ASK,
            "p.ask(text: str, limit: int = 5, more_text: str = '', *, k: int = 1, quiet=True,"
            " **more: Any) -> Answer\n",
        ),
        ("timeout: number | null", "timeout: number | string | null"),
        ("clients\n", "clients\nmodels.*.name: string (required)\nmodels.*.note: string\n"),
        ("text: string | null", "text: string"),
        ("tool call\n", "tool call\ntool ask\ntool ask TEXT (required)\n"),
    ],
)
def test_what_only_adds_is_green(old: str, new: str) -> None:
    assert broken(old, new) == []


def test_a_deprecated_name_goes_with_the_next_minor_release_and_not_with_a_patch() -> None:
    line = "p.find(text: str) -> str [deprecated since 1.1]\n"
    for version in ("1.2.0", "1.10.0", "2.0.0"):
        assert broken(line, "", version) == []
        assert broken(line, "p.find(words: str) -> str\n", version) == []
    assert broken(line, "", "1.1.1") == ["Python: p.find is gone"]
    assert "does not take text by name" in str(broken(line, "p.find(words: str)\n", "1.1.1"))


def test_the_last_release_is_the_highest_and_before_1_0_there_is_none(tmp_path: Path) -> None:
    for name in ("next.txt", "0.1.0.txt", "0.2.0.txt"):
        (tmp_path / name).write_text(RELEASED)
    assert changes.last_release(tmp_path) is None
    for version in ("1.9.0", "1.10.0", "0.12.3"):
        (tmp_path / f"{version}.txt").write_text(RELEASED)
    version, surface = changes.last_release(tmp_path)
    assert version == "1.10.0"
    assert surface == changes.read(RELEASED)
