"""The session's tools as one MCP server, used by the SDK's own client over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastmcp import FastMCP
from kit.desk import PIXEL, Desk
from kit.shops import shelves
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, TextContent, ToolListChangedNotification

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.serve.mcp_endpoint import McpEndpoint
from casual_mcp_nb.serve.mcp_questions import ALWAYS, ONCE

DISCOVERY = {"tool_discovery": {"enabled": True, "defer_all": True}}
MATH = {"bundled": "math", "transport": "in-process"}
SUMS = {"description": "Sums.", "servers": {"math": ["add"]}}
TOKEN = "not-a-real-token-but-long"
Connect = Callable[..., Any]


def text(result: Any) -> str:
    """The texts of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def names(listed: Any) -> list[str]:
    return [tool.name for tool in listed.tools]


class Heard:
    """The notifications that a client received."""

    def __init__(self) -> None:
        self.list_changes = 0
        self.changed = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.list_changes += 1
            self.changed.set()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def opened(desk: Desk) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_session(config: dict[str, Any] | None = None, **options: Any) -> Session:
        in_process = options.pop("in_process", {"desk": desk.server})
        sessions.append(Session(config or {}, in_process=in_process, quiet=True, **options))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


@asynccontextmanager
async def clients() -> AsyncIterator[Connect]:
    """Yield a function that connects a client until the end of the body."""
    async with AsyncExitStack() as stack:

        async def connect(endpoint: McpEndpoint, mode: str = "legacy", **options: Any) -> Client:
            options["mode"] = mode
            return await stack.enter_async_context(Client(endpoint.url, **options))

        yield connect


async def test_five_hundred_tools_behind_search(opened: Callable[..., Session]) -> None:
    async with clients() as connect:
        session = opened(DISCOVERY, in_process=shelves(10, 500))
        endpoint = await session.serve.mcp_async()
        heard, other_heard = Heard(), Heard()
        client, other = (
            await connect(endpoint, message_handler=heard),
            await connect(endpoint, message_handler=other_heard),
        )
        (search,) = (await client.list_tools()).tools
        assert search.name == "search_tools"
        assert "shelf-00" in (search.description or "")
        assert names(await other.list_tools()) == ["search_tools"]

        wanted = "shelf-04__send_photo_5"
        early = await client.call_tool(wanted, {"photo": "x"})
        assert early.is_error
        assert "search_tools" in text(early)
        found = await client.call_tool("search_tools", {"tool_names": [wanted]})
        assert not found.is_error
        assert wanted in text(found)
        await heard.changed.wait()
        assert heard.list_changes == 1
        assert names(await client.list_tools()) == ["search_tools", wanted]
        called = await client.call_tool(wanted, {"photo": "x"})
        assert called.is_error
        assert "does nothing" in text(called)

        # What one client found, no other one has.
        assert (await other.call_tool(wanted, {"photo": "x"})).content == early.content
        assert names(await other.list_tools()) == ["search_tools"]
        assert not other_heard.list_changes
        assert session.turns == []
        assert endpoint.status.clients == 2


async def test_all_tools_and_the_bridge_are_for_hosts_that_list_once(
    opened: Callable[..., Session],
) -> None:
    async with clients() as connect:
        session = opened(DISCOVERY)
        everything = await connect(await session.serve.mcp_async(all_tools=True))
        assert "desk__add" in names(await everything.list_tools())
        assert "search_tools" not in names(await everything.list_tools())

        heard = Heard()
        bridged = await connect(await session.serve.mcp_async(bridge=True), message_handler=heard)
        listed = names(await bridged.list_tools())
        assert sorted(listed) == ["call_tool", "search_tools"]
        await bridged.call_tool("search_tools", {"query": "add two numbers"})
        result = await bridged.call_tool(
            "call_tool", {"name": "desk__add", "arguments": {"a": 1, "b": 2}}
        )
        assert result.structured_content == {"sum": 3}
        assert names(await bridged.list_tools()) == listed
        assert not heard.list_changes
        with pytest.raises(UsageError):
            session.serve.mcp(all_tools=True, bridge=True)


async def test_a_host_runs_programs(opened: Callable[..., Session]) -> None:
    pytest.importorskip("pydantic_monty")
    async with clients() as connect:
        session = opened(
            {"tool_discovery": {"delivery": "code"}}, approval={"desk": {"burn": "always"}}
        )
        client = await connect(await session.serve.mcp_async())
        (listed,) = (await client.list_tools()).tools
        assert (listed.name, listed.annotations.destructive_hint) == ("run_code", True)
        assert "def desk__add(*, a: int, b: int)" in listed.description
        result = await client.call_tool(
            "run_code", {"code": "[desk__add(a=n, b=1)['sum'] for n in range(3)]"}
        )
        assert result.structured_content == {"result": [1, 2, 3]}
        refused = await client.call_tool("run_code", {"code": "desk__burn(what='it')"})
        assert refused.is_error
        assert "PermissionError" in text(refused)
        made = [(str(record.tool), record.caller) for record in session.consent.audit]
        assert made.count(("desk:add", "tool")) == 3
        assert made.count(("_synthetic:run_code", "host")) == 2
        everything = await connect(await session.serve.mcp_async(all_tools=True))
        assert "desk__add" in names(await everything.list_tools())


async def test_results_pass_through(opened: Callable[..., Session]) -> None:
    async with clients() as connect:
        client = await connect(await opened().serve.mcp_async())
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["desk__burn"].annotations.destructive_hint is True
        assert tools["desk__add"].input_schema["required"] == ["a", "b"]
        assert tools["desk__add"].output_schema is not None
        assert (await client.call_tool("desk__add", {"a": 1, "b": 2})).structured_content == {
            "sum": 3
        }
        drawn = await client.call_tool("desk__draw", {})
        assert [part.type for part in drawn.content] == ["text", "image", "resource_link"]
        assert drawn.content[1].mime_type == "image/png"
        assert len(drawn.content[1].data) > len(PIXEL)

        for name, arguments in (
            ("desk__fail", {}),
            ("desk__add", {"a": "x"}),
            ("nothing", {}),
            ("desk__" + "x" * 1000, {}),
        ):
            failed = await client.call_tool(name, arguments)
            assert failed.is_error
            assert text(failed)
        assert not (await client.call_tool("desk__add", {"a": 1, "b": 1})).is_error


async def test_progress_and_cancellation_pass_through(
    opened: Callable[..., Session], desk: Desk
) -> None:
    async with clients() as connect:
        session = opened()
        client = await connect(await session.serve.mcp_async())
        reports: list[tuple[float, float | None, str | None]] = []

        async def on_progress(*report: Any) -> None:
            reports.append(report)

        assert (
            text(await client.call_tool("desk__steps", {}, progress_callback=on_progress)) == "done"
        )
        assert reports == [(1, 2, "one"), (2, 2, "two")]

        waiting = asyncio.create_task(client.call_tool("desk__wait", {}))
        await session.parts.engine.wait(desk.began.wait())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        while not desk.ended:
            # Another call shows that the connection has lived on.
            assert not (await client.call_tool("desk__add", {"a": 1, "b": 2})).is_error
        assert {record.caller for record in session.consent.audit} == {"host"}
        assert ToolName("desk", "wait") in {
            record.tool for record in session.consent.audit if record.status == "stopped"
        }


async def test_lists_follow_the_selection_and_the_servers(
    opened: Callable[..., Session], desk: Desk
) -> None:
    async with clients() as connect:
        session = opened({"servers": {"math": MATH}, "tool_sets": {"sums": SUMS}})
        heard = Heard()
        client = await connect(await session.serve.mcp_async(), message_handler=heard)
        in_set = await connect(await session.serve.mcp_async(tool_set="sums"))
        assert names(await in_set.list_tools()) == ["math__add"]
        before = names(await client.list_tools())

        session.selection.tools_off.add("desk:burn")
        # The stream for what comes unasked may not be open yet; a call tells it too.
        await client.call_tool("desk__add", {"a": 1, "b": 2})
        await heard.changed.wait()
        assert set(before) - set(names(await client.list_tools())) == {"desk__burn"}
        assert (await client.call_tool("desk__burn", {"what": "x"})).is_error

        heard.changed.clear()

        @session.tool
        def double(x: int) -> int:
            """Double a number."""
            return 2 * x

        await heard.changed.wait()
        assert "notebook__double" in names(await client.list_tools())
        assert text(await client.call_tool("notebook__double", {"x": 4})) == "8"
        assert names(await in_set.list_tools()) == ["math__add"]
        assert (await in_set.call_tool("notebook__double", {"x": 4})).is_error
        with pytest.raises(UnknownNameError):
            session.serve.mcp(tool_set="nowhere")


def answering(*given: str | None) -> Any:
    """Answers forms with these texts, one after another; None declines."""
    asked: list[Any] = []

    async def answer(_context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        text = given[min(len(asked), len(given)) - 1]
        field = next(iter(params.requested_schema["properties"]))
        return (
            ElicitResult(action="decline")
            if text is None
            else ElicitResult(action="accept", content={field: text})
        )

    answer.asked = asked  # type: ignore[attr-defined]
    return answer


async def test_a_policy_asks_the_person_of_the_host(
    opened: Callable[..., Session], desk: Desk
) -> None:
    async with clients() as connect:
        session = opened(approval={"desk": "destructive"})
        endpoint = await session.serve.mcp_async()
        burn = {"what": "the \u202eshop"}
        mute = await connect(endpoint)
        refused = await mute.call_tool("desk__burn", burn)
        assert refused.is_error
        assert "--approval host" in text(refused)

        person = answering(None, ONCE, ALWAYS)
        client = await connect(endpoint, elicitation_callback=person)
        assert (await client.call_tool("desk__burn", burn)).is_error
        assert not desk.burnt
        for _ in range(4):
            assert not (await client.call_tool("desk__burn", burn)).is_error
        assert desk.burnt == 4
        assert len(person.asked) == 3
        assert "shop" in person.asked[0].message
        assert "\u202e" not in person.asked[0].message
        long = await client.call_tool("desk__burn", {"what": "x" * 30_000})
        assert not long.is_error, "it was allowed from then on"
        # An answer holds for the client that gave it.
        assert (await mute.call_tool("desk__burn", burn)).is_error
        assert await connect(endpoint, elicitation_callback=answering("deny"))
        assert desk.burnt == 5
        trusting = await connect(await session.serve.mcp_async(approval="host"))
        assert not (await trusting.call_tool("desk__burn", burn)).is_error


async def test_without_a_policy_the_person_of_the_host_is_asked_about_destructive_tools(
    opened: Callable[..., Session], desk: Desk
) -> None:
    async with clients() as connect:
        person = answering(ONCE)
        endpoint = await opened().serve.mcp_async()
        client, mute = await connect(endpoint, elicitation_callback=person), await connect(endpoint)
        assert (await mute.call_tool("desk__burn", {"what": "x"})).is_error
        assert not (await client.call_tool("desk__burn", {"what": "x"})).is_error
        assert desk.burnt == 1
        assert len(person.asked) == 1
        strict = await connect(await opened(strict=True).serve.mcp_async())
        assert (await strict.call_tool("desk__add", {"a": 1, "b": 2})).is_error


async def test_a_server_asks_the_person_whose_call_it_runs(
    opened: Callable[..., Session], desk: Desk
) -> None:
    async with clients() as connect:
        endpoint = await opened().serve.mcp_async()
        ada, mute = answering("Ada"), await connect(endpoint)
        # This server, of the version without a way back, is connected by an older one from the
        # second call on.
        await mute.call_tool("desk__ask", {})
        asked = await connect(endpoint, elicitation_callback=ada)
        assert "Ada" in text(await asked.call_tool("desk__ask", {}))
        assert "desk" in ada.asked[0].message
        assert text(await mute.call_tool("desk__ask", {})).startswith("decline")
        assert len(ada.asked) == 1

        # In this process it is known during which call it asks, also with calls of two clients at
        # it.
        waiting = asyncio.create_task(mute.call_tool("desk__wait", {}))
        await endpoint._engine.wait(desk.began.wait())
        assert "Ada" in text(await asked.call_tool("desk__ask", {}))
        assert len(ada.asked) == 2
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_other_computers_and_pages_are_kept_out(
    opened: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()
    with pytest.raises(UsageError):
        await session.serve.mcp_async(host="0.0.0.0")
    monkeypatch.setenv("MCP_SERVE_TOKEN", TOKEN)
    endpoint = await session.serve.mcp_async()
    assert TOKEN not in f"{endpoint} {endpoint!r} {endpoint._repr_mimebundle_()}"
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accepted = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient() as http:

        async def status(**headers: str) -> int:
            return (await http.post(endpoint.url, json=hello, headers=headers)).status_code

        assert await status() == 401
        assert await status(**{**accepted, "Origin": "https://example.com"}) == 403
        assert await status(**{**accepted, "Host": "example.com"}) == 403
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        Client(streamable_http_client(endpoint.url, http_client=http)) as client,
    ):
        assert "desk__add" in names(await client.list_tools())


async def test_a_session_is_a_client_of_another_one(opened: Callable[..., Session]) -> None:
    session = opened(DISCOVERY)
    with session.serve.mcp() as endpoint:
        config = {
            "servers": {
                "far": {"url": endpoint.url},
                "older": {"url": endpoint.url, "protocol": "legacy"},
            }
        }
        async with Session(config, in_process={}, quiet=True, name="near") as near:
            tools = sorted(str(tool.tool_name) for tool in near.tools)
            assert tools == ["far:call_tool", "far:search_tools", "older:search_tools"]
            assert near.servers["far"].protocol_version == "2026-07-28"
            await near.tools.call_async("far:search_tools", query="add two numbers")
            added = await near.tools.call_async(
                "far:call_tool", name="desk__add", arguments={"a": 1, "b": 2}
            )
            assert added.structured == {"sum": 3}
            await near.tools.call_async("older:search_tools", query="add two numbers")
            assert (await near.tools.call_async("older:desk__add", a=1, b=2)).structured == {
                "sum": 3
            }
    assert endpoint.closed
    assert endpoint.status.closed


async def test_it_ends_with_calls_running(opened: Callable[..., Session], desk: Desk) -> None:
    session = opened()
    endpoint = await session.serve.mcp_async()
    async with Client(endpoint.url) as client:
        running = asyncio.create_task(client.call_tool("desk__wait", {}))
        await session.parts.engine.wait(desk.began.wait())
        await session.close_async()
        assert desk.ended == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await endpoint.wait_async()
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(endpoint.url)
    await endpoint.close_async()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_stubs_of_tools_with_an_output_schema_are_readable(
    opened: Callable[..., Session], mode: str
) -> None:
    session = opened(in_process={"stock": stock()})
    stubs = {"stock:name": "a lamp", "stock:items": ["lamp"], "stock:item": {"pieces": 3}}
    wrong = {"stock:name": 5, "stock:items": "lamps", "stock:item": "three lamps"}
    async with clients() as connect:
        client = await connect(await session.serve.mcp_async(), mode=mode)
        listed = (await client.list_tools()).tools
        assert all(tool.output_schema for tool in listed)
        with session.tools.mock(stubs):
            answers = [await client.call_tool(tool.name, {}) for tool in listed]
        assert not any(answer.is_error for answer in answers)
        assert [answer.structured_content for answer in answers] == [
            {"result": "a lamp"},
            {"result": ["lamp"]},
            {"pieces": 3},
        ]
        # The SDK's client would raise for these, and nobody could read them.
        with session.tools.mock(wrong):
            answers = [await client.call_tool(tool.name, {}) for tool in listed]
    assert all(answer.is_error for answer in answers)
    assert [answer.content[0].text for answer in answers] == ["5", "lamps", "three lamps"]
    assert all("output schema" in answer.content[1].text for answer in answers)


def stock() -> FastMCP[Any]:
    """A server whose tools all declare what they return."""
    server: FastMCP[Any] = FastMCP("stock")

    @server.tool
    def name() -> str:
        """Get a text."""
        return "a desk"

    @server.tool
    def items() -> list[str]:
        """Get a list."""
        return ["desk"]

    @server.tool
    def item() -> dict[str, int]:
        """Get an object."""
        return {"pieces": 1}

    return server
