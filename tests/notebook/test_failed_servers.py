"""The card and the doctor's report of servers that failed, or that only wrote to stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kit.raw_server import raw_config

from casual_mcp_nb import Session

NPM = """npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/no-such-server - Not found
npm error 404
npm error 404  The requested resource 'no-such-server@*' could not be found
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/2026-11-21T21_23_01_000Z-debug-0.log
"""
OLDER_NPM = NPM.replace("npm error", "npm ERR!")
NODE = """node:internal/modules/cjs/loader:1386
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1383:15)
    at node:internal/main/run_main_module:33:47 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
PYTHON = """Traceback (most recent call last):
  File "/srv/server.py", line 3, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'
"""


def failed(stderr: str) -> Session:
    return Session(
        {"mcpServers": {"broken": raw_config(stderr=stderr, exit=1, config={"init_timeout": 60.0})}}
    )


@pytest.mark.defect("D9")
@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        pytest.param(NPM, "Not Found - GET https://registry.npmjs.org/no-such-server", id="npm"),
        pytest.param(
            OLDER_NPM, "Not Found - GET https://registry.npmjs.org/no-such-server", id="older npm"
        ),
        pytest.param(NODE, "Error: Cannot find module '/srv/index.js'", id="node"),
        pytest.param(PYTHON, "ModuleNotFoundError: No module named 'nothing'", id="python"),
        pytest.param("starting\nMY_TOKEN is not set\n", "MY_TOKEN is not set", id="other"),
        pytest.param(
            "npm notice\nnpm notice New major version of npm available!\n", "", id="only noise"
        ),
    ],
)
def test_doctor_quotes_the_line_of_stderr_that_says_why(stderr: str, line: str) -> None:
    with failed(stderr) as session:
        finding = next(each for each in session.servers.doctor() if each.name == "broken")
        said = finding.found.partition("on its stderr: ")[2]
        assert said.startswith(line)
        assert bool(said) == bool(line)


@pytest.mark.parametrize(
    ("stderr", "times"),
    [
        pytest.param("MY_TOKEN is not set\n", 1, id="short"),
        # The title cuts a long line, and the whole one is below it.
        pytest.param(f"MY_TOKEN is not set {'x' * 200}\n", 2, id="long"),
        pytest.param("reading .env\nMY_TOKEN is not set\n", 2, id="more on stderr"),
    ],
)
def test_a_list_of_servers_says_why_one_failed_once(stderr: str, times: int) -> None:
    with failed(stderr) as session:
        assert str(session.servers.now).count("MY_TOKEN is not set") == times


@pytest.mark.defect("C9")
def test_the_card_of_a_ready_server_that_wrote_to_stderr_names_no_missing_reason() -> None:
    with Session({"mcpServers": {"chatty": raw_config(stderr="listening\n")}}) as session:
        card = session.servers["chatty"]
        assert card.state == "ready"
        assert "listening" in card.stderr_tail
        for text in (repr(card), card._repr_html_()):
            assert "listening" in text
            assert "No reason" not in text


@pytest.mark.defect("D9")
def test_a_whole_command_line_in_command_is_told_where_its_words_belong() -> None:
    with Session(
        {"mcpServers": {"line": {"command": f"{sys.executable} -m", "args": ["nothing"]}}}
    ) as session:
        error = session.servers["line"].error or ""
        assert repr(sys.executable) in error
        assert "args" in error


def test_a_command_with_a_space_in_its_name_that_exists_is_started(tmp_path: Path) -> None:
    program = tmp_path / "my python"
    program.symlink_to(sys.executable)
    config: dict[str, Any] = raw_config()
    with Session({"mcpServers": {"spaced": config | {"command": str(program)}}}) as session:
        assert session.servers["spaced"].state == "ready"
