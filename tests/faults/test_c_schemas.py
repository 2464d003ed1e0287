"""Faults 39 to 42: schemas and tools that are odd, invalid or very large."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kit.history import assert_valid
from kit.provider import PROVIDERS, Provider, answer
from kit.raw_server import OK
from kit.turns import ask

from casual_mcp_nb.base.schema import MAX_PROPERTIES
from casual_mcp_nb.base.status import Tools
from casual_mcp_nb.base.tool import MAX_DESCRIPTION
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, calls

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
}
GOOD = {
    "definitions": {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": NODE},
    },
    "pointer": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}},
    },
    "whole": {"type": "object", "properties": {"child": {"$ref": "#"}}},
    "escaped": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a~1b%20c"}},
        "$defs": {"a/b c": {"type": ["boolean", "string"]}},
    },
    "anchored": {
        "type": "object",
        "properties": {"x": {"$ref": "#there"}},
        "$defs": {"y": {"$anchor": "there"}},
    },
    "property-called-ref": {"type": "object", "properties": {"$ref": {"type": "string"}}},
    "data": {
        "type": "object",
        "properties": {"x": {"default": {"$ref": "#/nowhere"}, "enum": [{"$ref": "#/no"}]}},
    },
    "booleans": {
        "type": "object",
        "properties": {"any": True, "none": False},
        "additionalProperties": False,
    },
    "types": {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}},
}
DEEP: dict[str, Any] = {}
for _ in range(150):
    DEEP = {"items": DEEP}
BAD = {
    "dangling": {"type": "object", "properties": {"x": {"$ref": "#/$defs/Missing"}}},
    "remote": {"type": "object", "properties": {"x": {"$ref": "https://127.0.0.1:9/schema.json"}}},
    "file": {"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}},
    "deep": {"type": "object", "properties": {"x": DEEP}},
}


def tool(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for key, value in node.items():
            if key not in ("default", "enum"):
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolved(reference: str, schema: dict[str, Any]) -> Any:
    if reference == "#there":
        return schema["$defs"]["y"]
    place: Any = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        place = place[part.replace("%20", " ").replace("~1", "/")]
    return place


@pytest.mark.fault(39)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_reference_in_a_request_leads_somewhere_and_what_dangles_is_left_out(
    raw: Raw, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [tool(name, schema) for name, schema in {**GOOD, **BAD}.items()]
    with Provider(answer(provider, "fine")) as server:
        config = server.config(provider) | {"servers": {"odd": raw(tools=tools)}}
        async with McpToolChat.from_config(config) as chat:
            await chat.chat("Hello")
        (request,) = server.seen
    tools = (
        request.body["tools"][0]["functionDeclarations"]
        if provider == "gemini"
        else request.body["tools"]
    )
    offered = [one.get("function", one) for one in tools]
    places = ("parameters", "input_schema", "parameters_json_schema")
    sent = {one["name"]: next(one[place] for place in places if place in one) for one in offered}
    assert sorted(sent) == sorted(f"odd__{name}" for name in GOOD)
    assert sum(len(list(references(schema))) for schema in sent.values()) == 6
    for schema in sent.values():
        for reference in references(schema):
            assert resolved(reference, schema) is not None
    # Nothing fits `false`, so that no provider has to take it.
    assert sent["odd__booleans"]["properties"] == {"any": {}}
    for name in BAD:
        assert f"Tool '{name}' of server 'odd' is left out" in caplog.text
    assert "'#/$defs/Missing'" in caplog.text


@pytest.mark.fault(40)
async def test_of_good_and_bad_tools_only_the_bad_ones_are_left_out_and_the_chat_runs(
    opened: Opened, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {}}
    bad = {
        "properties": tool("properties", {"type": "object", "properties": True}),
        "null": tool("null", {"type": "object", "properties": None}),
        "no-schema": {"name": "no-schema"},
        "": tool("", schema),
        "7": {"name": 7, "inputSchema": schema},
        "None": {"inputSchema": schema},
    }
    tools = [
        tool("good", schema),
        *bad.values(),
        tool("true", {"type": "object", "properties": {"x": True}}),
    ]
    chat = await opened({"mixed": raw(tools=tools), "sound": raw(calls={"a": OK})})
    turn = await ask(
        chat, calls(call("mixed__good"), call("mixed__true", x=1), call("sound__a")), "done"
    )
    assert [c.result for c in turn.tool_calls] == ["ok", "ok", "ok"]
    assert_valid(turn.messages)
    assert [one["name"] for one in turn.steps[0].request.tools] == [
        "mixed__good",
        "mixed__true",
        "sound__a",
    ]
    assert caplog.text.count("of server 'mixed' is left out") == len(bad)
    for name in bad:
        assert f"Tool '{name}' of server 'mixed' is left out" in caplog.text


@pytest.mark.defect("J5")
async def test_a_tool_is_left_out_with_the_true_reason(
    opened: Opened, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"text": "an object", "list": ["an object"], "typed": {"type": "array", "items": 7}}
    tools = [{"name": name, "inputSchema": schema} for name, schema in wrong.items()]
    await opened(
        {"odd": raw(tools=[*tools, {"name": "missing"}, tool("good", {"type": "object"})])}
    )
    reasons = {
        name: caplog.text.split(f"Tool '{name}' of server 'odd' is left out: ")[1].split("\n")[0]
        for name in wrong
    }
    assert all("inputSchema" in reason for reason in reasons.values()), reasons
    assert len(set(reasons.values())) > 1
    assert "inputSchema: Field required" in caplog.text


@pytest.mark.defect("J5")
@pytest.mark.parametrize("schema", [None, "text", [], {"properties": []}, {"$ref": "#/nowhere"}])
async def test_a_tool_of_the_person_whose_schema_cannot_be_read_is_refused_with_the_reason(
    schema: Any,
) -> None:
    class Own:
        name = "own"
        description = "Do it."
        input_schema = schema
        definition: ClassVar = {
            "name": "own",
            "description": "Do it.",
            "parameters": schema or "no object",
        }

        async def execute(self, arguments: Any) -> Any: ...

    async with McpToolChat.from_config({}) as chat:
        for add in (chat.add_tool, chat.add_synthetic_tool):
            with pytest.raises(UsageError, match="its input schema"):
                add(Own())
        assert len(await chat.server_manager.list_tools()) == 0


@pytest.mark.fault(41)
async def test_a_tool_without_a_description_is_offered_and_called(opened: Opened, raw: Raw) -> None:
    chat = await opened({"terse": raw(calls={"a": OK})})
    turn = await ask(chat, call("terse__a"), "done")
    assert turn.steps[0].request.tools[0]["description"] == "a"
    assert turn.tool_calls[0].result == "ok"


@pytest.mark.fault(42)
async def test_a_huge_description_and_ten_thousand_parameters_are_cut_with_a_warning(
    raw: Raw, tmp_path: Path
) -> None:
    many = {f"p{number}": {"type": "string"} for number in range(10_000)}
    tools = [
        tool("long", {"type": "object", "properties": {"x": {"description": "y" * 1_000_000}}})
        | {"description": "d" * 1_000_000},
        tool("wide", {"type": "object", "properties": many, "required": ["p9999", "p5"]}),
        tool("endless", {"type": "object", "properties": {"x": {"enum": ["e" * 100] * 10_000}}}),
    ]
    chat = McpToolChat.from_config({"servers": {"big": raw(folder=tmp_path, tools=tools)}})
    async with chat:
        turn = await ask(chat, call("big__wide", p9999="a"), "done")
    assert turn.tool_calls[0].result == "ok"
    long, wide, endless = (one["parameters"] for one in turn.steps[0].request.tools)
    assert len(turn.steps[0].request.tools[0]["description"]) < MAX_DESCRIPTION + 20
    assert len(long["properties"]["x"]["description"]) < 5_000
    assert len(wide["properties"]) == MAX_PROPERTIES
    assert wide["required"] == ["p9999", "p5"]
    assert "p9999" in wide["properties"]
    assert endless == {"type": "object", "properties": {}}
    assert len(json.dumps(list(turn.steps[0].request.tools))) < 60_000
    texts = [notice.text for notice in turn.notices]
    assert re.search(r"'long' .*\bdescription to 10,000 of 1,000,000\b", texts[0])
    assert "its parameters to 500 of 10,000" in texts[1]
    assert "'endless'" in texts[2]
    assert {notice.server for notice in turn.notices} == {"big"}


@pytest.mark.fault(42)
async def test_ten_thousand_tools_never_hold_the_loop(raw: Raw) -> None:
    servers = {
        f"s{number}": raw({"init_timeout": 20.0, "defer_loading": True}, tool_count=1_000)
        for number in range(10)
    }
    config = {"servers": servers, "tool_discovery": {"enabled": True}}
    async with McpToolChat.from_config(config) as chat:
        view = await chat.view()
        turn = await ask(chat, call("search_tools", query="tool 77"), call("s3__tool_77"), "done")
        tools = Tools(view.catalog, {})
        page = tools._repr_html_()
    assert len(view.deferred) == 10_000
    assert turn.searches[0].rows
    assert view.manifest_tokens < 3_000
    assert turn.steps[0].request.tokens.total < 4_000
    assert len(page) < 65_536
    assert "10,000" in page


@pytest.mark.fault(42)
async def test_ten_thousand_tools_in_one_listing_that_are_all_offered_do_not_hold_the_loop(
    raw: Raw,
) -> None:
    async with McpToolChat.from_config(
        {"servers": {"one": raw({"init_timeout": 20.0}, tool_count=10_000)}}
    ) as chat:
        turn = await ask(chat, call("one__tool_9999"), "done")
    assert turn.tool_calls[0].result == "ok"
    assert len(turn.steps[0].request.tools) == 10_000


@pytest.mark.fault(42)
async def test_notices_about_long_tools_are_counted_beyond_twenty(
    raw: Raw, opened: Opened, tmp_path: Path
) -> None:
    tools = [
        tool(f"t{number}", {"type": "object"}) | {"description": "d" * 11_000}
        for number in range(30)
    ]
    chat = await opened({"big": raw(folder=tmp_path, tools=tools)})
    turn = await ask(chat, "fine")
    assert len(turn.notices) == 21
    assert turn.notices[-1].text.startswith("10 more tools ")
