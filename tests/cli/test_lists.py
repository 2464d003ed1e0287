"""The output of the commands that list something, for people and for programs."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.cli.app import FAILED, WRONG_USAGE
from casual_mcp_nb.cli.terminal import show
from casual_mcp_nb.display.view import Column, Table, View
from tests.cli.conftest import CONFIG, Run, Typed

KEY = CONFIG["clients"]["openai"]["api_key"]


def test_tools_have_a_status_with_discovery(config: Path, run: Run) -> None:
    code, out, _ = run("tools", "--json")
    statuses = {row["name"]: row["status"] for row in json.loads(out)}
    assert code == 0
    assert statuses["math:power"] == "loaded"
    assert statuses["units:convert_units"] == "deferred"
    _, table, _ = run("tools")
    assert "Status" in table
    assert "deferred" in table


def test_tools_of_a_server_or_a_toolset(config: Path, run: Run) -> None:
    _, out, _ = run("tools", "units", "--json")
    assert run("tools", "--server", "units", "--json")[1] == out
    assert {row["server"] for row in json.loads(out)} == {"units"}
    _, out, _ = run("tools", "--toolset", "numbers", "--json")
    assert [row["name"] for row in json.loads(out)] == ["math:power"]
    assert all(row["tokens"] > 0 for row in json.loads(out))


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "maths"],
        ["tools", "-t", "nmbers"],
        ["tool", "math:pwr"],
        ["servers", "maths"],
        ["call", "math:power", "["],
        ["call", "math:power", "base=2", "exponent"],
    ],
)
def test_a_name_that_does_not_exist_is_wrong_usage(
    words: list[str], config: Path, run: Run
) -> None:
    code, out, err = run(*words)
    assert code == WRONG_USAGE
    assert not out
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["tools", "tool", "servers", "models", "clients"])
def test_a_config_that_is_no_option_names_the_option(command: str, config: Path, run: Run) -> None:
    code, out, err = run(command, str(config))
    assert (code, out, len(err.splitlines())) == (WRONG_USAGE, "", 1)
    assert f"--config {config}" in err
    assert "--config" not in run(command, "nothing.json")[2]


def test_a_failed_server_is_shown_with_its_stderr_and_costs_the_others_nothing(
    config: Path, run: Run
) -> None:
    code = (
        "import sys; sys.stderr.write('\\x1b[31mboom\\x1b[0m\\u202e [bold]gone[/bold]');"
        " sys.exit(3)"
    )
    broken = {
        **CONFIG,
        "servers": {
            **CONFIG["servers"],
            "broken": {"command": sys.executable, "args": ["-c", code]},
        },
    }
    config.write_text(json.dumps(broken), encoding="utf-8")
    exit_code, out, _ = run("servers")
    assert exit_code == FAILED
    assert "[bold]gone[/bold]" in out
    assert not {"\x1b", "\u202e"} & set(out)
    exit_code, out, _ = run("servers", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert exit_code == FAILED
    assert rows["math"]["state"] == "ready"
    assert rows["math"]["tokens"] > 0
    assert rows["broken"]["state"] == "failed"
    assert "boom" in rows["broken"]["stderr_tail"]


@pytest.mark.parametrize(
    "words", [["clients"], ["models"], ["clients", "--json"], ["doctor"], ["check", "--json"]]
)
def test_no_key_is_shown(words: list[str], config: Path, run: Run) -> None:
    _, out, err = run(*words)
    assert KEY not in out + err
    assert "openai" in out


def test_the_doctor_without_a_config_checks_what_needs_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("doctor", "--json")
    checks = json.loads(out)["checks"]
    assert code == FAILED
    assert {"Kernel", "Packages", "Templates"} < {check["part"] for check in checks}
    (failed,) = [check for check in checks if check["verdict"] == "fail"]
    assert (failed["part"], failed["name"]) == ("Config", "casual_mcp_config.json")
    assert "--demo" in failed["advice"]
    assert run("doctor", "--connect")[0] != 0


@pytest.mark.parametrize(
    ("words", "told"), [(["doctor", "--demo"], True), (["doctor", "--connect", "--demo"], False)]
)
def test_the_doctor_says_how_servers_are_started_that_it_did_not_start(
    run: Run, words: list[str], told: bool
) -> None:
    assert ("--connect" in run(*words)[2]) == told


SHOP = """
from fastmcp import FastMCP

mcp = FastMCP("shop")


@mcp.tool(annotations={"readOnlyHint": True})
def shoe_sizes() -> list[int]:
    "List the sizes of shoes."
    return [36, 44]


mcp.run(show_banner=False)
"""


def test_the_file_of_one_server_takes_the_place_of_a_config(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "my shop.py"
    file.write_text(SHOP)
    code, out, _ = run("tools", "-c", str(file), "--json")
    assert (code, [tool["tool"] for tool in json.loads(out)]) == (0, ["shoe_sizes"])
    code, out, _ = run("chat", "-c", str(file), "--json", "List the sizes of shoes")
    events = [json.loads(line) for line in out.splitlines()]
    called = [event["tool"] for event in events if event["event"] == "ToolStarted"]
    assert (code, called) == (0, ["my-shop:shoe_sizes"])


def test_the_file_of_another_host_is_asked_with_the_planner_or_a_model_by_its_provider(
    tmp_path: Path, run: Run
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    entry = {"command": sys.executable, "args": [str(tmp_path / "shop.py")]}
    file = tmp_path / "claude.json"
    file.write_text(json.dumps({"mcpServers": {"shop": entry}}))
    words = ["chat", "-c", str(file), "--trust", "List the sizes of shoes"]
    code, out, err = run(*words)
    assert (code, "44" in out, "--model" in err) == (0, True, True)
    code, out, err = run(*words, "--model", "offline:planner")
    assert (code, "44" in out, "--model" in err) == (0, True, False)


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_an_entry_that_cannot_be_used_is_a_failure_before_anything_starts(
    command: str, tmp_path: Path, run: Run
) -> None:
    servers = {"web": {"url": "htps://x"}, "own": {"command": sys.executable}}
    file = tmp_path / "claude.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    code, out, _ = run(command, str(file), "--json")
    failed = [check["name"] for check in json.loads(out)["checks"] if check["verdict"] == "fail"]
    assert (code, failed) == (FAILED, ["web"])


@pytest.mark.defect("K3")
@pytest.mark.parametrize(
    ("words", "exit_code", "ends_at"),
    [
        (["math:power"], 0, "called"),
        (["units:convert_units", "--query", "convert a unit"], 0, "sent"),
        (["units:convert_units", "-q", "xylophone"], FAILED, "searchable"),
        (["math:pwr"], FAILED, "listed"),
    ],
)
def test_the_doctor_shows_how_far_a_tool_gets(
    words: list[str], exit_code: int, ends_at: str, config: Path, run: Run
) -> None:
    code, out, _ = run("doctor", "--tool", *words, "--json")
    report = json.loads(out)
    assert (code, report["ends_at"], report["stopped"]) == (exit_code, ends_at, exit_code != 0)
    assert len(report["stages"]) == 5
    assert "%mcp" not in out
    assert "session." not in out
    code, text, _ = run("doctor", "--tool", *words)
    assert code == exit_code
    assert words[0] in text


@pytest.mark.defect("K3")
def test_the_doctor_shows_how_far_each_tool_gets(config: Path, run: Run) -> None:
    code, out, _ = run("doctor", "--tool", "units", "--json")
    assert code == 0
    assert {tool["ends_at"] for tool in json.loads(out)["tools"]} == {"sent"}
    assert run("doctor", "-t", "unts")[0] == WRONG_USAGE
    assert run("doctor", "-q", "unit")[0] == WRONG_USAGE


def test_a_search_ranks_as_the_model_sees_it(config: Path, run: Run) -> None:
    _, out, _ = run("search", "convert", "a", "unit", "--why", "--json")
    report = json.loads(out)
    assert report["hits"][0]["tool"] == "units:convert_units"
    assert report["hits"][0]["returned"]
    assert sum(share["share"] for share in report["hits"][0]["shares"]) == pytest.approx(
        report["hits"][0]["score"]
    )
    _, out, _ = run("search", "square root", "--all", "--json")
    assert "math:power" in [hit["tool"] for hit in json.loads(out)["hits"]]
    _, out, _ = run("search", "square root", "--why-not", "math:power", "--json")
    assert json.loads(out)["rank"] is None


def test_a_call_by_hand(config: Path, run: Run) -> None:
    code, out, _ = run("call", "math:power", '{"base": 2,', '"exponent": 10}', "--json")
    assert (code, json.loads(out)["status"]) == (0, "ok")
    code, out, _ = run("call", "math:power", "base=2", "exponent=10", "--json")
    assert (code, json.loads(out)["structured"]) == (0, {"result": 1024})
    code, out, _ = run("call", "math:power", "{}", "--json")
    assert (code, json.loads(out)["status"]) == (FAILED, "error")


def test_check_reports_errors_and_starts_nothing(config: Path, run: Run) -> None:
    assert run("check")[0] == 0
    config.write_text(
        json.dumps({**CONFIG, "servers": {"math": {"comand": "x"}}}), encoding="utf-8"
    )
    code, out, err = run("check")
    assert (code, out) == (FAILED, "")
    assert "servers.math" in err
    code, out, _ = run("check", "--json")
    assert (code, json.loads(out)["ok"]) == (FAILED, False)


def test_check_finds_toolsets_that_do_not_fit(config: Path, run: Run) -> None:
    assert run("check", "--connect", "--json")[0] == 0
    odd = {"odd": {"servers": {"math": ["nothing_like_this"]}}}
    config.write_text(json.dumps({**CONFIG, "tool_sets": odd}), encoding="utf-8")
    assert run("check")[0] == 0
    code, out, _ = run("check", "--connect", "--json")
    assert code == FAILED
    assert [each["name"] for each in json.loads(out)["checks"] if each["verdict"] == "fail"] == [
        "odd"
    ]


def test_a_missing_key_fails_unless_it_does_not_matter(
    config: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config.write_text(
        json.dumps({**CONFIG, "clients": {**CONFIG["clients"], "openai": {"provider": "openai"}}}),
        encoding="utf-8",
    )
    assert run("check")[0] == FAILED
    assert run("check", "--no-keys")[0] == 0


def test_a_config_of_somebody_else_is_not_started(config: Path, run: Run, asks_first: Path) -> None:
    program = {"command": sys.executable, "args": ["-c", "open('started', 'w')"]}
    config.write_text(json.dumps({"servers": {"theirs": program}}), encoding="utf-8")
    code, out, err = run("tools")
    assert (code, out) == (FAILED, "")
    assert "--trust" in err
    run("servers", "--trust")
    assert Path("started").exists()


def test_on_a_terminal_the_person_is_asked_once(
    config: Path, run: Run, asks_first: Path, typed: Typed
) -> None:
    program = {"command": sys.executable, "args": ["-c", "open('started', 'w')"]}
    config.write_text(json.dumps({"servers": {"theirs": program}}), encoding="utf-8")
    typed("")
    code, out, err = run("tools", "--json")
    assert (code, json.loads(out)["kind"]) == (FAILED, "trust_required")
    assert "started" in err
    assert not Path("started").exists()
    typed("y")
    assert run("tools", "--json")[1].strip() == "[]"
    assert Path("started").exists()
    typed()
    assert run("tools", "--json")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "-c"],
        ["audit"],
        ["chat", "x", "-c"],
        ["toolsets", "create", "x", "--include", "theirs:tool", "-c"],
    ],
)
def test_nothing_is_typed_into_a_config_that_is_not_accepted(
    words: list[str], config: Path, run: Run, asks_first: Path, typed: Typed, tmp_path: Path
) -> None:
    program = {"command": sys.executable, "args": ["-c", "open('started', 'w')", "${input:quay}"]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"inputs": [], "servers": {"theirs": program}}), encoding="utf-8")
    typed("", "a value")
    code, _, err = run(*words, str(file))
    assert code == FAILED
    assert "${input:quay}" in err
    assert sys.stdin.read() == "a value\n"
    assert not Path("started").exists()


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_text_of_a_server_does_nothing_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FastMCP("hostile")
    server.tool(
        lambda: "",
        name="tool",
        description="\x1b]0;title\x07[red]red[/red] \u202egnp.exe \x1b[2J :smile: http://x",
    )
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    with Session({}, in_process={"hostile": server}) as session:
        show(session.tools)
        show(session.tools["hostile:tool"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert "[red]red[/red]" in text
    assert ":smile:" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert max(map(len, text.splitlines())) <= 70


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_breaks_no_word(
    columns: int, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with Session(config, trust=True) as session:
        for value in (session.servers, session.tools, session.search("power")):
            monkeypatch.setattr(sys, "stdout", terminal := Terminal())
            show(value)
            monkeypatch.setattr(sys, "stdout", plain := io.StringIO())
            show(value)
            text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
            assert max(map(len, text.splitlines())) <= columns
            # The title of the first column is left out where rows are paragraphs.
            words = {
                word
                for word in plain.getvalue().split()
                if len(word) < columns / 2 and re.search(r"\w", word)
            }
            assert words - set(text.split()) <= {"Server", "Tool"}


def test_empty_columns_take_no_room_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    show(View("view", "Checks", (Table((Column("Check"), Column("Remedy")), (("Python", ""),)),)))
    assert "Check" in terminal.getvalue()
    assert "Remedy" not in terminal.getvalue()


@pytest.mark.parametrize(
    "words", [["toolsets", "nope"], ["tool"], ["search", "x", "--limit", "0"], ["nope"]]
)
def test_a_wrong_command_line_names_the_help_that_explains_it(words: list[str], run: Run) -> None:
    code, out, err = run(*words)
    assert (code, out) == (WRONG_USAGE, "")
    assert err.count("\n") == 1
    command = words[:1] if words[0] != "nope" else []
    assert err.endswith(f"See: {' '.join(['casual-mcp-nb', *command, '--help'])}\n")
    assert not re.search(r"Token|\[|None", err)
