from __future__ import annotations

import base64
import logging
import re
from typing import Any

import httpx2
import mcp_types
import pytest
from fastmcp import FastMCP
from mcp import MCPError

from casual_mcp_nb.servers._errors import error_text
from casual_mcp_nb.servers.convert import (
    MAX_TAG,
    MAX_TAGS,
    result_from_mcp,
    tool_from_mcp,
    tools_from_mcp,
)

NUMBERED = [f"t{number:03}" for number in range(1_000)]


def _tool(name: str = "add", **fields: object) -> mcp_types.Tool:
    return mcp_types.Tool.model_validate(
        {"name": name, "inputSchema": {"type": "object"}, **fields}
    )


def test_everything_that_a_tool_says_of_itself_is_kept() -> None:
    hints = {
        "title": "Adder",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    spec = tool_from_mcp(
        _tool(
            description="Adds.",
            inputSchema=schema,
            outputSchema={"type": "object"},
            annotations=hints,
        ),
        "math",
    )
    assert (spec.server, spec.name, spec.description, spec.title) == (
        "math",
        "add",
        "Adds.",
        "Adder",
    )
    assert spec.input_schema == schema
    assert spec.output_schema == {"type": "object"}
    assert spec.annotations is not None
    assert spec.annotations.badges == ("read-only", "idempotent")
    assert spec.annotations.open_world is False


def test_a_tool_without_a_description_is_a_tool() -> None:
    spec = tool_from_mcp(_tool(), "math")
    assert spec.description == ""
    assert spec.definition["description"] == "add"
    assert spec.annotations is None


def test_one_invalid_tool_among_good_ones_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = _tool("bad", inputSchema={"type": "object", "properties": None})
    with caplog.at_level(logging.WARNING, "casual_mcp_nb.servers"):
        specs = tools_from_mcp([_tool("a"), bad, _tool("b")], "math")
    assert [spec.name for spec in specs] == ["a", "b"]
    assert "'bad'" in caplog.text
    assert "'math'" in caplog.text


def test_a_tool_that_is_listed_twice_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "casual_mcp_nb.servers"):
        specs = tools_from_mcp(
            [_tool("a", description="first"), _tool("a", description="second")], "math"
        )
    assert [spec.description for spec in specs] == ["first"]
    assert "twice" in caplog.text


def _result(*content: object, **fields: object) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult.model_validate({"content": list(content), **fields})


@pytest.mark.fault(29)
def test_each_kind_of_content_is_kept_in_order_with_bytes_and_a_note() -> None:
    pixels = base64.b64encode(bytes(2048)).decode()
    result = result_from_mcp(
        _result(
            {"type": "text", "text": "one"},
            {"type": "image", "data": pixels, "mimeType": "image/png"},
            {"type": "audio", "data": pixels, "mimeType": "audio/wav"},
            {
                "type": "resource",
                "resource": {"uri": "file:///a.txt", "text": "inside", "mimeType": "text/plain"},
            },
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": pixels}},
            {
                "type": "resource_link",
                "uri": "https://x.org/r",
                "name": "report",
                "mimeType": "text/html",
                "size": 1234,
            },
        )
    )
    parts = result.content
    assert [part.kind for part in parts] == [
        "text",
        "image",
        "audio",
        "resource",
        "resource",
        "link",
    ]
    assert [part.text for part in parts] == [
        "one",
        "image/png, 2,048 bytes",
        "audio/wav, 2,048 bytes",
        "inside",
        "application/octet-stream, 2,048 bytes",
        "report, text/html, 1,234 bytes",
    ]
    assert parts[1].data == parts[4].data == bytes(2048)
    assert (parts[3].uri, parts[5].uri) == ("file:///a.txt", "https://x.org/r")


def test_invalid_base64_is_a_note_and_not_an_error() -> None:
    part = result_from_mcp(
        _result({"type": "image", "data": "%%%", "mimeType": "image/png"})
    ).content[0]
    assert part.data is None
    assert "not readable" in part.text


@pytest.mark.fault(27)
def test_structured_content_is_kept_with_and_without_text() -> None:
    alone = result_from_mcp(_result(structuredContent={"answer": 42}))
    assert alone.content == ()
    assert alone.structured == {"answer": 42}
    both = result_from_mcp(
        _result({"type": "text", "text": "42"}, structuredContent={"answer": 42})
    )
    assert (both.content[0].text, both.structured) == ("42", {"answer": 42})


@pytest.mark.fault(25)
def test_an_error_result_keeps_its_text_and_its_mark() -> None:
    result = result_from_mcp(_result({"type": "text", "text": "no such city"}, isError=True))
    assert result.is_error
    assert result.content[0].text == "no such city"


def _status_error(status: int) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "https://user:hunter2@x.org/?key=hunter2")
    return httpx2.HTTPStatusError("hunter2", request=request, response=httpx2.Response(status))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MCPError(-32603, "the licence has run out"), "the licence has run out"),
        (MCPError(-32000, "Connection closed"), "the connection was closed"),
        (ExceptionGroup("many", [ExceptionGroup("more", [ValueError("the root")])]), "the root"),
        (_status_error(500), "HTTP 500"),
        (_status_error(401), "HTTP 401: the credentials were not accepted"),
        (httpx2.ConnectError("refused"), "it cannot be reached (refused)"),
        (httpx2.ReadTimeout("x"), "no answer in time"),
        (TimeoutError(), "no answer in time"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory"),
        (KeyError(), "KeyError"),
    ],
)
def test_the_root_cause_of_an_error_is_said_in_words(error: Exception, text: str) -> None:
    assert error_text(error) == text


def test_the_cause_that_a_library_wrapped_is_found() -> None:
    wrapped = RuntimeError("Client failed to connect")
    wrapped.__cause__ = _status_error(403)
    assert error_text(wrapped) == "HTTP 403: access was refused"


def test_an_unreadable_answer_is_described_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="content") as caught:
        mcp_types.CallToolResult.model_validate({"content": "hunter2"})
    text = error_text(caught.value)
    assert re.search(": content: .*valid list", text)
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("meta", "tags"),
    [
        ({"fastmcp": {"tags": ["money", "finance", "money"]}}, ("finance", "money")),
        ({"_fastmcp": {"tags": ["money"]}}, ("money",)),
        ({"fastmcp": {"tags": [7, None, " ", "x" * 1_000]}}, ("x" * MAX_TAG,)),
        ({"fastmcp": {"tags": NUMBERED}}, tuple(NUMBERED[:MAX_TAGS])),
        ({"fastmcp": {"tags": "money"}}, ()),
        ({"fastmcp": ["tags"]}, ()),
        (None, ()),
    ],
)
def test_the_tags_of_fastmcp_are_those_of_the_tool(meta: Any, tags: tuple[str, ...]) -> None:
    tool = _tool(_meta=meta)
    assert tool_from_mcp(tool).tags == tags


async def test_fastmcp_sends_the_tags_of_a_tool() -> None:
    server: FastMCP[Any] = FastMCP("bank")
    server.tool(lambda: "ok", name="balance", tags={"money", "finance"})
    (tool,) = await server.list_tools()
    assert tool_from_mcp(tool.to_mcp_tool()).tags == ("finance", "money")
