"""A person's own server, typed as in a shell: quoted or not, with `python`, and with what the
notebook knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kernel import Kernel, started_kernel

from casual_mcp_nb.config.quick import server_fields, unquoted
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.magics.args import expanded
from casual_mcp_nb.magics.commands import COMMANDS

LIBRARY = """
from fastmcp import FastMCP

library = FastMCP("library")


@library.tool
def find_book(title: str) -> str:
    "Find a book by its title."
    return f"{title} is on shelf 4."


if __name__ == "__main__":
    library.run(show_banner=False)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel in a folder with a server, where `python` and `python3` on PATH are others without
    packages.
    """
    folder = tmp_path_factory.mktemp("own")
    (folder / "library.py").write_text(LIBRARY)
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        other = folder / "bin" / name
        other.write_text(
            "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'fastmcp'\" >&2\nexit 1\n"
        )
        other.chmod(0o755)
    beside = os.path.dirname(sys.executable)
    others = [each for each in os.environ["PATH"].split(os.pathsep) if each != beside]
    path = os.pathsep.join([str(folder / "bin"), *others])
    with started_kernel(PATH=path) as kernel:
        assert (
            kernel.run(f"import os, sys\nos.chdir({str(folder)!r})\n%load_ext casual_mcp_nb").status
            == "ok"
        )
        kernel.run(f"import pathlib\nfolder = pathlib.Path({str(folder)!r})\nscript = 'library.py'")
        yield kernel


LINES = [
    "python library.py",
    pytest.param('"python3 library.py"', marks=pytest.mark.slow),
    pytest.param("'python library.py'", marks=pytest.mark.slow),
    pytest.param('"python3" library.py', marks=pytest.mark.slow),
    pytest.param("{sys.executable} library.py", marks=pytest.mark.slow),
    '"{sys.executable} {folder}/$script"',
    pytest.param("python3 $script", marks=pytest.mark.slow),
    "--model offline:planner python3 library.py",
    "library.py",
]


@pytest.mark.kernel
@pytest.mark.parametrize("line", LINES)
def test_a_line_that_a_newcomer_types_starts_the_server(kernel: Kernel, line: str) -> None:
    ran = kernel.run(f"%mcp connect {line}")
    assert ran.status == "ok", ran.text()
    state = "[(status.name, status.state, status.tools) for status in session.servers.values()]"
    assert kernel.printed(f"print({state})") == "[('library', 'ready', 1)]", ran.text()
    # What is shown is the interpreter that runs.
    assert (
        kernel.printed("print(session.parts.config.servers['library'].command == sys.executable)")
        == "True"
    )


@pytest.mark.kernel
@pytest.mark.parametrize(
    "line", ["--name books fastmcp run --no-banner library.py:library", "library.py --name books"]
)
def test_a_command_of_the_kernels_packages_is_found_and_the_server_named(
    kernel: Kernel, line: str
) -> None:
    ran = kernel.run(f"%mcp connect {line}")
    assert kernel.printed("print(session.servers['books'].state)") == "ready", ran.text()


@pytest.mark.kernel
@pytest.mark.parametrize("options", ["--trust", "--model offline:planner --trust"])
def test_the_file_of_another_host_is_asked_with_the_planner_or_a_model(
    kernel: Kernel, options: str
) -> None:
    kernel.run(
        "import json\nfile = {'mcpServers': {'books': {'command': sys.executable, 'args':"
        " ['library.py']}}}\n_ = pathlib.Path('claude.json').write_text(json.dumps(file))"
    )
    ran = kernel.run(f"%mcp connect claude.json {options}")
    assert ran.status == "ok", ran.text()
    assert (
        kernel.printed("print(len(session.chat('Find the book Emma', echo='none').steps))") != "0"
    )


@pytest.mark.kernel
@pytest.mark.parametrize("line", ["pyhton library.py", "books python library.py", "libary.py"])
def test_a_misspelt_server_is_not_added(kernel: Kernel, line: str) -> None:
    assert kernel.run("%mcp connect library.py").status == "ok"
    assert kernel.run(f"%mcp add {line}").status == "error"
    assert kernel.printed("print(list(session.servers))") == "['library']"


@pytest.mark.kernel
@pytest.mark.parametrize(
    "line", ['--name books "python3 library.py"', "--name books {sys.executable} library.py"]
)
def test_a_server_is_added_by_the_same_rule(kernel: Kernel, line: str) -> None:
    assert kernel.run("%mcp demo").status == "ok"
    assert kernel.run(f"%mcp add {line}").status == "ok"
    assert kernel.printed("print(session.servers['books'].state)") == "ready"


@pytest.mark.kernel
def test_what_cannot_be_filled_in_is_said_and_starts_nothing(kernel: Kernel) -> None:
    before = kernel.printed("print(id(session), list(session.servers))")
    ran = kernel.run("%mcp connect {nowhere.executable} library.py")
    assert ran.status == "error"
    assert "{nowhere.executable}" in ran.text()
    assert "NameError" in ran.text()
    assert kernel.printed("print(id(session), list(session.servers))") == before


@pytest.mark.kernel
@pytest.mark.parametrize("line", ["python libary.py", "libary.py", "pyhton library.py"])
def test_a_misspelt_file_or_command_leaves_the_session_open(kernel: Kernel, line: str) -> None:
    assert kernel.run("%mcp connect python library.py").status == "ok"
    before = kernel.printed("print(id(session), session.status.closed)")
    assert kernel.run(f"%mcp connect {line}").status == "error"
    assert kernel.printed("print(id(session), session.status.closed)") == before


@pytest.mark.kernel
def test_a_session_in_another_variable_is_named(kernel: Kernel) -> None:
    assert kernel.run("from casual_mcp_nb import Session\nmine = Session.quick()").status == "ok"
    kernel.run("kept = globals().pop('session', None)")
    ran = kernel.run("%mcp servers")
    kernel.run("session = kept")
    assert ran.status == "error"
    assert "session = mine" in ran.text()


@pytest.mark.kernel
def test_the_arguments_of_a_call_stay_as_they_are_typed(kernel: Kernel) -> None:
    assert kernel.run("%mcp connect python library.py").status == "ok"
    call = 'text = %mcp call find_book {"title": "{script} for $folder"}\nprint(str(text))'
    assert "{script} for $folder is on shelf 4." in kernel.run(call).text()


@pytest.mark.kernel
def test_the_doctor_compares_the_interpreters_of_a_config(kernel: Kernel) -> None:
    config = '{"servers": {"library": {"command": "python3", "args": ["library.py"]}}}'
    assert kernel.run(f"%%mcp_config books.json --overwrite\n{config}").status == "ok"
    checks = (
        "[(c.verdict, sys.executable in c.advice) for c in session.servers.doctor() if c.name =="
        " 'library']"
    )
    assert kernel.printed(f"print({checks})") == "[('fail', False), ('warn', True)]"


NAMESPACE = {"name": "value", "sys": sys, "rows": [1, 2]}


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ("{sys.executable} -m server", f"{sys.executable} -m server"),
        ("$name/{name} {rows[1]} {len(rows)}", f"value/value 2 {len('xx')}"),
        # What the config's own rules fill in, and what a shell's or a server's own text may be.
        ("TOKEN=${GITHUB_TOKEN} npx server $HOME", "TOKEN=${GITHUB_TOKEN} npx server $HOME"),
        (
            'npx server --config {"a": {"b": 1}} {} {1}',
            'npx server --config {"a": {"b": 1}} {} {1}',
        ),
        ("npx server {a,b} {{name}}", "npx server {a,b} {name}"),
    ],
)
def test_expressions_and_names_are_filled_in_and_json_stays(line: str, filled: str) -> None:
    assert expanded(line, {**NAMESPACE, "len": len}) == filled


@pytest.mark.parametrize("line", ["{missing}", "{sys.nothing}", "{rows[7]}"])
def test_what_cannot_be_evaluated_is_an_error(line: str) -> None:
    with pytest.raises(UsageError, match="cannot be filled in"):
        expanded(line, NAMESPACE)


def test_only_lines_without_json_and_a_persons_words_are_filled_in() -> None:
    verbatim = {name for name, command in COMMANDS.items() if not command.fills_in}
    assert verbatim >= {"call", "app", "ask", "plan", "search", "compare", "fork", "doctor", "find"}
    assert verbatim.isdisjoint(
        {
            "connect",
            "add",
            "export",
            "replay",
            "cassette",
            "evaluate",
            "read",
            "prompt",
            "skill",
            "audit",
        }
    )


FETCHED = {"init_timeout": 120}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            '"npx -y @scope/server-files ."',
            {"command": "npx", "args": ["-y", "@scope/server-files", "."], **FETCHED},
        ),
        ("'npx -y server'", {"command": "npx", "args": ["-y", "server"], **FETCHED}),
        ('"https://example.com/mcp"', {"url": "https://example.com/mcp"}),
        ('"bundled:files --root ."', {"bundled": "files", "args": ["--root", "."]}),
        ('"time"', {"bundled": "time", "args": []}),
        (
            '"TOKEN=x npx server"',
            {"command": "npx", "args": ["server"], "env": {"TOKEN": "x"}, **FETCHED},
        ),
        ("python3 server.py", {"command": sys.executable, "args": ["server.py"]}),
        (
            "PATH=/opt/bin python3 server.py",
            {"command": "python3", "args": ["server.py"], "env": {"PATH": "/opt/bin"}},
        ),
        ("server.py --root .", {"command": sys.executable, "args": ["server.py", "--root", "."]}),
        ("build/index.js", {"command": "node", "args": ["build/index.js"]}),
        ("python3.13 server.py", {"command": "python3.13", "args": ["server.py"]}),
        (
            'npx -y server "two words"',
            {"command": "npx", "args": ["-y", "server", "two words"], **FETCHED},
        ),
    ],
)
def test_quotes_around_the_whole_are_taken_off(text: str, fields: dict[str, Any]) -> None:
    assert server_fields(text)[1] == fields


def test_a_program_whose_path_has_a_space_stays_one_word(tmp_path: Path) -> None:
    program = tmp_path / "my server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = f'"{program}"'
    assert unquoted(text) == text
    assert server_fields(text)[1] == {"command": str(program), "args": []}
