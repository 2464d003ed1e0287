"""Secrets of the config in servers' results."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.raw_server import text_result

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.base.secret import MASK, redacted
from casual_mcp_nb.base.tool import ToolAnnotations, ToolSpec
from casual_mcp_nb.errors import ToolCallError, ToolTimeoutError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.redaction import Redactor
from casual_mcp_nb.servers.server_manager import ServerManager

SECRET = "planted-0123456789abcdef"

Opened = Callable[[Any], Any]
Raw = Callable[..., ServerConfig]


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("two\nlines", json.dumps("x two\nlines")),
        ('quo"ted\\', json.dumps('quo"ted\\')),
        ("schlüssel", json.dumps("schlüssel")),
        ("a/b/c+d=", "a\\/b\\/c+d="),
        ("a/b/c+d=", "https://host/?key=a%2Fb%2Fc%2Bd%3D"),
        ("from-a-file\n", "KEY=from-a-file;"),
    ],
)
def test_a_secret_is_masked_as_json_and_addresses_write_it(secret: str, text: str) -> None:
    assert MASK in redacted(text, [secret])
    assert redacted(text, ["abc"]) == text


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"a": [SECRET, 1, None]}, {"a": [MASK, 1, None]}),
        ({f"x {SECRET}": {"deep": [[f"{SECRET}!"]]}}, {f"x {MASK}": {"deep": [[f"{MASK}!"]]}}),
        ({"pin": 246810, "other": 2468, "yes": True}, {"pin": MASK, "other": 2468, "yes": True}),
        ({"half": "x\nabcdef", "whole": SECRET}, {"half": "x\nabcdef", "whole": MASK}),
        (SECRET, MASK),
        (None, None),
    ],
)
def test_structured_values_are_masked_with_their_keys_and_numbers(value: Any, hidden: Any) -> None:
    assert Redactor([SECRET, "246810", "nabcdef"]).value(value) == hidden


def test_values_without_secrets_are_unchanged() -> None:
    mask = Redactor([SECRET, "abc", "true"])
    value = {"abc": [True, 1.5, (1, 2)]}
    tool = ToolSpec("s", "abc", "true", value, output_schema=value)
    assert mask.value(value) is value
    assert mask.schema(value) is value
    assert mask.tool(tool) is tool
    result = ToolResult((ContentPart("image", "abc", data=b"\xff\xfe" + SECRET.encode()),), value)
    assert mask.result(result) == result
    assert Redactor().result(result) is result


def test_a_tool_is_masked_except_for_its_name_and_keys() -> None:
    schema = {
        "type": "object",
        "required": [SECRET],
        "properties": {
            SECRET: {
                "type": "string",
                "default": SECRET,
                "description": f"mostly {SECRET}",
                "enum": [SECRET],
            }
        },
    }
    tool = ToolSpec(
        "s",
        "search",
        SECRET,
        schema,
        annotations=ToolAnnotations(title=SECRET),
        output_schema=schema,
        title=SECRET,
    )
    hidden = Redactor([SECRET, "search", "object"]).tool(tool)
    assert (hidden.name, hidden.description, hidden.title) == ("search", MASK, MASK)
    assert hidden.annotations == ToolAnnotations(title=MASK)
    part = {"type": "string", "default": MASK, "description": f"mostly {MASK}", "enum": [MASK]}
    assert hidden.input_schema == hidden.output_schema == {**schema, "properties": {SECRET: part}}


RESULT = {
    "content": [
        {"type": "text", "text": f"the key is {SECRET}."},
        {
            "type": "resource",
            "resource": {"uri": f"file:///{SECRET}", "text": SECRET, "mimeType": f"text/{SECRET}"},
        },
        {
            "type": "resource",
            "resource": {"uri": "file:///b", "blob": base64.b64encode(SECRET.encode()).decode()},
        },
        {"type": "resource_link", "uri": f"https://host/?key={SECRET}", "name": SECRET},
        {"type": f"a{SECRET}"},
    ],
    "structuredContent": {SECRET: [SECRET]},
}


async def test_a_result_is_masked_in_all_its_parts(raw: Raw, opened: Opened) -> None:
    config = raw(calls={"tell": {"result": RESULT}}, config={"env": {"KEY": SECRET}})
    result = await opened(Connection("raw", config)).call("tell", {})
    assert SECRET not in repr([result, [part.data for part in result.content], result.structured])
    assert result.content[0].text == f"the key is {MASK}."
    assert result.content[1] == ContentPart("resource", MASK, f"text/{MASK}", uri=f"file:///{MASK}")
    assert result.content[2].data == MASK.encode()
    assert result.structured == {MASK: [MASK]}


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("API_KEY", "open-sesame", True),
        ("DB_PASS", "correct horse", True),
        ("WHERE", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", True),
        ("WHERE", "a8/Zq+3kd9f0+Jk2mQ8xYw==", True),
        ("TZ", "Europe/Oslo", False),
        ("RETRY_MS", "2026", False),
        ("DATA", "/home/user1/some/long/folder", False),
        ("SITE", "https://example.com/page1/more/of/it", False),
    ],
)
async def test_a_setting_in_a_servers_environment_is_not_masked_in_its_results(
    raw: Raw, opened: Opened, name: str, value: str, hidden: bool
) -> None:
    config = raw(
        calls={"tell": {"result": text_result(f"It is {value}.")}}, config={"env": {name: value}}
    )
    result = await opened(Connection("raw", config)).call("tell", {})
    assert result.content[0].text == f"It is {MASK if hidden else value}."


async def test_all_secrets_of_the_config_are_masked_in_any_servers_output(opened: Opened) -> None:
    server = FastMCP("notes", instructions=f"Log in with {SECRET}.", version=SECRET)

    @server.tool(description=f"Uses {SECRET}.")
    async def tell(ctx: Context, key: str = SECRET) -> dict[str, str]:
        await ctx.report_progress(1, 2, f"trying {SECRET}")
        await ctx.info(f"with {SECRET}")
        return {"key": key}

    logs: list[str] = []
    handlers = Handlers(log=lambda server, level, text: logs.append(text))
    server_manager = opened(
        ServerManager({}, in_process={"notes": server}, secrets=[SECRET], handlers=handlers)
    )
    await server_manager.connect()
    (tool,) = await server_manager.list_tools()
    seen: list[Any] = []
    result = await server_manager.call(
        tool, {"key": SECRET}, on_progress=lambda *progress: seen.append(progress)
    )
    status = server_manager.statuses["notes"]
    assert SECRET not in repr([result, tool, tool.definition, status, seen, logs])
    assert seen == [(1, 2, f"trying {MASK}")]
    assert logs == [f"with {MASK}"]
    assert (tool.description, status.instructions, result.structured) == (
        f"Uses {MASK}.",
        f"Log in with {MASK}.",
        {"key": MASK},
    )


async def test_a_form_of_a_server_is_masked(raw: Raw, opened: Opened) -> None:
    questions: list[ServerQuestion] = []

    async def elicitation(question: ServerQuestion) -> QuestionAnswer:
        questions.append(question)
        return QuestionAnswer("accept", {})

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "title": SECRET, "default": SECRET}},
    }
    params = {"message": f"Is it {SECRET}?", "requestedSchema": schema}
    plan = {"a": {"ask": "elicitation/create", "ask_params": params, "answer": "asked"}}
    connection = Connection(
        "raw", raw(calls=plan), handlers=Handlers(elicitation=elicitation), secrets=[SECRET]
    )
    await opened(connection).call("a", {})
    assert SECRET not in repr(questions)
    assert questions[0].message == f"Is it {MASK}?"


PADDING = "x" * 990
"""An error is cut after 1,000 characters: what is masked afterwards would leave the beginning of a
secret.
"""


@pytest.mark.parametrize("padding", ["", PADDING], ids=["whole", "at the cut"])
async def test_a_secret_in_an_error_is_masked_before_it_is_cut(
    raw: Raw, opened: Opened, padding: str
) -> None:
    error = {"code": -1, "message": f"{padding}{SECRET}"}
    config = raw(calls={"fail": {"error": error}}, config={"env": {"KEY": SECRET}})
    connection = opened(Connection("raw", config))
    with pytest.raises(ToolCallError) as caught:
        await connection.call("fail", {})
    assert "planted" not in str(caught.value)


async def test_a_secret_in_stray_output_is_masked_before_it_is_cut(
    raw: Raw, opened: Opened
) -> None:
    plan = {"noisy": {"stdout": f"{'x' * 190}{SECRET}\n"}}
    config = raw({"call_timeout": 0.3}, calls=plan)
    connection = opened(Connection("raw", config, secrets=[SECRET]))
    with pytest.raises(ToolTimeoutError) as caught:
        await connection.call("noisy", {})
    assert "planted" not in str(caught.value)
    link = connection._lifecycle.session
    assert link is not None
    assert "xxx" in link.stray_output
    assert "planted" not in link.stray_output


async def test_structured_content_that_breaks_its_schema_is_reported_without_the_secret(
    raw: Raw, opened: Opened
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools = [{"name": "tell", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    result = {**text_result("ok"), "structuredContent": {"a": "x" * 490 + SECRET}}
    config = raw(tools=tools, calls={"tell": {"result": result}}, config={"env": {"KEY": SECRET}})
    connection = opened(Connection("raw", config))
    await connection.connect()
    answer = await connection.call("tell", {})
    assert answer.is_error
    assert "output schema" in answer.content[-1].text
    assert "planted" not in repr(answer)
