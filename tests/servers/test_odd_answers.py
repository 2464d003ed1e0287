"""Answers of servers with fields that are not valid: what is optional is left out and told, and the
rest is used.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from kit.scripted_http import Reply, ScriptedHttp
from mcp_types.methods import SERVER_NOTIFICATIONS, SERVER_REQUESTS, SERVER_RESULTS
from pydantic import BaseModel

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError, ToolCallError
from casual_mcp_nb.servers._envelopes import repaired
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.usable import (
    _NEVER_LEFT_OUT,
    Budget,
    Unusable,
    fits_all,
    item_kinds,
    notification_kinds,
    request_kinds,
    result_kinds,
    usable,
)

pytestmark = [pytest.mark.defect("M8"), pytest.mark.defect("M9")]

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]
Path = tuple[str | int, ...]

WRONG: list[Any] = [[], {}, 5, "wrong", True, [{}], {"a": 1}, [5], ["wrong"], 10**400, -1]
VERSIONS = ("2025-11-25", "2026-07-28")
OBJECT = {"type": "object"}


# Every optional field of every message


def sample(kind: Any) -> Any:
    """A valid value of a type, with every optional field."""
    if kind is Any or isinstance(kind, str):
        return {"any": 1}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {
            field.alias or name: sample(field.annotation)
            for name, field in kind.model_fields.items()
        }
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return sample(inner[0])
    if origin in (Union, UnionType):
        return sample(next(each for each in inner if each is not NoneType))
    if origin is Literal:
        return inner[0]
    if origin is list:
        return samples(inner[0])
    if origin is dict:
        return {"key": sample(inner[1])}
    return {str: "text", int: 1, float: 0.5, bool: True}.get(kind, {"any": 1})


def samples(kind: Any) -> list[Any]:
    """A valid value of each type in a union."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [sample(member) for member in members if member is not NoneType]


def optional_fields(kind: Any, value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of each optional field in a value, at any depth."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            key = field.alias or name
            if not field.is_required() and (kind.__name__, key) not in _NEVER_LEFT_OUT:
                yield (*path, key)
            yield from optional_fields(field.annotation, value[key], (*path, key))
        return
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from optional_fields(inner[0], value, path)
    elif origin in (Union, UnionType):
        member = next(each for each in inner if each is not NoneType)
        yield from optional_fields(member, value, path)
    elif origin is list:
        members = get_args(inner[0]) if get_origin(inner[0]) in (Union, UnionType) else (inner[0],)
        for number, member in enumerate(members):
            yield from optional_fields(member, value[number], (*path, number))


def changed(value: Any, path: Path, new: Any) -> Any:
    value = copy.deepcopy(value)
    owner = value
    for part in path[:-1]:
        owner = owner[part]
    owner[path[-1]] = new
    return value


def without(value: Any, path: Path) -> Any:
    """A value without one field; without its owner, if that is gone too."""
    value = copy.deepcopy(value)
    owner = value
    for part in path[:-1]:
        owner = owner[part]
    owner.pop(path[-1], None)
    return value


def message_types() -> Iterator[tuple[str, str, str]]:
    for method, version in SERVER_RESULTS:
        if version in VERSIONS:
            yield "result", method, version
    for method, version in SERVER_REQUESTS:
        if version in VERSIONS:
            yield "request", method, version
    for method, version in SERVER_NOTIFICATIONS:
        if version in VERSIONS:
            yield "notification", method, version


def kinds_of(what: str, method: str, version: str) -> list[Any]:
    if what == "result":
        return result_kinds(method, version, {})
    return (
        request_kinds(method, version) if what == "request" else notification_kinds(method, version)
    )


@pytest.mark.parametrize(("what", "method", "version"), list(message_types()))
def test_every_optional_field_of_every_message_may_be_wrong(
    what: str, method: str, version: str
) -> None:
    kinds = kinds_of(what, method, version)
    whole = sample(kinds[0])
    if whole is None or not isinstance(whole, dict):
        return
    assert fits_all(kinds, whole)
    paths = list(optional_fields(kinds[0], whole))
    for path in paths:
        for wrong in WRONG:
            odd = changed(whole, path, wrong)
            if fits_all(kinds, odd):
                continue
            before = json.dumps(odd)
            value, ignored = usable(kinds, odd)
            assert fits_all(kinds, value), path
            assert without(value, path) == without(whole, path), path
            assert json.dumps(odd) == before
            # An empty list for an empty object loses nothing.
            assert ignored or wrong == [] or wrong == {}, path
    print(len(paths))


def test_every_kind_of_field_is_among_them() -> None:
    count = 0
    for what, method, version in message_types():
        kinds = kinds_of(what, method, version)
        whole = sample(kinds[0])
        count += len(list(optional_fields(kinds[0], whole))) if isinstance(whole, dict) else 0
    assert count > 300


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_without_a_required_part_is_not_usable(version: str) -> None:
    kinds = result_kinds("tools/list", version, {})
    with pytest.raises(Unusable) as error:
        usable(kinds, {"tools": 5})
    assert error.value.place == "tools"
    with pytest.raises(Unusable):
        usable(result_kinds("prompts/get", version, {}), {})


def test_what_fits_is_the_same_object() -> None:
    raw = {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}
    value, ignored = usable(result_kinds("tools/call", "2025-11-25", raw), raw)
    assert value is raw
    assert ignored == {}


# The tools of a listing

TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "an output schema of a list": ({"outputSchema": {"type": "array"}}, "outputSchema"),
    "an output schema that is a text": ({"outputSchema": "object"}, "outputSchema"),
    "annotations that are an empty list": ({"annotations": []}, ""),
    "_meta that is an empty list": ({"_meta": []}, ""),
    "execution that is an empty list": ({"execution": []}, ""),
    "an icon without a source": ({"icons": [{"mimeType": "image/png"}]}, "icons"),
    "one of two icons without a source": ({"icons": [{"src": "data:,"}, {}]}, "icons[]"),
    "a title that is a number": ({"title": 5}, "title"),
    "a hint that is a text": (
        {"annotations": {"readOnlyHint": "perhaps", "title": "A"}},
        "annotations.readOnlyHint",
    ),
    "a description that is a list": ({"description": ["a", "b"]}, "description"),
    "unknown task support": ({"execution": {"taskSupport": "sometimes"}}, "execution.taskSupport"),
    "properties that are an empty list": (
        {"inputSchema": {"type": "object", "properties": []}},
        "",
    ),
}


@pytest.mark.parametrize("case", TOOLS)
async def test_a_tool_with_an_odd_field_is_used_without_it(
    opened: Opened, raw: Raw, case: str
) -> None:
    fields, ignored = TOOLS[case]
    tools = [{"name": "a", "inputSchema": OBJECT, **fields}, {"name": "b", "inputSchema": OBJECT}]
    connection = opened(Connection("odd", raw(tools=tools, config={"protocol": "legacy"})))
    await connection.connect()
    assert [tool.name for tool in connection.tools] == ["a", "b"]
    assert list(connection.status.ignored) == ([f"a.{ignored}"] if ignored else [])
    assert not connection.status.left_out
    assert len(connection.read_log()) == (1 if ignored else 0)
    assert (await connection.call("a", {})).content[0].text == "ok"


async def test_what_is_ignored_is_on_the_card_and_gone_when_the_server_mends_it(
    opened: Opened, raw: Raw
) -> None:
    tools = [{"name": "a", "inputSchema": OBJECT, "title": 5}]
    mended = {"tools": [{"name": "a", "inputSchema": OBJECT}]}
    calls = {
        "a": {
            "notify": {"method": "notifications/tools/list_changed"},
            "plan": mended,
            "result": {"content": []},
        }
    }
    connection = opened(Connection("odd", raw(tools=tools, calls=calls)))
    await connection.connect()
    assert "a.title" in await asyncio.to_thread(connection.status._repr_html_)
    await connection.call("a", {})
    await connection.refresh(force=True)
    assert connection.status.ignored == {}


# The results of calls

RESULTS: dict[str, tuple[Any, str, Any]] = {
    "no content beside structured content": ({"structuredContent": {"sum": 3}}, "", {"sum": 3}),
    "content that is null": ({"content": None, "structuredContent": {"sum": 3}}, "", {"sum": 3}),
    "isError that is null": (
        {"content": [{"type": "text", "text": "x"}], "isError": None},
        "x",
        None,
    ),
    "_meta that is an empty list": (
        {"content": [{"type": "text", "text": "x"}], "_meta": []},
        "x",
        None,
    ),
    "structured content that is a list": (
        {"content": [{"type": "text", "text": "x"}], "structuredContent": [1, 2]},
        "x",
        None,
    ),
    "nothing but a list": ({"structuredContent": [1, 2]}, "[1, 2]", None),
    "odd annotations of a block": (
        {
            "content": [
                {
                    "type": "text",
                    "text": "x",
                    "annotations": {"audience": ["everyone"], "priority": 9},
                }
            ]
        },
        "x",
        None,
    ),
    "annotations that are a list": (
        {"content": [{"type": "text", "text": "x", "annotations": []}]},
        "x",
        None,
    ),
    "content that is a text": ({"content": "x"}, "x", None),
    "content that is one block": ({"content": {"type": "text", "text": "x"}}, "x", None),
    "a part that is a text": ({"content": ["x"]}, "x", None),
    "a block without its type": ({"content": [{"text": "x"}]}, "x", None),
    "an object of another form": ({"temperature": 5}, '{"temperature": 5}', None),
    "an empty list": ([], "", None),
    "null": (None, "", None),
    "a bare text": ("x", '{"result": "x"}', None),
    "a resource without its address": (
        {"content": [{"type": "resource", "resource": {"text": "x", "mimeType": 5}}]},
        "x",
        None,
    ),
    "a link without its name": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "size": "big"}]},
        "file:///a",
        None,
    ),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_a_finished_result_is_kept_whatever_is_odd_about_it(
    opened: Opened, raw: Raw, case: str
) -> None:
    result, text, structured = RESULTS[case]
    connection = opened(
        Connection("odd", raw(calls={"a": {"result": result}}, config={"protocol": "legacy"}))
    )
    await connection.connect()
    outcome = await connection.call("a", {})
    assert "".join(part.text for part in outcome.content) == text
    assert outcome.structured == structured
    assert not outcome.is_error


async def test_of_a_newer_server_the_fields_that_it_must_send_may_be_missing(
    opened: Opened,
) -> None:
    results: dict[str, Any] = {
        "server/discover": {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": [], "prompts": True},
        },
        "tools/list": {"tools": [{"name": "a", "inputSchema": OBJECT}]},
        "tools/call": {"structuredContent": [1, 2]},
        "prompts/list": {
            "prompts": [{"name": "p", "arguments": [{"name": "x", "required": "maybe"}, {}]}]
        },
    }
    with ScriptedHttp(answering(results)) as server:
        fields = {"url": f"{server.url}/mcp", "protocol": "2026-07-28"}
        connection = opened(Connection("odd", ServerConfig.model_validate(fields)))
        await connection.connect()
        assert [tool.name for tool in connection.tools] == ["a"]
        assert (await connection.call("a", {})).structured == [1, 2]
        (prompt,) = await connection.resources.prompts()
    assert [argument.name for argument in prompt.arguments] == ["x"]
    assert "a().content" in connection.status.ignored


def answering(
    results: dict[str, Any], errors: Any = None, events: bool = False
) -> Callable[[Any], Reply]:
    """A server over HTTP with these results, or these errors in their place, as plain JSON or as
    events.
    """
    errors = errors or {}

    def answer(request: Any) -> Reply:
        body = request.body if isinstance(request.body, dict) else {}
        method = body.get("method")
        if "id" not in body:
            return Reply(status=202)
        if method in results:
            message = {"result": results[method]}
        else:
            message = {"error": errors.get(method, {"code": -32601, "message": "Method not found"})}
        text = json.dumps({"jsonrpc": "2.0", "id": body["id"], **message})
        if events:
            return Reply(
                body=f"event: message\ndata: {text}\n\n",
                headers={"content-type": "text/event-stream"},
            )
        return Reply(body=text, headers={"content-type": "application/json"})

    return answer


# Resources, templates, prompts, and what they give


async def test_resources_templates_and_prompts_with_odd_fields_are_listed_without_them(
    opened: Opened, raw: Raw
) -> None:
    answers = {
        "resources/list": {
            "resources": [
                {
                    "uri": "file:///a",
                    "name": "a",
                    "size": "12 KB",
                    "mimeType": 5,
                    "annotations": [],
                    "icons": [{}],
                    "_meta": [],
                },
                {"uri": "file:///b", "title": {}},
                {"name": "no address"},
            ],
            "nextCursor": None,
            "_meta": [],
        },
        "resources/templates/list": {
            "resourceTemplates": [{"uriTemplate": "file:///{x}", "description": 5}]
        },
        "prompts/list": {
            "prompts": [
                {
                    "name": "p",
                    "title": 5,
                    "arguments": [{"name": "x", "required": "maybe"}, {"title": "no name"}],
                }
            ]
        },
        "resources/read": {
            "contents": [{"text": "hello", "mimeType": 5, "_meta": []}, {"uri": "file:///b"}]
        },
        "prompts/get": {
            "description": 5,
            "messages": [
                {"role": "system", "content": {"type": "text", "text": "hi", "annotations": []}},
                {"role": "user", "content": "there"},
            ],
        },
        "completion/complete": {"completion": {"values": ["a", 5], "total": "many", "hasMore": []}},
    }
    capabilities = {"resources": [], "prompts": [], "completions": [], "tools": []}
    config = raw(answers=answers, capabilities=capabilities, config={"protocol": "legacy"})
    connection = opened(Connection("odd", config))
    await connection.connect()
    resources = await connection.resources.resources()
    assert [(each.uri, each.name, each.size) for each in resources] == [
        ("file:///a", "a", None),
        ("file:///b", "file:///b", None),
        ("file:///{x}", "file:///{x}", None),
    ]
    (prompt,) = await connection.resources.prompts()
    assert [argument.name for argument in prompt.arguments] == ["x"]
    assert (await connection.resources.read("file:///a")).text == "hello"
    messages = await connection.resources.prompt("p", {"x": "1"})
    assert [(message.role, message.content.text) for message in messages.messages] == [
        ("user", "hi"),
        ("user", "there"),
    ]
    assert (await connection.resources.complete(prompt, "x", "", {})).values == ("a",)
    assert {"a.size", "p.arguments[]", "completion.total", "contents[]"} <= set(
        connection.status.ignored
    )


# The handshake

GREETINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no version": ({"serverInfo": {"name": "odd"}}, "odd"),
    "a version that is a number": ({"serverInfo": {"name": "odd", "version": 1.5}}, "odd 1.5"),
    "no server info": ({"serverInfo": None}, ""),
    "an empty list as server info": ({"serverInfo": []}, ""),
    "an icon without a source": (
        {"serverInfo": {"name": "odd", "version": "1", "icons": [{}]}},
        "odd 1",
    ),
    "instructions that are a list": ({"instructions": ["a"]}, "raw 1.0"),
    "_meta that is a list": ({"_meta": []}, "raw 1.0"),
}
CAPABILITIES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "lists": ({"tools": [], "resources": [], "logging": []}, ("logging", "resources", "tools")),
    "true": ({"tools": True, "prompts": False}, ("tools",)),
    "a text for true": ({"tools": {"listChanged": "sometimes"}}, ("tools",)),
    "odd extensions": (
        {"tools": {}, "experimental": [], "tasks": {"requests": []}},
        ("tasks", "tools"),
    ),
    "an empty list": ([], ()),
    "null": (None, ()),
}


@pytest.mark.parametrize("case", GREETINGS)
async def test_a_handshake_with_odd_fields_connects(opened: Opened, raw: Raw, case: str) -> None:
    greeting, version = GREETINGS[case]
    connection = opened(
        Connection("odd", raw(calls={"a": {}}, greeting=greeting, config={"protocol": "legacy"}))
    )
    await connection.connect()
    assert (connection.status.state, connection.status.version or "") == ("ready", version)


@pytest.mark.parametrize("case", CAPABILITIES)
async def test_capabilities_in_other_forms_are_read(opened: Opened, raw: Raw, case: str) -> None:
    capabilities, names = CAPABILITIES[case]
    greeting = {"capabilities": capabilities}
    connection = opened(
        Connection("odd", raw(calls={"a": {}}, greeting=greeting, config={"protocol": "legacy"}))
    )
    await connection.connect()
    assert tuple(sorted(connection.status.capabilities)) == names
    assert [tool.name for tool in connection.tools] == ["a"]


async def test_a_handshake_without_a_version_of_the_protocol_fails_clearly(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(
        Connection("odd", raw(greeting={"protocolVersion": 5}, config={"protocol": "legacy"}))
    )
    with pytest.raises(ConnectError, match="protocolVersion"):
        await connection.connect()


# Errors, and other envelopes

ERRORS: dict[str, tuple[Any, str]] = {
    "a word as the code": (
        {"code": "E_DISK", "message": "the disk is full"},
        "E_DISK: the disk is full",
    ),
    "a number as text": ({"code": "-32000", "message": "the disk is full"}, "the disk is full"),
    "a float": ({"code": -32000.0, "message": "the disk is full"}, "the disk is full"),
    "no code": ({"message": "the disk is full"}, "the disk is full"),
    "null": ({"code": None, "message": "the disk is full"}, "the disk is full"),
    "a text": ("the disk is full", "the disk is full"),
    "another convention": ({"code": 507, "detail": "the disk is full"}, "the disk is full"),
    "a message that is an object": (
        {"code": -1, "message": {"en": "the disk is full"}},
        "the disk is full",
    ),
    "a list": (["the disk is full"], "the disk is full"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_the_words_of_an_error_are_read_whatever_its_code(
    opened: Opened, raw: Raw, case: str
) -> None:
    error, words = ERRORS[case]
    connection = opened(Connection("odd", raw(calls={"a": {"error": error}})))
    await connection.connect()
    with pytest.raises(ToolCallError) as failed:
        await connection.call("a", {})
    assert words in str(failed.value)
    assert connection.status.state == "ready"


@pytest.mark.parametrize("events", [False, True])
async def test_the_words_of_an_error_over_http_are_read(opened: Opened, events: bool) -> None:
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": [],
            "serverInfo": {"name": "odd", "version": 1},
        },
        "tools/list": {"tools": [{"name": "a", "inputSchema": OBJECT}]},
    }
    errors = {"tools/call": {"code": "E_DISK", "message": "the disk is full"}}
    with ScriptedHttp(answering(results, errors, events)) as server:
        fields = {"url": f"{server.url}/mcp", "protocol": "legacy"}
        connection = opened(Connection("odd", ServerConfig.model_validate(fields)))
        await connection.connect()
        with pytest.raises(ToolCallError, match="E_DISK: the disk"):
            await connection.call("a", {})


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        (
            {"jsonrpc": "2.0", "id": 1.0, "result": {"a": 1}},
            {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}},
        ),
        ({"id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 1, "result": {}}),
        (
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": []},
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}},
        ),
        ({"jsonrpc": "2.0", "id": 1, "result": []}, {"jsonrpc": "2.0", "id": 1, "result": {}}),
        (
            {"jsonrpc": "2.0", "id": 1, "result": {}, "error": None},
            {"jsonrpc": "2.0", "id": 1, "result": {}, "error": None},
        ),
        (
            {"level": "info", "error": "a line of a log"},
            {"level": "info", "error": "a line of a log"},
        ),
    ],
)
def test_envelopes_with_one_meaning_are_repaired(message: Any, meant: Any) -> None:
    for prefix in (b"", b"data: "):
        out = repaired(prefix + json.dumps(message).encode())
        assert out.startswith(prefix)
        assert json.dumps(json.loads(out[len(prefix) :]), sort_keys=True) == json.dumps(
            meant, sort_keys=True
        )


def test_what_is_no_message_stays_as_it_is() -> None:
    for line in (
        b"event: message",
        b"",
        b"{",
        b'{"error": }',
        b"starting: {}",
        b'data: "error": 5',
        b"[" * 60_000,
    ):
        assert repaired(line) is line


# Notifications and questions


async def test_a_log_line_of_an_unknown_level_is_kept(opened: Opened, raw: Raw) -> None:
    params = {"level": "WARN", "logger": 5, "data": "the disk is nearly full", "_meta": []}
    calls = {
        "a": {
            "notify": {"method": "notifications/message", "params": params},
            "result": {"content": []},
        }
    }
    connection = opened(Connection("odd", raw(calls=calls, config={"protocol": "legacy"})))
    await connection.connect()
    await connection.call("a", {})
    lines = [(line.level, line.text) for line in connection.read_log()]
    assert any(level == "warning" and "nearly full" in text for level, text in lines)


async def test_a_list_that_changes_with_params_as_php_writes_them_is_listed_again(
    opened: Opened, raw: Raw
) -> None:
    notice = {"method": "notifications/tools/list_changed", "params": []}
    calls = {
        "a": {
            "notify": notice,
            "plan": {"tools": [{"name": "b", "inputSchema": OBJECT}]},
            "result": {"content": []},
        }
    }
    connection = opened(Connection("odd", raw(calls=calls)))
    await connection.connect()
    await connection.call("a", {})
    assert [tool.name for tool in await connection.list_tools()] == ["b"]


def test_walking_what_is_odd_ends_however_much_of_it_there_is() -> None:
    kinds = item_kinds("resources/list", "2025-11-25", "resources")
    odd = {"uri": "file:///a", "name": "a", "icons": [{}] * 1_000}
    fine = {"uri": "file:///b", "name": "b"}
    budget = Budget()
    outcomes = []
    for _ in range(100):
        try:
            outcomes.append(usable(kinds, odd, "a", budget)[0].keys())
        except Unusable:
            outcomes.append(None)
    assert outcomes[0] == {"uri", "name"}
    assert outcomes[-1] is None
    assert -200 < budget.left < 0
    assert usable(kinds, fine, "b", budget) == (fine, {})
    huge = {
        "name": "a",
        "inputSchema": OBJECT,
        "outputSchema": {"type": "object", "properties": {str(n): 5 for n in range(9_000)}},
    }
    value, ignored = usable(item_kinds("tools/list", "2025-11-25", "tools"), huge, "a")
    assert value.keys() == {"name", "inputSchema", "outputSchema"}
    assert list(ignored) == ["a.outputSchema.properties"]
