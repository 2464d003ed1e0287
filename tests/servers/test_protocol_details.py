"""What a server of MCP 2026-07-28 says about itself: its version, cache hints, headers, errors,
deprecated parts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, ScriptedHttp
from kit.sites import OAuthSite

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.schema import header_parameters
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.errors import ResourceError, ServerError, ToolCallError
from casual_mcp_nb.servers._sdk_session import MAX_ROUNDS
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.convert import MAX_FRESH_SECONDS, MIN_FRESH_SECONDS, CacheHint, shortest
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.listing import DEFAULT_TTL, ToolListing
from casual_mcp_nb.widgets.selection import SelectionState

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]
OLDER, NEWER = "2025-11-25", "2026-07-28"
REGION = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer"},
    },
}


def modern(
    error: dict[str, Any] | None = None, *, changes: bool = False, **hints: Any
) -> Callable[[Any], Reply]:
    """A server of the newer protocol with one tool, whose calls succeed or fail with an error."""
    said = {"resultType": "complete", **({"ttlMs": 0, "cacheScope": "private"} | hints)}
    capabilities = {"tools": {"listChanged": changes}, "prompts": {}}
    results: dict[str, Any] = {
        "server/discover": {"supportedVersions": [NEWER], "capabilities": capabilities},
        "tools/list": {"tools": [{"name": "sell", "inputSchema": REGION}]},
        "prompts/list": {"prompts": [{"name": "greet"}]},
        "tools/call": {"content": [{"type": "text", "text": "sold"}]},
    }

    def answer(request: Any) -> Reply:
        body = request.body if isinstance(request.body, dict) else {}
        method = body.get("method")
        if error is not None and method in ("tools/call", "prompts/list"):
            return Reply(body={"jsonrpc": "2.0", "id": body["id"], "error": error})
        if method not in results:
            return Reply(
                body={
                    "jsonrpc": "2.0",
                    "id": body.get("id"),
                    "error": {"code": -32601, "message": "no"},
                }
            )
        return Reply(
            body={"jsonrpc": "2.0", "id": body["id"], "result": {**results[method], **said}}
        )

    return answer


async def connected(opened: Opened, server: Any, **config: Any) -> Any:
    connection = opened(
        Connection("shop", ServerConfig.model_validate({"url": f"{server.url}/mcp", **config}))
    )
    await connection.connect()
    return connection


def count_of(server: Any, method: str) -> int:
    return sum(
        isinstance(each.body, dict) and each.body.get("method") == method for each in server.seen
    )


@pytest.mark.parametrize(
    ("protocol", "agreed"), [("auto", "discover"), ("legacy", "handshake"), (NEWER, "discover")]
)
async def test_a_card_says_how_the_version_was_agreed(
    opened: Opened, protocol: str, agreed: str
) -> None:
    config = ServerConfig.model_validate(
        {"bundled": "math", "transport": "in-process", "protocol": protocol}
    )
    connection = opened(Connection("math", config))
    assert connection.status.agreed == ""
    await connection.connect()
    assert connection.status.agreed == agreed


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["auto", "legacy", NEWER])
async def test_the_protocol_of_the_config_holds_over_stdio(
    opened: Opened, raw: Raw, protocol: str
) -> None:
    older = protocol == "legacy"
    connection = opened(
        Connection("math", ServerConfig.model_validate({"bundled": "math", "protocol": protocol}))
    )
    await connection.connect()
    status = connection.status
    assert (status.transport, status.agreed) == ("stdio", "handshake" if older else "discover")
    assert status.protocol_version == (OLDER if older else NEWER)


@pytest.mark.parametrize(
    ("hint", "own", "reports", "lifetime"),
    [
        (CacheHint(), 30.0, False, 30.0),
        (CacheHint(), None, True, None),
        (CacheHint(600_000, "public"), 30.0, False, 600.0),
        (CacheHint(6_000, "private"), None, True, 6.0),
        (CacheHint(10**12, "public"), 30.0, False, MAX_FRESH_SECONDS),
        (CacheHint(1, "public"), 30.0, True, MIN_FRESH_SECONDS),
        (CacheHint(0, "private"), 30.0, True, 30.0),
        (CacheHint(0, "private"), 30.0, False, MIN_FRESH_SECONDS),
        (CacheHint(0, "private"), 2.0, False, 2.0),
        (CacheHint(0, "private"), None, False, None),
    ],
)
def test_a_servers_word_on_its_list_counts_within_bounds(
    hint: CacheHint, own: float | None, reports: bool, lifetime: float | None
) -> None:
    assert hint.lifetime(own, reports_changes=reports) == lifetime


def test_the_hints_of_several_pages_count_as_their_shortest() -> None:
    assert shortest([CacheHint(9, "public"), CacheHint(3, "public"), CacheHint()]) == CacheHint(
        3, "public"
    )
    assert shortest([CacheHint(9, "public"), CacheHint(30, "private")]) == CacheHint(9, "private")
    assert shortest([CacheHint()]) == CacheHint()


async def test_a_list_is_fresh_as_long_as_its_server_says() -> None:
    clock, fetched = [0.0], []

    async def fetch() -> list[Any]:
        fetched.append(clock[0])
        return []

    lifetime = partial(CacheHint(100_000).lifetime, reports_changes=False)
    cache = ToolListing(fetch, DEFAULT_TTL, lifetime, clock=lambda: clock[0])
    for moment in (0.0, DEFAULT_TTL + 1, 99.0, 101.0):
        clock[0] = moment
        await cache.get()
    assert fetched == [0.0, 101.0]


async def test_hints_are_read_from_a_server_and_shown(opened: Opened) -> None:
    with ScriptedHttp(modern(ttlMs=600_000, cacheScope="public")) as server:
        connection = await connected(opened, server)
        status = connection.status
        assert (status.list_seconds, status.list_scope) == (600.0, "public")
        assert connection.fresh
        for _ in range(3):
            await connection.resources.prompts()
        assert (count_of(server, "tools/list"), count_of(server, "prompts/list")) == (1, 1)
    assert "10 min" in await asyncio.to_thread(status._repr_html_)


async def test_a_server_that_says_zero_has_no_line_about_it(opened: Opened) -> None:
    with ScriptedHttp(modern(ttlMs=0)) as server:
        status = (await connected(opened, server)).status
    assert status.list_seconds is None
    assert "Tool list" not in await asyncio.to_thread(status._repr_html_)


async def test_arguments_are_repeated_in_the_headers_that_the_schema_names(opened: Opened) -> None:
    with ScriptedHttp(modern()) as server:
        connection = await connected(opened, server)
        await connection.call("sell", {"region": "Ålesund", "n": 2})
        request = next(
            each
            for each in server.seen
            if isinstance(each.body, dict) and each.body["method"] == "tools/call"
        )
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["mcp-method"] == "tools/call"
        assert headers["mcp-name"] == "sell"
        assert headers["mcp-param-region"].startswith("=?base64?")
        assert "mcp-param-n" not in headers
        (tool,) = connection.tools
    assert "Mcp-Param-Region" in await asyncio.to_thread(tool._repr_html_)
    nested = {
        "properties": {
            "a": {"properties": {"b": {"x-mcp-header": "B"}}},
            "c": {"x-mcp-header": 3},
            "d": "text",
        }
    }
    assert header_parameters(nested) == {"a.b": "Mcp-Param-B"}
    assert header_parameters({"properties": []}) == {}


@pytest.mark.parametrize(
    ("code", "data", "name", "advice"),
    [
        (-32020, None, "HeaderMismatch", "proxy"),
        (
            -32021,
            {"requiredCapabilities": {"sampling": {}}},
            "MissingRequiredClientCapability",
            "sampling: true",
        ),
        (-32021, "garbage", "MissingRequiredClientCapability", "does not offer"),
        (
            -32022,
            {"supported": ["2099-01-01"], "requested": NEWER},
            "UnsupportedProtocolVersion",
            "2099-01-01",
        ),
        (-32022, {"supported": 3}, "UnsupportedProtocolVersion", "legacy"),
    ],
)
async def test_errors_of_the_protocol_have_their_names_and_a_remedy(
    opened: Opened, code: int, data: Any, name: str, advice: str
) -> None:
    with ScriptedHttp(
        modern({"code": code, "message": "It cannot be done.", "data": data})
    ) as server:
        connection = await connected(opened, server)
        with pytest.raises(ToolCallError) as called:
            await connection.call("sell", {"region": "x"})
        with pytest.raises(ResourceError) as listed:
            await connection.resources.prompts()
    for error in (called, listed):
        assert all(
            part in str(error.value) for part in (name, str(code), advice, "It cannot be done")
        )


async def test_a_server_that_asks_again_in_a_result_is_noticed_too(opened: Opened) -> None:
    questions = {
        "inputRequests": {"1": {"method": "roots/list"}},
        "requestState": "s",
        "resultType": "input_required",
    }

    def answer(request: Any) -> Reply:
        body = request.body if isinstance(request.body, dict) else {}
        if body.get("method") == "tools/call":
            return Reply(body={"jsonrpc": "2.0", "id": body["id"], "result": questions})
        return modern()(request)

    with ScriptedHttp(answer) as server:
        connection = await connected(opened, server)
        assert connection.status.deprecated == ()
        with pytest.raises(ToolCallError):
            await connection.call("sell", {"region": "x"})
        assert connection.status.deprecated == ("roots",)


NOTICE = {"method": "notifications/message", "params": {"level": "info", "data": "hello"}}
CALLS = {
    "logging": {"notify": NOTICE, "result": {"content": []}},
    "roots": {"ask": "roots/list", "answer": "asked"},
    "sampling": {
        "ask": "sampling/createMessage",
        "ask_params": {"messages": [], "maxTokens": 1},
        "answer": "asked",
    },
}


@pytest.mark.parametrize("part", [*CALLS, "HTTP+SSE", "dynamic client registration", "none"])
async def test_each_deprecated_part_is_marked_once_it_is_used(
    opened: Opened, raw: Raw, until: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def sign_in(request: Any) -> str:
        return await asyncio.to_thread(OAuthSite.visit, request.address)

    site = McpHttp(transport="sse") if part == "HTTP+SSE" else OAuthSite()
    with site:
        if part in CALLS:
            config = raw(calls={"a": CALLS[part]}, version=OLDER)
        else:
            known = {"sign_in": {"client_id": "known"}} if part == "none" else {}
            config = ServerConfig.model_validate(site.config(**known))
        if isinstance(site, OAuthSite):
            # Its address says nothing about what it is for.
            site.metadata["registration_endpoint"] = f"{site.url}/clients"
        connection = opened(Connection("one", config, handlers=Handlers(sign_in=sign_in)))
        assert connection.status.deprecated == (("HTTP+SSE",) if part == "HTTP+SSE" else ())
        await connection.connect()
        await connection.call("a", {})
        marked = () if part == "none" else (part,)
        await until(lambda: connection.status.deprecated == marked)
    card = await asyncio.to_thread(connection.status._repr_html_)
    assert all(each in card for each in marked)
    assert ("Deprecated" in card) == bool(marked)


def test_a_card_shows_what_is_known_and_nothing_else() -> None:
    plain = ServerStatus("a", "ready", protocol_version=NEWER, agreed="discover")
    assert "Deprecated" not in plain._repr_html_()
    assert "Tool list" not in plain._repr_html_()
    assert "server/discover" in plain._repr_html_()
    old = ServerStatus(
        "a", "ready", protocol_version=OLDER, agreed="handshake", deprecated=("HTTP+SSE", "roots")
    )
    text = old._repr_html_()
    assert all(word in text for word in ("HTTP+SSE", "roots", "initialize"))


def test_the_status_as_json_has_the_new_facts() -> None:
    with Session(
        {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}, quiet=True
    ) as session:
        session.connect()
        assert session.servers["math"].agreed == "discover"
        row = SelectionState(session).snapshot()["servers"]["math"]
        assert NEWER in row["protocol"]
        assert "deprecated" not in row
        assert json.dumps(session.servers["math"].deprecated) == "[]"


@pytest.mark.parametrize("paged", [False, True])
async def test_headers_follow_the_schema_of_the_last_listing(opened: Opened, paged: bool) -> None:
    tools = [
        {"name": "sell", "inputSchema": REGION},
        {
            "name": "plain",
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
        {
            "name": "wrong",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "string", "x-mcp-header": ""}},
            },
        },
    ]
    usual = modern()

    def answer(request: Any) -> Reply:
        reply = usual(request)
        if isinstance(request.body, dict) and request.body.get("method") == "tools/list":
            page = int((request.body.get("params") or {}).get("cursor") or 0)
            part = (
                {"tools": tools[page : page + 1], "nextCursor": str(page + 1)}
                if paged and page < 2
                else {"tools": tools[page:]}
            )
            reply.body["result"] |= part
        return reply

    with ScriptedHttp(answer) as server:
        connection = await connected(opened, server)
        headers = []
        for schema in (
            REGION,
            {"type": "object", "properties": {"region": {"type": "string"}}},
            REGION,
        ):
            tools[0]["inputSchema"] = schema
            await connection.refresh(force=True)
            assert [tool.name for tool in connection.tools] == ["sell", "plain"]
            await connection.call("sell", {"region": "north"})
            headers.append(
                {name.lower(): value for name, value in server.seen[-1].headers.items()}.get(
                    "mcp-param-region"
                )
            )
    assert headers == ["north", None, "north"]


async def test_a_server_that_only_ever_wants_to_wait_has_asked_nothing(opened: Opened) -> None:
    usual = modern()

    def answer(request: Any) -> Reply:
        reply = usual(request)
        if isinstance(request.body, dict) and request.body.get("method") == "tools/call":
            reply.body["result"] = {"resultType": "input_required", "requestState": "later"}
        return reply

    with ScriptedHttp(answer) as server:
        connection = await connected(opened, server)
        with pytest.raises(ServerError) as failed:
            await connection.call("sell", {})
        assert count_of(server, "tools/call") == MAX_ROUNDS + 1
    assert "asks" not in str(failed.value)
