"""A conversation as a notebook: it runs again without a model, and nothing foreign in it is code."""

from __future__ import annotations

import ast
import html
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pydantic_monty  # noqa: F401  # The import would hold the event loop.
import pytest
from kit.kernel import started_kernel
from kit.raw_server import raw_config
from markdown_it import MarkdownIt

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.discovery.signatures import value_of_call
from casual_mcp_nb.display.render import prose_html, prose_markdown
from casual_mcp_nb.errors import TrustRequiredError
from casual_mcp_nb.providers.scripted import call, scripted_model

MATH = {"bundled": "math", "transport": "in-process"}
TEXT = {"bundled": "text", "transport": "in-process", "approval": "never"}
PASSING = {"servers": {"math": MATH, "text": TEXT}, "tool_results": {"max_tokens": 200}}
DRAW = call("math__random_numbers", count=900, seed=7)
NUMBERS = {"$result": ..., "path": "numbers"}
HOSTILE = (
    "<img src=x onerror=go()> ![x](http://evil.example/a.png) [y](javascript:go()) $\\href{x}{y}$\n"
    "```\n%%bash\n```\n"
    "`$`$``` ![z](http://evil.example/b.png) `` c ```\n\n1. one\n2. two\n\n| a | b |\n|--|--|\n|`x`|*y*|"
)
ALLOWED = (
    ast.Module,
    ast.ImportFrom,
    ast.alias,
    ast.Assign,
    ast.Expr,
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Constant,
    ast.Dict,
    ast.List,
    ast.Tuple,
)
NAMES = {"Session", "load_config", "config", "added", "session"}


def cells_of(path: Path, kind: str = "code") -> list[Any]:
    notebook: Any = nbformat.read(path, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tree = ast.parse(cell.source)
            for node in ast.walk(tree):
                assert isinstance(node, ALLOWED), ast.dump(node)
                if isinstance(node, ast.Name) and node.id not in NAMES:
                    assert node.id.rstrip("_0123456789").endswith(("result", "call"))
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def variables_in(cells: list[Any]) -> list[str]:
    names: list[str] = []
    for cell in cells:
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names.append(node.targets[0].id)
    return [name for name in names if "result" in name]


def passing(tool: str, handles: int = -1, **arguments: Any) -> Any:
    """An answer that passes a result: each `...` in the arguments becomes its handle."""

    def answer(messages: Any, _tools: Any) -> Any:
        kept = [handle for each in messages for handle in getattr(each, "handles", ())]
        text = json.dumps(arguments, default=lambda _: kept[handles])
        return call(tool, **json.loads(text))

    return answer


def value(session: Session, made: ToolCall) -> Any:
    if made.large is not None:
        return made.part()
    return json.loads(json.dumps(value_of_call(session.tools[str(made.tool)], made)))


def test_it_runs_in_a_fresh_kernel_without_a_model_and_gives_the_same_values(
    tmp_path: Path,
) -> None:
    config = {
        "servers": {
            "math": {**MATH, "approval": {"divide": "always"}},
            "my-time": {"bundled": "time", "transport": "in-process"},
            "text": TEXT,
        },
        "tool_results": {"max_tokens": 200},
    }
    program = "total = 0\nfor each in range(2):\n    total = math__add(a=total, b=5)\ntotal"
    asked = {
        "time": "2026-03-01 14:30",
        "from_timezone": "Europe/Oslo",
        "to_timezone": "Asia/Tokyo",
    }
    with Session.from_config(config) as session:
        session.chat(
            f"Add. {HOSTILE}",
            model=scripted_model(
                call("math__add", a=1, b=2),
                [call("math__add", a=3, b=4), call("math__divide", a=1, b=2)],
                call("my-time__convert_time", **asked),
                call("math__add", a="no number"),
                HOSTILE,
            ),
        )
        session.selection.delivery = "code"
        session.chat("Loop.", model=scripted_model(call("run_code", code=program), "Done."))
        session.selection.delivery = "definitions"
        session.chat(
            "Pass.",
            model=scripted_model(
                DRAW,
                passing(
                    "math__describe_numbers", numbers={"$result": ..., "path": "numbers[2:99]"}
                ),
                passing("text__hash_text", text={"$result": ...}),
                passing("text__query_json", text=NUMBERS, path="[1]"),
                "Done.",
            ),
        )
        path = session.export(tmp_path / "chat.ipynb")
        first, second, third = session.turns
        recorded = [made for made in first.tool_calls if made.status == "ok"]
        recorded += [*second.tool_calls[0].nested, *third.tool_calls]
        expected = [value(session, made) for made in recorded]
    assert [made.status for made in first.tool_calls] == ["ok", "ok", "denied", "ok", "error"]
    cells = cells_of(path)
    names = variables_in(cells)
    assert names == [
        "add_result",
        "add_result_2",
        "convert_time_result",
        "add_result_3",
        "add_result_4",
        "random_numbers_result",
        "describe_numbers_result",
        "hash_text_result",
        "query_json_result",
    ]
    assert "session.tools.functions.math.add(a=3, b=4)" in cells[2].source
    assert 'session.tools.call(\n    "my-time:convert_time"' in cells[4].source
    assert all(line.startswith("#") for line in cells[3].source.splitlines())
    assert "not approved" in cells[3].source
    assert "math:divide" in cells[3].source
    assert cells[1].outputs[0]["data"]["text/plain"] == "3"
    # A program is shown, and only its calls are code.
    assert any(program in cell.source for cell in cells_of(path, "markdown"))
    assert "range" not in cells[6].source
    drawn, described, hashed, _ = [cell.source.splitlines() for cell in cells[7:]]
    assert drawn == [
        'random_numbers_call = session.tools.call("math:random_numbers", count=900, seed=7)',
        "random_numbers_result = random_numbers_call.part()",
        "random_numbers_result",
    ]
    assert 'describe_numbers(numbers=random_numbers_call.part("numbers[2:99]"))' in described[0]
    assert "hash_text(text=random_numbers_call.part(as_text=True))" in hashed[0]
    with started_kernel() as kernel:
        for cell in cells:
            kernel.printed(cell.source)
        found = kernel.printed(f"import json; print(json.dumps([{', '.join(names)}]))")
    assert json.loads(found) == expected


def test_nothing_that_a_server_or_a_model_said_is_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = 'x"); import os\n%%bash\nos.system("id") #'
    tools = [
        {"name": name, "description": bad, "inputSchema": {"type": "object"}}
        for name in ("import", bad, "ﬁ", "session", "plain")
    ]
    result = {"content": [{"type": "text", "text": f"{bad}\r{bad}"}], "isError": True}
    plan = raw_config(tools=tools, calls={each["name"]: {"result": result} for each in tools})
    with Session.from_config({"servers": {"s": plan}}) as session:
        session.connect(quiet=True)
        calls = [
            call(tool.wire_name, **{bad: [bad, float("1e400"), None], "from": bad, "a": True})
            for tool in session.tools
        ]
        session.chat(bad, model=scripted_model(calls, bad))
        path = session.export(tmp_path / 'a"; import os\n.ipynb')
        assert len(session.turns[0].tool_calls) == 5
    for cell in cells_of(path)[1:]:
        assert all(line.startswith("#") for line in cell.source.splitlines()), cell.source
    opening = cells_of(path)[0].source
    monkeypatch.delenv("MCP_TRUST_CONFIGS")
    with pytest.raises(TrustRequiredError):
        exec(opening, {})


def test_names_that_are_no_identifiers_are_called_by_their_name(tmp_path: Path) -> None:
    bad = 'x"); import os\n%%bash'
    names = ("import", bad, "ﬁ", "session", "list")
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    result = {"content": [{"type": "text", "text": bad}]}
    plan = raw_config(tools=tools, calls={each["name"]: {"result": result} for each in tools})
    with Session.from_config({"servers": {"s": plan}}) as session:
        session.connect(quiet=True)
        calls = [call(tool.wire_name, **{bad: bad, "from": 1}) for tool in session.tools]
        session.chat("Go", model=scripted_model(calls, "Done."))
        path = session.export(tmp_path / "chat.ipynb")
    cells = cells_of(path)[1:]
    assert len(cells) == 5
    assert [cell.source.count("session.tools.call(") for cell in cells] == [1, 1, 1, 0, 0]
    assert variables_in(cells)[-2:] == ["session_result", "list_result"]


def test_secrets_and_what_is_gone_are_not_called(tmp_path: Path) -> None:
    secret = "sk-proj-aB3dE5fG7hI9jK1lM3nO5pQ7"
    config = {
        "servers": {"math": MATH, "s": raw_config(calls={"log_in": {"result": {"content": []}}})},
        "clients": {"lab": {"provider": "openai", "api_key": secret}},
    }
    with Session.from_config(config) as session:

        @session.tool
        def double(a: int) -> int:
            """Double it."""
            return 2 * a

        session.tools.mock({"math:subtract": 7})
        session.chat(
            f"My key is {secret}",
            model=scripted_model(
                call("s__log_in", key=secret),
                call("notebook__double", a=2),
                call("math__subtract", a=9, b=1),
                f"It is {secret}",
            ),
        )
        assert {made.status for made in session.turns[0].tool_calls} == {"ok"}
        path = session.export(tmp_path / "chat.ipynb")
    assert secret not in path.read_text(encoding="utf-8")
    cells = cells_of(path)
    assert "models is not here" in cells[0].source
    for cell in cells[1:]:
        assert not ast.parse(cell.source).body


def test_a_key_of_a_server_in_a_path_is_no_code(tmp_path: Path) -> None:
    key = 'x"); session.hacked = True #\u202e'
    given = json.dumps({key: [{"n": n} for n in range(900)]})
    with Session.from_config(PASSING) as session:
        numbers = {"$result": ..., "path": f"value['{key}'][*].n"}
        whole = {"$result": ..., "path": "value"}
        session.chat(
            "Go",
            model=scripted_model(
                call("text__query_json", text=given),
                passing("math__describe_numbers", numbers=numbers),
                passing("text__query_json", text=whole, path="*[5].n"),
                "Done.",
            ),
        )
        path = session.export(tmp_path / "chat.ipynb")
        expected = [value(session, made) for made in session.turns[0].tool_calls]
    cells = cells_of(path)
    made: dict[str, Any] = {}
    for cell in cells:
        exec(cell.source, made)
    with made["session"] as again:
        assert not hasattr(again, "hacked")
    assert [made[name] for name in variables_in(cells)] == expected
    assert expected[2]["value"] == [5]


def test_a_result_that_is_not_in_the_notebook_is_not_passed(tmp_path: Path) -> None:
    with Session.from_config(PASSING) as session:
        session.tools.mock({"math:random_numbers": {"numbers": list(range(900))}})
        describe = passing("math__describe_numbers", numbers=NUMBERS)
        # A program gets what it writes.
        program = f"text__query_json(text={json.dumps(json.dumps({'$result': 'r_0123456789'}))})"
        session.chat("Draw.", model=scripted_model(DRAW, describe, "Done."))
        session.selection.delivery = "code"
        session.chat("Loop.", model=scripted_model(call("run_code", code=program), "Done."))
        assert session.turns[0].tool_calls[1].status == "ok"
        path = session.export(tmp_path / "chat.ipynb")
    _, _, described, queried = cells_of(path)
    assert not ast.parse(described.source).body
    assert "passes a large result" in described.source
    assert variables_in([queried]) == ["query_json_result"]
    assert "r_0123456789" in queried.source


def test_a_saved_conversation_has_its_own_session(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    file = tmp_path / "config.json"
    file.write_text(json.dumps(PASSING))
    with Session.from_config(file, store=store) as session:
        hashed = passing("text__hash_text", text={"$result": ...})
        add = call("math__add", a=1, b=2)
        session.chat("Add.", model=scripted_model(add, DRAW, hashed, "3"))
        id = session.conversations.id
    with Session.from_config({}, store=store) as other:
        cells = cells_of(other.export(tmp_path / "chat.ipynb", id))
        assert len(cells_of(other.export(tmp_path / "empty.ipynb"))) == 1
    assert str(file) in cells[0].source
    # The tool is not known in this session, so it has no function.
    assert cells[1].source.startswith('add_result = session.tools.call("math:add", a=1, b=2).value')
    # Its schema is in the request.
    assert "text=random_numbers_call.part(as_text=True)" in cells[3].source


@pytest.mark.parametrize(
    "text",
    [
        "A **b** and *c* and ~~d~~ with `e` and ``g ` h``.",
        "> quoted\n>\n> - a\n>   ```py\n>   x\n>\n>   y\n>   ```\n> - b\n\n---\n\n1. one\n2. two",
        "| a | b |\n|---|---|\n| `1` | **2** |",
        "- x\n\n  y\n- z",
        "5\\. not a list\n\\- nor this\n\\+ nor this",
    ],
)
def test_prose_keeps_its_structure(text: str) -> None:
    again = MarkdownIt("gfm-like", {"linkify": False}).render(prose_markdown(text))
    assert elements(again) == elements(prose_html(text))


def elements(page: str) -> list[str]:
    """The tags of a page but for those of headings, and its text."""
    found = re.findall(r"</?(?:p|ul|ol|li|pre|code|blockquote|hr|table|t[rhd]|em|s)\b", page)
    words = html.unescape(re.sub(r"<[^>]*>", " ", page)).split()
    return [*found, *words]


def test_hostile_prose_is_text() -> None:
    page = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(prose_markdown(HOSTILE))
    assert not any(tag in page for tag in ("<img", "<a ", "<script"))
    assert page.count("<table>") == page.count("<ol>") == 1
