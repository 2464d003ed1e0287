"""Rules of the whole package."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.namespaces import docs_hooks, namespaces, public_names_of
from kit.scripts import run_script

import casual_mcp_nb

ROOT = Path(__file__).resolve().parents[2]

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_engine_imports_and_works_with_ipython_blocked() -> None:
    code = (
        BLOCK.format(blocked={"IPython", "ipywidgets", "traitlets", "anthropic", "openai"})
        + "import asyncio\nfrom casual_mcp_nb import McpToolChat\nasync def main():\n    config ="
        " {'clients': {'o': {'provider': 'offline'}}, 'models': {'p': {'client': 'o', 'model':"
        " 'p'}},\n              'servers': {'math': {'bundled': 'math', 'transport':"
        " 'in-process'}}}\n    async with McpToolChat.from_config(config) as chat:\n       "
        " print((await chat.chat('What is 2 + 3?'))[-1].content)\nasyncio.run(main())\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "5" in done.stdout


def test_importing_the_package_imports_nothing_heavy() -> None:
    done = run(
        "import sys, casual_mcp_nb; print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = set(ast.literal_eval(done.stdout))
    assert not loaded & {
        "pydantic",
        "fastmcp",
        "mcp",
        "casual_llm",
        "jinja2",
        "numpy",
        "IPython",
        "asyncio",
    }


def test_loading_the_extension_imports_no_engine_and_says_nothing() -> None:
    done = run(
        "import sys\nfrom IPython.testing.globalipapp import start_ipython\nshell ="
        " start_ipython()\nbefore = set(sys.modules)\nshell.run_line_magic('load_ext',"
        " 'casual_mcp_nb')\nprint(sorted(name for name in set(sys.modules) - before if not"
        " name.startswith(('casual_mcp_nb', 'IPython'))))\n"
    )
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stderr
    assert len(done.stdout.strip().splitlines()) == 1


def test_every_public_name_is_there_and_documented() -> None:
    for name in casual_mcp_nb.__all__:
        assert getattr(casual_mcp_nb, name).__doc__, name
    assert set(casual_mcp_nb.__all__) <= set(dir(casual_mcp_nb))
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        casual_mcp_nb.Sesion  # noqa: B018


def test_a_type_checker_reads_the_public_names_that_there_are() -> None:
    stub = ast.parse((ROOT / "casual_mcp_nb" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [
        (node.module, alias)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    public = {alias.asname: (module, alias.name) for module, alias in imports if alias.asname}
    assert list(public) == [name for _, name in public.values()]
    assert sorted(public) == casual_mcp_nb.__all__
    for name, (module, _) in public.items():
        assert getattr(importlib.import_module(module), name) is getattr(casual_mcp_nb, name)
    functions = [node for node in stub.body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in functions] == [
        "load_ipython_extension",
        "unload_ipython_extension",
    ]
    for function in functions:
        assert list(inspect.signature(getattr(casual_mcp_nb, function.name)).parameters) == [
            arg.arg for arg in function.args.args
        ]


def test_a_star_import_brings_every_public_name_and_what_it_brings_is_pickled() -> None:
    code = (
        "import pickle\nfrom casual_mcp_nb import *\nimport casual_mcp_nb\nassert"
        " all(globals()[name] is getattr(casual_mcp_nb, name) for name in"
        " casual_mcp_nb.__all__)\nassert pickle.loads(pickle.dumps(Session)) is Session\nassert"
        " pickle.loads(pickle.dumps(ToolName('math', 'add'))) == ToolName('math', 'add')\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


CELLS = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for place, cell, shown in json.load(sys.stdin):
    print("#", place)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed if shown else sys.stdout):
        shell.run_cell(cell).raise_error()
    if shown:
        found = [line.rstrip() for line in printed.getvalue().strip().splitlines()]
        assert found == shown.strip().splitlines(), chr(10).join(found)
"""


CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """The README, the page on additions, and the guides."""
    return [ROOT / "README.md", ROOT / "docs" / "adding.md", *guides()]


def guides() -> list[Path]:
    return sorted((ROOT / "docs" / "guides").glob("*.md"))


def cells(page: Path) -> list[tuple[str, str, str]]:
    """The examples of a page that are Python, or cells of a notebook, each with its place and with
    the output that the page shows for it, if any.
    """
    text = page.read_text(encoding="utf-8")
    cell = r"^```(?:python|ipython)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    return [
        (
            f"{page.name}, line {text.count(chr(10), 0, block.start()) + 1}",
            block[1],
            block[2] or "",
        )
        for block in re.finditer(cell, text, re.DOTALL | re.MULTILINE)
    ]


MOST_GUIDES = 24


def test_each_guide_opens_with_a_sentence_and_a_cell_with_its_output_or_a_picture() -> None:
    assert len(guides()) <= MOST_GUIDES
    for guide in guides():
        title, sentence, rest = guide.read_text(encoding="utf-8").split("\n\n", 2)
        assert title.startswith("# "), guide.name
        assert re.fullmatch(r"[^#|!].*[.:]", sentence, re.DOTALL), guide.name
        assert len(re.findall(r"[.?!](?=\s|$)", sentence)) == 1, (guide.name, sentence)
        shown = (
            r"!\[",
            r"```console\n\$ [^\n]*\n[^$]",
            r"```i?python\n.*?^```\n\n(?:```text|!\[)",
        )
        assert any(re.match(each, rest, re.DOTALL | re.MULTILINE) for each in shown), guide.name


def test_each_guide_is_in_the_menu_of_the_site_from_which_llms_txt_is_made() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- .*: (guides/[\w-]+\.md)$", menu, re.MULTILINE)
    assert sorted(listed) == [f"guides/{guide.name}" for guide in guides()]


def anchors(page: Path) -> set[str]:
    """The addresses that GitHub gives to the headings of a page."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_link_from_a_page_to_a_file_works_on_github() -> None:
    dead = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        for link in re.findall(r"\]\(([^)\s:]+)\)", text):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (
                target.suffix == ".md" and anchor and anchor not in anchors(target)
            ):
                dead.append((str(page.relative_to(ROOT)), link))
    assert dead == []


def test_the_saving_in_the_readme_is_the_first_lessons() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lesson = (ROOT / "notebooks" / "01_quickstart.ipynb").read_text(encoding="utf-8")
    told = re.findall(r"(\d+)% in the first lesson", readme)
    ((sent, undeferred),) = re.findall(
        r"≈ ([\d,]+) tokens in; with every tool loaded: ≈ ([\d,]+)", lesson
    )
    saved = 1 - int(sent.replace(",", "")) / int(undeferred.replace(",", ""))
    assert told == [f"{saved:.0%}".removesuffix("%")]


NEEDED = {"tool-functions.md": "pydantic_monty"}
"""The optional module that the examples of a page need."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page", [page for page in pages() if cells(page)], ids=lambda page: page.name
)
def test_the_examples_of_each_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name], reason="an extra brings it")
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environ |= {"IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(ROOT)}
    done = run_script(CELLS, stdin=json.dumps(cells(page)), cwd=tmp_path, env=environ)
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr}"


def test_the_reference_has_every_public_name_once() -> None:
    listed = re.findall(
        r"^::: casual_mcp_nb\.(\w+)$", "\n".join(docs_hooks().reference().values()), re.MULTILINE
    )
    assert sorted(listed) == casual_mcp_nb.__all__


def test_the_reference_has_every_method_of_a_session() -> None:
    griffe = pytest.importorskip("griffe", reason="the dependency group docs brings it")
    extensions = griffe.load_extensions(str(ROOT / "docs" / "griffe_methods.py"))
    package = griffe.load("casual_mcp_nb", extensions=extensions, search_paths=[ROOT])
    pages = "\n".join(docs_hooks().reference().values())
    for kind in (casual_mcp_nb.Session, *namespaces().values()):
        path = f"{kind.__module__}.{kind.__name__}"
        assert kind is casual_mcp_nb.Session or f"::: {path}" in pages
        shown = {
            name
            for name, member in package[path.removeprefix("casual_mcp_nb.")].all_members.items()
            if member.docstring
        }
        assert set(public_names_of(kind)) <= shown


MOST_NAMES = 39
"""How many public names a session may have, without the awaited forms; with them it has 47."""


def test_a_session_is_a_table_of_contents() -> None:
    assert (
        len(
            [name for name in public_names_of(casual_mcp_nb.Session) if not name.endswith("_async")]
        )
        <= MOST_NAMES
    )


def test_the_config_of_the_readme_loads() -> None:
    (block,) = re.findall(
        r"```json\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    config = casual_mcp_nb.load_config(json.loads(block), environ={"NOTES_TOKEN": "a-token"})
    assert list(config.servers) == ["math", "docs", "notes"]


def test_no_file_names_a_path_of_one_machine() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name] or [ROOT / "README.md"]
    texts = {
        path: path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()
    }
    pattern = re.compile(r"(?<![\w.:])/(?:work|root)/")
    assert [
        str(path.relative_to(ROOT)) for path, text in texts.items() if pattern.search(text)
    ] == []


MAX_WAY = 24
"""How many functions a tool call may pass. It was 18 when this was written: there is room for plain
code, not for a layer in each room.
"""
MAX_NAMES = 47


def test_a_tool_call_takes_a_short_way_and_a_session_has_no_more_names() -> None:
    spec = importlib.util.spec_from_file_location("docs_rooms", ROOT / "docs" / "rooms.py")
    assert spec is not None
    assert spec.loader is not None
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    seen = rooms.measured()
    assert {"Session.chat", "Run.run_steps", "ServerManager.call"} <= set(seen["way"])
    assert len(seen["way"]) <= MAX_WAY, seen["way"]
    assert len(seen["names"]) <= MAX_NAMES
