from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from casual_mcp_nb import Session
from casual_mcp_nb.base.files import write_account_file
from casual_mcp_nb.bundled import (
    BUNDLED,
    anthropic_usage_server,
    available,
    build,
    command,
    google_account,
)
from casual_mcp_nb.bundled._documents import detect_encoding


@pytest.fixture(autouse=True)
def credentials(user_folder: Path) -> None:
    """Files as sign-in writes them, so that every server can be built."""
    write_account_file(
        google_account.folder() / "account.json",
        json.dumps({"email": "", "grants": list(google_account.GRANTS)}),
    )
    write_account_file(google_account.folder() / "token.json", "{}")
    write_account_file(anthropic_usage_server.key_file(), "sk-ant-admin01-none")


async def _tools(name: str) -> list:
    server = build(name)
    async with Client(server) as client:
        tools = await client.list_tools()
    server.close()
    return tools


async def test_there_are_forty_tools_or_more_without_the_shell() -> None:
    names = {
        name: [tool.name for tool in await _tools(name)] for name in BUNDLED if name != "shell"
    }

    assert sum(len(tools) for tools in names.values()) >= 40
    assert all(len(set(tools)) == len(tools) for tools in names.values())


@pytest.mark.parametrize("name", BUNDLED)
async def test_every_tool_and_every_parameter_is_described_and_annotated(name: str) -> None:
    for tool in await _tools(name):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", tool.name)
        assert tool.title
        assert tool.description.endswith(".")
        assert len(tool.description) > 15
        for parameter, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{parameter}"
        hints = tool.annotations
        assert None not in (
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )
        assert not (hints.read_only_hint and hints.destructive_hint)


async def test_the_tools_that_change_something_are_known_by_their_annotations() -> None:
    changing = {
        tool.name
        for name in BUNDLED
        for tool in await _tools(name)
        if not tool.annotations.read_only_hint
    }
    destructive = {
        tool.name
        for name in BUNDLED
        for tool in await _tools(name)
        if tool.annotations.destructive_hint
    }

    in_folders = {"write_file", "copy_file", "move_file", "delete_file", "execute", "run_command"}
    assert destructive == in_folders | {"gmail_send", "calendar_create_event"}
    assert changing == destructive | {"create_directory"}


@pytest.mark.fault(99)
def test_risky_servers_are_off_by_default_and_harmful_tools_need_approval() -> None:
    off = [name for name, server in BUNDLED.items() if not server.default]
    assert off == ["web", "shell", "gmail", "calendar", "anthropic-usage", "linkedin"]
    assert BUNDLED["shell"].approval == "always"
    assert [BUNDLED[name].asks_each_time for name in ("gmail", "calendar")] == [
        {"gmail_send"},
        {"calendar_create_event"},
    ]


def test_an_unknown_name_is_answered_with_the_closest_and_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'math'.*system-info.*shell"):
        build("mathe")
    with pytest.raises(ValueError, match="valid names"):
        command("zzz")


@pytest.mark.parametrize(
    "args", [["--rot", "x"], ["--help"], ["--root"], ["--root", "no-such-folder"]]
)
def test_a_wrong_option_is_a_value_error(args: list[str]) -> None:
    with pytest.raises(ValueError, match=r"files: |root"):
        build("files", args)


def test_the_command_runs_the_server_with_this_python() -> None:
    python, option, script, *words = command("files", ["--root", "x"])
    assert (python, option, words) == (sys.executable, "-P", ["files", "--root", "x"])
    assert Path(script).is_file()


def test_importing_the_registry_imports_no_sdk() -> None:
    code = (
        "import sys, casual_mcp_nb.bundled; print(sorted({'mcp', 'fastmcp', 'pydantic', 'argparse'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.strip() == "[]"


async def test_an_unknown_parameter_is_refused_with_the_valid_ones(refused) -> None:
    text = await refused("math", "add", a=1, b=2, c=3)
    assert "'c'" in text
    assert text.endswith(": a, b.")


async def test_a_wrong_argument_is_one_short_line_for_each_parameter(refused) -> None:
    text = await refused("math", "add", a="many")

    assert text.startswith("Wrong arguments. a: ")
    assert text.endswith("b: Field required")


@pytest.mark.defect("M16")
@pytest.mark.parametrize(
    ("server", "tool", "arguments", "words"),
    [
        ("math", "gcd_and_lcm", {"numbers": [12, "many"]}, ["numbers[1]: ", " such as ["]),
        ("math", "gcd_and_lcm", {"numbers": [{"a": 84, "b": 126}]}, ["numbers[0]: ", " such as ["]),
        ("math", "describe_numbers", {"numbers": [1, [2]]}, ["numbers[1]: "]),
        ("time", "convert_time", {"time": "10:00"}, ["Field required"]),
        ("system-info", "list_processes", {"table": "x"}, ["table"]),
    ],
)
async def test_an_error_says_where_a_value_is_wrong(
    refused, server: str, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    text = await refused(server, tool, **arguments)
    assert [word for word in words if word not in text] == []


@pytest.mark.defect("M16")
async def test_a_tool_without_parameters_says_how_to_call_it(refused) -> None:
    assert (await refused("sqlite", "list_tables", table="customers")).endswith("call it with {}.")


async def test_an_unknown_tool_is_answered_with_the_closest(refused) -> None:
    assert "evaluate_expression" in await refused("math", "evaluate_expresion")


def test_building_a_server_leaves_the_root_logger_alone() -> None:
    code = (
        "import logging; from casual_mcp_nb.bundled import build; build('math');"
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.strip() == "[] 30"


def test_available_servers_are_listed_with_the_requirements_of_the_others() -> None:
    here = available()

    assert here.servers["math"] == {"bundled": "math"}
    assert here.missing["shell"].reason == "off by default"
    assert set(here.servers) | set(here.missing) == set(BUNDLED)
    assert not set(here.servers) & set(here.missing)
    assert list(available("shell", "math").servers) == ["shell", "math"]
    assert str(here).count("\n") == len(BUNDLED) - 1
    with pytest.raises(ValueError, match="did you mean 'math'"):
        available("mathe")


def test_a_missing_library_fails_its_server_only_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    here = available()

    assert here.missing["units"].reason == "pint is not installed"
    assert "math" in here.servers
    with pytest.raises(ValueError, match=r'\bunits\b.* pip install "casual-mcp-nb\[bundled\]"$'):
        build("units")
    build("math").close()


@pytest.mark.parametrize(
    ("library", "server", "tool", "arguments"),
    [
        ("inscriptis", "text", "html_to_text", {"html": "<p>Hello</p>"}),
        ("jmespath", "text", "query_json", {"text": "[1, 2]", "path": "[?@ > `1`]"}),
        ("docx", "files", "read_file", {"path": "letter.docx"}),
    ],
)
async def test_a_tool_whose_library_is_missing_says_the_line_that_installs_it(
    library: str,
    server: str,
    tool: str,
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "letter.docx").write_bytes(b"")
    built = build(server, ["--root", str(tmp_path)] if server == "files" else [])
    async with Client(built) as client:
        result = await client.call_tool(tool, arguments, raise_on_error=False)
    built.close()
    assert result.is_error
    (content,) = result.content
    assert library in content.text
    assert "pip install 'casual-mcp-nb[bundled]'" in content.text


def test_without_the_detector_a_text_in_no_unicode_is_read_as_browsers_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    assert detect_encoding("naïve".encode("latin-1")) == "cp1252"
    assert detect_encoding("naïve".encode()) == "utf-8"


@pytest.mark.defect("F25")
def test_a_missing_library_is_named_by_the_state_the_notice_and_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    servers = {name: {"bundled": name} for name in ("units", "math")}
    models = {
        "clients": {"o": {"provider": "offline"}},
        "models": {"planner": {"client": "o", "model": "planner"}},
    }
    with Session.from_config({"servers": servers, **models}) as session:
        (notice,) = session.chat("What is 17 * 23?").notices
        rows = [
            row for row in session.servers.doctor() if row.name == "units" and row.verdict == "fail"
        ]
        status = session.servers["units"]
        assert (status.state, session.servers["math"].state) == ("failed", "ready")
    for words in (str(status.error), notice.text, rows[0].found + rows[0].advice, rows[1].found):
        assert "pint is not installed" in words
        assert 'pip install "casual-mcp-nb[bundled]"' in words
