"""Each door names actions possible there: no magic in a script or a shell, no Python in a shell,
neither over HTTP.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kit.namespaces import public_names

from casual_mcp_nb import Config, ModelFactory, Selection, doors
from casual_mcp_nb.base.status import Check
from casual_mcp_nb.cli.app import app, main
from casual_mcp_nb.doors import WAYS, Door, in_words_of
from casual_mcp_nb.errors import CasualMcpError, install
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.serve.turns import problem_of

pytestmark = pytest.mark.defect("L5")

PACKAGE = Path(doors.__file__).parent
MAGIC = re.compile(r"%%?mcp\b")
PYTHON = re.compile(r"\b[Ss]ession\.\w|\bSession\(|\b[a-z]\w*=(?:True|False|None|…|['\"\d])")
COMMAND = re.compile(r"casual-mcp-nb (?!migrate-config)|(?<!\w)--\w")
FOREIGN: dict[Door, list[re.Pattern[str]]] = {
    "notebook": [],
    "python": [MAGIC],
    "shell": [MAGIC, PYTHON],
    "http": [MAGIC, PYTHON, COMMAND],
}


@cache
def hints() -> dict[str, list[str]]:
    """Collect the arguments of `hint=`, and the advice of checks, by file; filled-in parts are a
    word.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        # The hints of magics are for notebooks only.
        if file.relative_to(PACKAGE).parts[0] not in ("magics", "doors.py"):
            found[str(file.relative_to(PACKAGE))] = list(
                hints_in(ast.parse(file.read_text(encoding="utf-8")))
            )
    return found


def hints_in(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of the hints in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "hint":
                    yield from texts_in(keyword.value)
            if getattr(node.func, "id", "") in ("Check", "StageCheck", "in_words_of"):
                yield from (text for argument in node.args for text in texts_in(argument))
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in (
            "hint",
            "advice",
            "others",
        ):
            yield from texts_in(node.value)


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression, those of its branches apart."""
    if isinstance(node, ast.IfExp):
        yield from (*texts_in(node.body), *texts_in(node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) else "word" for part in node.values
        )
    elif isinstance(node, ast.BinOp):
        yield "".join((*texts_in(node.left), *texts_in(node.right)))


@pytest.mark.parametrize("door", FOREIGN)
def test_a_hint_names_only_what_its_door_has(door: Door) -> None:
    every = [(file, hint) for file, texts in hints().items() for hint in texts]
    assert len(every) > 150
    wrong = []
    for file, hint in every:
        with doors.at(door):
            error, check = (
                CasualMcpError("It failed.", hint=hint),
                Check("Servers", "time", "fail", "failed", hint),
            )
        texts = [str(error), check.advice] if door != "http" else [problem_of(error).problem.detail]
        assert texts[0].startswith("It failed.")
        wrong += [
            (file, text) for text in texts for foreign in FOREIGN[door] if foreign.search(text)
        ]
    assert wrong == []


def test_a_client_of_http_reads_the_same_whatever_the_door_of_the_process() -> None:
    for texts in hints().values():
        for hint in texts:
            for door in ("notebook", "python", "shell"):
                with doors.at(door):
                    detail = problem_of(CasualMcpError("It failed.", hint=hint)).problem.detail
                assert not any(foreign.search(detail) for foreign in FOREIGN["http"])


def test_no_text_names_a_magic_unless_it_depends_on_the_door() -> None:
    beside = {}
    for file in hints():
        text = (PACKAGE / file).read_text(encoding="utf-8")
        tree = ast.parse(text)
        documented = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)
                      and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
        named = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)
                 and id(each) not in documented and MAGIC.search(each.value)]  # fmt: skip
        if named and not re.search(r"\bin_words_of\b|\b(?:Stage)?Check\(|hint=", text):
            beside[file] = named
    assert beside == {}


def test_what_the_table_names_is_there() -> None:
    for magic, python, command in WAYS:
        for name in re.findall(r"%mcp (\w+)", magic):
            assert name in COMMANDS
        for name in re.findall(r"[Ss]ession\.([\w.]+)", python):
            assert name in {
                *public_names(),
                *(f"selection.{field}" for field in Selection.model_fields),
            }
        for name in re.findall(r"casual-mcp-nb (\S+)", command):
            assert app[name] is not None


def test_words_are_those_of_the_door_and_what_cannot_be_followed_is_left_out() -> None:
    advice = "Turn it on. For this session: %mcp load time"
    assert in_words_of(advice, "notebook") == advice
    assert (
        in_words_of(advice, "python") == 'Turn it on. For this session: session.tools.load("time")'
    )
    assert in_words_of(advice, "shell") == in_words_of(advice, "http") == "Turn it on."
    assert (
        in_words_of("To see it: %mcp doctor math:add", "shell")
        == "To see it: casual-mcp-nb doctor --tool math:add"
    )


def test_a_package_is_installed_where_the_process_finds_it() -> None:
    with doors.at("notebook"):
        assert install("openai") == "Run: %pip install 'casual-mcp-nb[openai]'"
    for door in ("python", "shell", "http"):
        with doors.at(door):
            assert install("openai") == "Run: pip install 'casual-mcp-nb[openai]'"


def test_an_unknown_model_says_at_each_door_how_to_use_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, str] = {}
    for door in ("notebook", "python"):
        with doors.at(door), pytest.raises(CasualMcpError) as unknown:
            ModelFactory(Config()).get_model("nothing")
        told[door] = str(unknown.value)
        told["http"] = problem_of(unknown.value).problem.detail
    config = {
        "clients": {"desk": {"provider": "offline"}},
        "models": {"planner": {"client": "desk", "model": "offline"}},
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert (
        main(["chat", "Hello", "--config", str(tmp_path / "config.json"), "--model", "nothing"])
        != 0
    )
    told["shell"] = capsys.readouterr().err
    for door, patterns in FOREIGN.items():
        assert "nothing" in told[door]
        assert not any(foreign.search(told[door]) for foreign in patterns), door
    assert [
        bool(MAGIC.search(told["notebook"])),
        bool(PYTHON.search(told["python"])),
        bool(COMMAND.search(told["shell"])),
    ] == [
        True,
        True,
        True,
    ]


def test_a_script_has_the_words_of_python_and_a_notebook_those_of_its_magics() -> None:
    code = (
        "from casual_mcp_nb import Config, ModelFactory, load_ipython_extension,"
        " unload_ipython_extension\nfrom IPython.core.interactiveshell import InteractiveShell\ndef"
        " told():\n    try: ModelFactory(Config()).get_model('nothing')\n    except Exception as"
        " error: print('%mcp' in str(error))\nshell = InteractiveShell.instance()\ntold();"
        " load_ipython_extension(shell); told(); unload_ipython_extension(shell); told()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True", "False"]
