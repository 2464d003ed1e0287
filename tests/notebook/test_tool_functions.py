"""Tools as typed functions: signatures, values, errors, and stub files that mypy reads."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool, ToolResult

from casual_mcp_nb import Session
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.signatures import (
    TypeWriter,
    identifier,
    learned_schema,
    named,
    signature_of,
)
from casual_mcp_nb.errors import ToolArgumentsError, ToolCallError, UsageError
from casual_mcp_nb.notebook.functions import stub_of


@dataclass
class Parcel:
    id: int
    where: list[str]


BOXES = {
    "type": "object",
    "properties": {"self": {"type": "string"}, "from-box": {"type": "integer"}},
    "required": ["self"],
}


class Boxes(Tool):
    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(json.dumps(arguments))


def post_office() -> FastMCP:
    office = FastMCP("post")

    @office.tool
    def send(
        to: str, kind: Literal["letter", "parcel"] = "letter", weight: float | None = None
    ) -> Parcel:
        """Send something to somebody."""
        return Parcel(7, [to, kind, str(weight)])

    @office.tool(name="count-stamps")
    def count_stamps(colour: str = "red") -> int:
        """Count the stamps."""
        return len(colour)

    @office.tool(output_schema=None)
    def look_up(number: int) -> Any:
        return {"number": number, "note": None} if number else {"number": 0, "lost": True}

    @office.tool(output_schema=None)
    def tools(words: str = "a, b\nc, d") -> str:
        """Say something."""
        return words

    @office.tool
    def burn(letter: str) -> str:
        raise ToolError(f"No fire for {letter}")

    office.add_tool(Boxes(name="list", parameters=BOXES, output_schema=None))
    return office


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(
        {"servers": {}}, in_process={"post": post_office(), "call": FastMCP("call")}
    ) as session:
        session.connect()
        yield session


def test_a_tool_is_a_function_with_the_types_of_its_schema(session: Session) -> None:
    send = session.tools.post.send
    signature = inspect.signature(send)
    assert {each.kind for each in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert (
        str(signature)
        == "(*, to: str, kind: Literal['letter', 'parcel'] = 'letter', weight: float | None = None)"
        " -> SendResult"
    )
    assert (send.__name__, send.__doc__) == ("send", "Send something to somebody.")
    assert (
        str(inspect.signature(session.tools.post.count_stamps)) == "(*, colour: str = 'red') -> int"
    )


def test_its_value_is_what_the_tool_returned_and_the_call_is_recorded(session: Session) -> None:
    assert session.tools.post.send(to="Ada", kind="parcel") == {
        "id": 7,
        "where": ["Ada", "parcel", "None"],
    }
    assert session.tools.post.count_stamps(colour="blue") == 4
    assert session.tools.post.look_up(number=3) == {"number": 3, "note": None}
    calls = [
        (str(each.call.tool), each.call.arguments, each.call.status) for each in session.tools.calls
    ]
    assert calls == [
        ("post:look_up", {"number": 3}, "ok"),
        ("post:count-stamps", {"colour": "blue"}, "ok"),
        ("post:send", {"to": "Ada", "kind": "parcel"}, "ok"),
    ]
    assert [record.caller for record in session.consent.audit] == ["person"] * 3


async def test_each_function_has_a_twin_to_await(session: Session) -> None:
    sent, stamps = await asyncio.gather(
        session.tools.post.send_async(to="Ada"), session.tools.post.count_stamps_async()
    )
    assert (sent["id"], stamps) == (7, 3)
    assert inspect.iscoroutinefunction(session.tools.post.send_async)


def test_parameters_can_be_named_as_the_tool_or_as_python_names_them(session: Session) -> None:
    both = {"self": "a", "from-box": 2}
    assert session.tools.post.list(self="a", from_box=2) == both
    assert session.tools.post.list(**both) == both


@pytest.mark.parametrize(
    ("arguments", "named_in_message"),
    [
        ({"too": "Ada"}, "'to'"),
        ({"kind": "letter"}, "to"),
        ({}, "to"),
        ({"to": "Ada", "weigth": 2}, "'weight'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    session: Session, arguments: dict[str, Any], named_in_message: str
) -> None:
    with pytest.raises(ToolArgumentsError, match=r"session\.tools\.post\.send") as raised:
        session.tools.post.send(**arguments)
    assert named_in_message in str(raised.value)
    assert isinstance(raised.value, TypeError)
    with pytest.raises(ToolArgumentsError):
        session.tools.post.send("Ada")
    assert len(session.tools.calls) == 0


def test_a_text_stays_one_and_no_name_of_a_tool_or_server_is_taken() -> None:
    servers = {name: post_office() for name in ("stub", "server", "tools", "functions")}
    with Session.from_config({"servers": {}}, in_process=servers) as session:
        session.connect()
        assert session.tools.functions.stub.tools() == "a, b\nc, d"
        assert session.tools.functions.functions.count_stamps() == 3
        assert [name for name in dir(session.tools.functions) if name in servers] == sorted(servers)


def test_an_error_of_the_tool_is_raised_with_its_words(session: Session) -> None:
    with pytest.raises(ToolCallError, match="No fire for Ada") as raised:
        session.tools.post.burn(letter="Ada")
    assert (raised.value.server, raised.value.tool) == ("post", "post__burn")


def test_completion_knows_servers_and_tools_and_a_wrong_name_finds_the_right_one(
    session: Session,
) -> None:
    assert "post" in dir(session.tools)
    assert {"send", "send_async", "count_stamps"} <= set(dir(session.tools.post))
    for wrong, right in (("pots", "post"), ("cal", "call")):
        with pytest.raises(AttributeError, match=right):
            getattr(session.tools, wrong)
    # IPython looks for private names before it shows anything.
    assert not any(
        hasattr(part, "_repr_of_nobody_") for part in (session.tools, session.tools.functions)
    )
    with pytest.raises(AttributeError, match="count_stamps"):
        _ = session.tools.post.count_stamp
    # A method of `session.tools` keeps its name; the server of that name is here.
    assert session.tools.call.__name__ == "call"
    assert "'call'" in repr(session.tools.functions.call)
    assert "send(*, to: str" in repr(session.tools.post)


def test_the_type_of_a_result_without_schema_is_learned_from_calls(session: Session) -> None:
    assert "-> Any" in str(inspect.signature(session.tools.post.look_up))
    session.tools.post.look_up(number=3)
    session.tools.post.look_up(number=0)
    assert "-> LookUpResult" in str(inspect.signature(session.tools.post.look_up))
    assert (
        "class LookUpResult(TypedDict):\n    number: int\n    lost: NotRequired[bool]\n    note:"
        " NotRequired[None]" in (session.tools.functions._stub())
    )


PROGRAM = """
from tools import Tools

def work(tools: Tools) -> list[str]:
    parcel = tools.post.send(to="Ada", kind="parcel", weight=1)
    number: int = parcel["id"] + tools.post.count_stamps()
    return [*parcel["where"], str(tools.post.list(self="a", from_box=2))]

async def await_it(tools: Tools) -> int:
    return (await tools.post.send_async(to="Ada"))["id"]
"""
MISTAKES = {
    "tools.post.send(to=1)": "arg-type",
    'tools.post.send(to="Ada", kind="card")': "arg-type",
    'tools.post.send(kind="letter")': "call-arg",
    'tools.post.send("Ada")': "misc|call-arg",
    "tools.post.sendd()": "attr-defined",
    'tools.post.send(to="Ada")["when"]': "typeddict-item",
}


def checked(folder: Path, program: str) -> tuple[int, str]:
    (folder / "program.py").write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(folder / "cache"),
        "program.py",
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_mypy_passes_a_right_program_and_finds_each_mistake(
    session: Session, tmp_path: Path
) -> None:
    assert session.tools.stubs(tmp_path / "tools.pyi") == tmp_path / "tools.pyi"
    assert checked(tmp_path, PROGRAM)[0] == 0
    wrong = "".join(
        f"\ndef wrong_{n}(tools: Tools) -> None:\n    {code}\n" for n, code in enumerate(MISTAKES)
    )
    code, printed = checked(tmp_path, PROGRAM + wrong)
    errors = [line for line in printed.splitlines() if " error: " in line]
    assert code == 1
    assert len(errors) == len(MISTAKES)
    for error, kinds in zip(errors, MISTAKES.values(), strict=True):
        assert any(f"[{kind}]" in error for kind in kinds.split("|")), error
    with pytest.raises(UsageError):
        session.tools.stubs(tmp_path / "tools.pyi", overwrite=False)


EVIL = '"""\nimport os; os.abort()\n"""\\'
NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/N"}, "value": {"type": "integer"}},
    "required": ["value"],
}
HOSTILE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "self": {"type": "string"},
        "class": {"enum": [EVIL, 'a"', None, 1, True]},
        "a b": {"type": "array", "items": {"type": ["string", "null"]}},
        "a-b": {"type": "number", "default": EVIL},
        "__private": {"const": EVIL * 100},
        "tree": {"$ref": "#/$defs/N"},
        "fields": {
            "type": "object",
            "properties": {EVIL: {}, "__x": {"type": "object", "properties": {"y": {"type": 3}}}},
        },
        "wide": {"type": "object", "properties": {f"f{n}": {} for n in range(5_000)}},
        "none": {"anyOf": [{"type": "null"}, {"enum": [[], {}]}, {"$ref": "#/nowhere"}]},
    },
    "required": ["self", "tree", 3],
    "$defs": {"N": NODE},
}
NAMES = [
    "list",
    "str",
    "Any",
    "Literal",
    "__init__",
    "Evil",
    "get-user",
    "get_user",
    "get user",
    "\ud800x",
    "ﬁ",
    EVIL,
]
NAMES += ["class", "f", "f_async", "", "1x", "None", "typing", "Tools", "_typing", "x" * 5_000]


def test_hostile_names_texts_and_schemas_are_never_code(tmp_path: Path) -> None:
    specs = [
        ToolSpec(
            "evil", name, EVIL, HOSTILE, output_schema={"$ref": "#/$defs/N", "$defs": {"N": NODE}}
        )
        for name in NAMES
    ]
    assert all(str(signature_of(spec)) for spec in specs)
    text = stub_of(named({"evil": specs, "Evil": specs[:3], EVIL: []}), lambda _: None)
    (tmp_path / "tools.pyi").write_text(text)
    for statement in ast.parse(text).body[1:]:
        assert isinstance(statement, ast.ClassDef | ast.Import | ast.ImportFrom | ast.Assign), (
            ast.unparse(statement)[:200]
        )
    assert checked(tmp_path, "from tools import Tools\n")[1].startswith("Success")


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({}, "Any"),
        ({"type": "integer"}, "int"),
        ({"type": ["integer", "number", "null"]}, "float | None"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1, None]"),
        ({"enum": [str(n) for n in range(1_000)]}, "str"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "dict[str, float]"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "str | None"),
        ({"properties": {"a": {"type": "string"}}}, "Given"),
        ({"type": "nonsense"}, "Any"),
    ],
)
def test_a_schema_is_written_as_a_type(schema: dict[str, Any], written: str) -> None:
    assert TypeWriter().write(SchemaReader(schema), "Given") == written


def test_names_become_different_identifiers_and_keep_theirs_if_they_can() -> None:
    given = named({name: name for name in NAMES})
    assert len(given) == len(NAMES)
    assert all(name.isidentifier() and not name.startswith("_") for name in given)
    assert (given["get_user"], given["f_async"]) == ("get_user", "f_async")
    assert [identifier(name) for name in ("import", "get-user", "2nd")] == [
        "import_",
        "get_user",
        "n2nd",
    ]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (["a", None], "str | None"),
        ([1, 2.5], "float"),
        ([[1], ["a"]], "list[int | str]"),
        ([[]], "list[Any]"),
        ([object()], "Any"),
        ([{"a": 1}, {"a": 2, "b": "x"}], "R"),
    ],
)
def test_a_type_is_learned_from_values(values: list[Any], written: str) -> None:
    schema = learned_schema(values)
    assert schema is not None
    types = TypeWriter()
    assert types.write(schema, "R") == written
    if written == "R":
        assert types.dicts["R"] == "class R(TypedDict):\n    a: int\n    b: NotRequired[str]"
    assert learned_schema([]) is None


@pytest.mark.defect("N11")
@pytest.mark.parametrize("name", ["staticmethod", "str", "Any", "property", "_builtins"])
def test_a_stub_is_valid_whatever_a_tool_is_called(tmp_path: Path, name: str) -> None:
    server = FastMCP("odd")
    for each in ("before", name, "later"):
        server.tool(lambda text="": text, name=each, description="Says the text.")
    with Session({}, in_process={"odd": server}, store=None, quiet=True) as session:
        session.connect()
        stub = session.tools.stubs(tmp_path / "tools.pyi")
    # As a type checker reads it, and run, where a decorator that is a tool would raise.
    namespace: dict[str, Any] = {}
    exec(compile(stub.read_text(), str(stub), "exec"), namespace)
    kind = namespace["Odd"]
    assert all(isinstance(vars(kind)[each], staticmethod) for each in ("before", "later"))
