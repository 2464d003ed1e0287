"""The command line as such: help, errors, exit codes, and the imports at its start."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from casual_mcp_nb import __version__
from casual_mcp_nb.cli.app import BROKEN_PIPE, FAILED, WRONG_USAGE, app, main

HEAVY = (
    "fastmcp",
    "mcp",
    "openai",
    "anthropic",
    "IPython",
    "pydantic",
    "casual_llm",
    "jinja2",
    "numpy",
)


@pytest.mark.parametrize("words", [["--version"], ["chat", "--help"]])
def test_help_and_version_import_nothing_heavy(words: list[str]) -> None:
    code = (
        f"import sys; from casual_mcp_nb.cli.app import main; main({words}); print([m for m in"
        f" {HEAVY} if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("words", [["modles"], ["models", "--jsn"]])
def test_a_wrong_command_line_is_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == WRONG_USAGE
    streams = capsys.readouterr()
    assert not streams.out
    assert words[-1] in streams.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["serve", "mpc"], "mcp"), (["toolsets", "creat"], "create"), (["modles"], "models")],
)
def test_a_mistyped_command_is_refused_with_the_one_that_was_meant(
    words: list[str],
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == WRONG_USAGE
    error = capsys.readouterr().err
    assert words[-1] in error
    assert f"Did you mean {meant!r}?" in error.replace('"', "'")


def test_a_missing_config_is_explained_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["models"]) == FAILED
    assert "--demo" in capsys.readouterr().err


def test_models_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--demo", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["provider"] == "offline"
    assert row["key"] == "not needed"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("toolsets", "migrate-config", "why-not"):
        assert word in script


def test_a_reader_that_has_left_is_not_an_error(config: Path) -> None:
    command = [sys.executable, "-m", "casual_mcp_nb", "completion", "bash"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == BROKEN_PIPE


def test_a_mistake_of_ours_shows_no_message_that_could_hold_a_secret(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A folder without permission to be listed and the like are told; this is what nobody thought
    # of.
    monkeypatch.setattr("casual_mcp_nb.cli.servers.show", lambda _rows: {}["sk-secret"])
    assert main(["models"]) == FAILED
    err = capsys.readouterr().err
    assert "KeyError" in err
    assert "sk-secret" not in err
    assert "Traceback" not in err


def commands(within: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that has `--json`."""
    if within.default_command and any(
        "--json" in argument.names for argument in within.assemble_argument_collection()
    ):
        yield path
    for name, inner in within.resolved_commands().items():
        if not name.startswith("-"):
            yield from commands(inner, (*path, name))


NEEDED = {
    ("tool",): ["math:add"],
    ("call",): ["math:add"],
    ("search",): ["x"],
    ("toolsets", "show"): ["mine"],
}
BREAKING = {"config": ["--config", "missing.json"], "option": ["--no-such-option"]}


@pytest.mark.defect("F23")
@pytest.mark.parametrize("how", BREAKING)
@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_with_json_an_error_is_an_object_on_stdout(
    words: tuple[str, ...],
    how: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    breaking = BREAKING[how]
    if how == "config" and words in (("demo",), ("migrate-config",)):
        breaking = ["--model", "no-such-provider:x"] if words == ("demo",) else ["missing.json"]
    assert main([*words, *NEEDED.get(words, []), *breaking, "--json"]) != 0
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert last["error"]


@pytest.mark.defect("F23")
@pytest.mark.parametrize("words", [("chat", "Hi"), ("tools",), ("call", "math:ad")])
def test_a_name_or_a_mistake_of_ours_is_an_object_too(
    words: tuple[str, ...],
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = {"chat": ["--model", "gtp"], "tools": ["maths"], "call": []}[words[0]]
    assert main([*words, *wrong, "--json"]) != 0
    error = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert error["kind"] == "unknown_name"

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("casual_mcp_nb.config.loader.load_accepted", broken)
    assert main([*words, "--json"]) == FAILED
    out = capsys.readouterr().out
    assert json.loads(out)["kind"] == "internal"
    assert "a secret" not in out


@pytest.mark.defect("F23")
@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
@pytest.mark.parametrize("words", [("serve",), ("serve", "mcp", "--transport", "http")])
def test_a_port_that_does_not_exist_is_refused(
    words: tuple[str, ...], port: str, config: Path
) -> None:
    assert main([*words, "--port", port]) == WRONG_USAGE
