"""Code that was written for casual-mcp runs with only the name of the package changed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import pickle
import pydoc
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import mcp_types
import pytest
from casual_llm import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    Model,
    SystemMessage,
    Tool,
    UserMessage,
)
from fastmcp import Client, FastMCP
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from kit.raw_server import raw_config, text_result

from casual_mcp_nb import (
    McpToolChat,
    ModelFactory,
    ToolCache,
    load_config,
    load_mcp_client,
    render_system_prompt,
)
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.compat import MODULES
from casual_mcp_nb.compat._clients import McpClient
from casual_mcp_nb.errors import ClosedError, ConfigError, ServerError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

# The paths by which casual-mcp's guides import; the type checker does not follow them.
from casual_mcp_nb.convert_tools import tool_from_mcp, tools_from_mcp  # isort: skip
from casual_mcp_nb.logging import configure_logging, get_logger  # isort: skip
from casual_mcp_nb.mcp_tool_chat import MetaDict  # isort: skip
from casual_mcp_nb.models import (
    ChatMessage,
    ExcludeSpec,
    RemoteServerConfig,
    StdioServerConfig,
    ToolSetConfig,
)  # isort: skip

from casual_mcp_nb.models import McpServerConfig, ToolResultMessage  # isort: skip
from casual_mcp_nb.models.chat_stats import (
    ChatStats,
    DiscoveryStats,
    TokenUsageStats,
    ToolCallStats,
)  # isort: skip

from casual_mcp_nb.models.config import Config, McpClientConfig, McpModelConfig  # isort: skip
from casual_mcp_nb.search_tools_tool import SearchToolsTool, generate_manifest  # isort: skip
from casual_mcp_nb.synthetic_tool import SyntheticTool, SyntheticToolResult  # isort: skip
from casual_mcp_nb.tool_discovery import partition_tools  # isort: skip
from casual_mcp_nb.tool_filter import ToolSetValidationError  # isort: skip
from casual_mcp_nb.tool_search_index import ToolSearchIndex  # isort: skip

CONFIG: dict[str, Any] = {
    "clients": {"desk": {"provider": "offline"}},
    "models": {"planner": {"client": "desk", "model": "offline"}},
    "servers": {name: {"bundled": name, "transport": "in-process"} for name in ("math", "time")},
    "tool_sets": {
        "sums": {"description": "Sums", "servers": {"math": True, "time": ["current_time"]}}
    },
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "casual_mcp_config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    return load_config()


@pytest.fixture
def deferred(config: Config) -> Config:
    return load_config(
        {**CONFIG, "tool_discovery": {"enabled": True, "defer_all": True, "max_search_results": 3}}
    )


async def test_a_chat_of_a_config_lists_its_tools_and_counts_a_turn(config: Config) -> None:
    chat = McpToolChat.from_config(config, system="You are exact.")
    tools = await chat.tool_cache.get_tools()
    messages = [UserMessage(content="What is 42 + 17?")]
    answered = await chat.chat(messages, model="planner")
    stats = chat.get_stats()
    await chat.mcp_client.close()
    assert {tool.server for tool in tools} == chat.server_names == set(config.servers)
    assert "59" in answered[-1].content
    assert any(message.role == "tool" for message in answered)
    assert stats is not None
    assert stats.tool_calls.total == stats.model_dump()["tool_calls"]["by_server"]["math"] == 1
    assert stats.model_dump()["llm_calls"] == stats.llm_calls == 2
    assert set(stats.model_dump()) == {"tokens", "tool_calls", "llm_calls", "discovery"}


async def test_a_chat_can_be_assembled_by_hand(config: Config) -> None:
    client = load_mcp_client(config)
    cache = ToolCache(client, ttl_seconds=0)
    factory = ModelFactory(config)
    names = set(config.servers)
    chat = McpToolChat(
        mcp_client=client,
        system="Be brief.",
        tool_cache=cache,
        server_names=names,
        model_factory=factory,
    )
    tools = await cache.get_tools()
    before = cache.version
    by_name = await chat.chat([UserMessage(content="What is 42 + 17?")], model="planner")
    with_model = await chat.chat(
        [SystemMessage(content="You know sums."), UserMessage(content="What is 3 * 5?")],
        model=factory.get_model("planner"),
    )
    result = await client.call_tool("math_add", {"a": 1, "b": 2})
    again = await cache.get_tools(force_refresh=True)
    await client.close()
    assert "59" in by_name[-1].content
    assert "15" in with_model[-1].content
    assert not result.is_error
    assert [tool.wire_name for tool in tools] == [tool.wire_name for tool in again]
    assert isinstance(before, int)


async def test_chat_takes_its_arguments_by_position(config: Config) -> None:
    model = scripted_model("Yes.")
    async with McpToolChat.from_config(config) as chat:
        chosen = config.tool_sets["sums"]
        await chat.chat(
            [UserMessage(content="Hello")], chosen, {"user": "u-1"}, model, "Be polite."
        )
    request = model.client.requests[0]
    assert request.messages[0].content.startswith("Be polite.")
    assert {tool["name"].partition("__")[0] for tool in request.tools} == {"math", "time"}
    assert len([tool for tool in request.tools if "time__" in tool["name"]]) == 1


async def test_tools_are_split_searched_and_described(deferred: Config) -> None:
    chat = McpToolChat.from_config(deferred)
    tools = await chat.tool_cache.get_tools()
    loaded, by_server = partition_tools(tools, deferred, set(deferred.servers))
    index = ToolSearchIndex([tool for owned in by_server.values() for tool in owned], {})
    search = SearchToolsTool(by_server, sorted(by_server), index, deferred.tool_discovery)
    result = await search.execute({"query": "add two numbers"})
    answered = await chat.chat([UserMessage(content="What is 42 + 17?")], model="planner")
    stats = chat.get_stats()
    await chat.mcp_client.close()
    assert loaded == []
    assert set(by_server) == {"math", "time"}
    assert [server for server, _ in index.search("add two numbers", max_results=1)] == ["math"]
    assert index.get_by_names(["math__add", "nothing"])[1] == ["nothing"]
    assert index.tool_count == len(tools)
    assert {server for server, _ in index.get_by_server("time")} == {"time"}
    assert 0 < len(result.newly_loaded_tools) <= 3
    assert generate_manifest(by_server) == search.system_prompt
    assert "59" in answered[-1].content
    assert stats is not None
    assert stats.discovery is not None
    assert stats.discovery.model_dump() == {
        "search_calls": 1,
        "tools_discovered": stats.discovery.tools_discovered,
    }
    assert stats.tool_calls.by_server["_synthetic"] == 1


@pytest.mark.defect("L6")
async def test_an_exact_search_on_the_wrong_server_loads_nothing_and_names_the_right_one(
    deferred: Config,
) -> None:
    async with McpToolChat.from_config(deferred) as chat:
        _, by_server = partition_tools(
            await chat.tool_cache.get_tools(), deferred, set(deferred.servers)
        )
    index = ToolSearchIndex([tool for owned in by_server.values() for tool in owned], {})
    search = SearchToolsTool(by_server, sorted(by_server), index, deferred.tool_discovery)
    result = await search.execute({"server_name": "math", "tool_names": ["time__current_time"]})
    assert result.newly_loaded_tools == []
    assert "server time" in result.content
    assert "Found" not in result.content


class Lamps:
    """A client of one's own: it has casual-mcp's two methods, and can be entered."""

    def __init__(self) -> None:
        self.called: list[tuple[str, dict[str, Any], Any]] = []
        self.entered = 0

    async def __aenter__(self) -> Lamps:
        self.entered += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.entered -= 1

    async def list_tools(self) -> list[Any]:
        on = {"type": "object", "properties": {"on": {"type": "boolean"}}}
        return [
            mcp_types.Tool(name="desk_lamp", description="Switch the lamp.", input_schema=on),
            SimpleNamespace(name="shelf_sort", description=None),
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None = None
    ) -> Any:
        self.called.append((name, arguments, meta))
        if name == "shelf_sort":
            raise RuntimeError("the shelf is full")
        text = SimpleNamespace(type="text", text="on")
        image = SimpleNamespace(type="image", mimeType="image/png")
        return SimpleNamespace(content=[text, image], structuredContent={"on": True})


async def test_a_client_of_ones_own_is_asked_and_its_tools_belong_to_the_named_servers() -> None:
    client = Lamps()
    model = scripted_model(
        calls(call("desk_lamp", on=True), call("shelf__sort"), call("desk_nothing")), "Done."
    )
    chat = McpToolChat(client, tool_cache=ToolCache(client), server_names={"desk", "shelf"})
    async with chat:
        assert client.entered
        answered = await chat.chat("Light!", model=model, meta={"user": "u-1"})
        only_desk = ToolSetConfig(servers={"desk": True})
        await chat.chat("Again!", only_desk, model=(second := scripted_model("Done.")))
        assert {tool.wire_name for tool in await chat.tool_cache.get_tools()} == {
            "desk__lamp",
            "shelf__sort",
        }
    assert not client.entered
    assert chat.mcp_client is client
    assert chat.server_names == {"desk", "shelf"}
    results = [str(message.content) for message in answered if message.role == "tool"]
    assert results[0].startswith("on\n[image: image/png]")
    assert '{"on": true}' in results[0]
    assert "the shelf is full" in results[1]
    assert client.called == [
        ("desk_lamp", {"on": True}, {"user": "u-1"}),
        ("shelf_sort", {}, {"user": "u-1"}),
    ]
    assert [tool["name"] for tool in second.client.requests[0].tools] == ["desk__lamp"]


async def test_a_cache_of_ones_own_lists_and_a_fastmcp_client_with_its_own_calls_is_asked() -> None:
    server = FastMCP("desk")

    @server.tool
    def lamp(on: bool) -> str:
        """Switch the lamp."""
        return "on" if on else "off"

    @server.tool
    def hidden() -> str:
        """Is not in the cache."""
        return "seen"

    class Counting(Client[Any]):
        calls = 0

        async def call_tool(self, *args: Any, **more: Any) -> Any:
            Counting.calls += 1
            return await super().call_tool(*args, **more)

    class Cache:
        async def get_tools(self) -> list[Any]:
            async with Client(server) as client:
                return [tool for tool in await client.list_tools() if tool.name == "lamp"]

    model = scripted_model(call("lamp", on=True), "Done.")
    async with McpToolChat(Counting(server), tool_cache=Cache(), server_names={"desk"}) as chat:
        answered = await chat.chat("Light!", model=model)
    assert [message.content for message in answered if message.role == "tool"] == ["on"]
    assert Counting.calls == 1
    assert [tool["name"] for tool in model.client.requests[0].tools] == ["desk__lamp"]


async def test_mocks_of_a_client_a_cache_and_a_model_are_taken() -> None:
    client, cache, model = AsyncMock(), Mock(), AsyncMock(spec=Model)
    cache.get_tools = AsyncMock(return_value=[])
    client.call_tool = AsyncMock(
        return_value=SimpleNamespace(content=[SimpleNamespace(type="text", text="3")])
    )
    model.chat = AsyncMock(return_value=AssistantMessage(content="Hello."))
    model.get_usage = Mock(return_value=None)
    async with McpToolChat(client, "Be brief.", cache) as chat:
        answered = await chat.chat([UserMessage(content="Hi")], model=model)
        result = await chat.execute(
            AssistantToolCall(
                id="c-1", function=AssistantToolCallFunction(name="math_add", arguments='{"a": 1}')
            )
        )
    assert [message.content for message in answered] == ["Hello."]
    assert [message.role for message in model.chat.call_args[1]["messages"]] == ["system", "user"]
    assert result.content == "3"
    client.call_tool.assert_called_once_with("math_add", {"a": 1}, meta=None)


def test_an_object_without_the_methods_is_refused_with_the_one_that_it_lacks(
    config: Config,
) -> None:
    with pytest.raises(UsageError, match="list_tools"):
        McpToolChat(object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="get_tools"):
        McpToolChat(load_mcp_client(config), tool_cache=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="call_tool") as lacks:
        McpToolChat(SimpleNamespace(list_tools=print))  # type: ignore[arg-type]
    assert lacks.value.hint


async def test_custom_toolsets_are_taken_and_checked(config: Config) -> None:
    sums = ToolSetConfig(
        description="Sums", servers={"math": True, "time": ExcludeSpec(exclude=["current_time"])}
    )
    async with McpToolChat.from_config(config) as chat:
        answered = await chat.chat(
            [UserMessage(content="What is 42 * 17?")], model="planner", tool_set=sums
        )
        assert "714" in answered[-1].content
        with pytest.raises(ToolSetValidationError):
            await chat.chat(
                [UserMessage(content="?")],
                model="planner",
                tool_set=ToolSetConfig(servers={"nowhere": True}),
            )


async def test_a_conversation_is_kept_by_the_caller(config: Config) -> None:
    async with McpToolChat.from_config(config) as chat:
        messages: list[Any] = [SystemMessage(content="You know sums.")]
        for question, sum_of_it in (("What is 42 + 17?", "59"), ("What is 20 + 7?", "27")):
            messages.append(UserMessage(content=question))
            messages.extend(await chat.chat(messages, model="planner"))
            assert sum_of_it in messages[-1].content
            stats = chat.get_stats()
            assert stats is not None
            assert stats.tool_calls.total == 1


class Shouting(Model):
    """A custom model: its prompts and answers go through its `chat`."""

    async def chat(self, *args: Any, **more: Any) -> AssistantMessage:
        message = await super().chat(*args, **more)
        return message.model_copy(update={"content": str(message.content).upper()})


@pytest.mark.defect("L2")
async def test_a_model_with_its_own_chat_is_asked_through_it(config: Config) -> None:
    model = Shouting(scripted_model("all is well.").client, "script")
    async with McpToolChat.from_config(config) as chat:
        answered = await chat.chat([UserMessage(content="How are things?")], model=model)
    assert answered[-1].content == "ALL IS WELL."


class Adder:
    """An object with nothing but `chat` and `get_usage`, which calls the first tool that it is
    offered.
    """

    def __init__(self) -> None:
        self.offered: list[Tool] = []

    async def chat(self, messages: list[Any], options: Any = None) -> AssistantMessage:
        self.offered = options.tools
        if messages[-1].role == "tool":
            return AssistantMessage(content=messages[-1].content)
        function = AssistantToolCallFunction(
            name=self.offered[0].name, arguments='{"point": {"x": 4}}'
        )
        return AssistantMessage(
            content="", tool_calls=[AssistantToolCall(id="c", function=function)]
        )

    def get_usage(self) -> None:
        return None


@pytest.mark.defect("L2")
async def test_an_object_with_a_chat_is_offered_the_tools_in_casual_llms_form() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"point": {"$ref": "#/$defs/Point"}},
        "$defs": {"Point": point},
    }
    odd = {"type": "object", "properties": {"either": {"type": ["string", "null"]}}}
    raw = [{"name": "double", "inputSchema": schema}, {"name": "odd", "inputSchema": odd}]
    server = raw_config(tools=raw, calls={"double": {"result": text_result("8")}})
    model = Adder()
    async with McpToolChat.from_config(load_config({"servers": {"desk": server}})) as chat:
        answered = await chat.chat([UserMessage(content="Double it.")], model=model)
    assert answered[-1].content == "8"
    assert [tool.name for tool in model.offered] == ["desk__double", "desk__odd"]
    assert model.offered[0].parameters["point"].model_dump(exclude_none=True) == point


@pytest.mark.defect("L2")
async def test_the_messages_of_a_chat_are_read_by_kind(config: Config) -> None:
    meta: MetaDict = {"user": "u-1"}
    async with McpToolChat.from_config(config) as chat:
        messages: list[ChatMessage] = [UserMessage(content="What is 42 + 17?")]
        answered = await chat.chat(messages, meta=meta, model="planner")
        await chat.tool_cache.invalidate()
        tools = await chat.tool_cache.get_tools()
    stats = chat.get_stats()
    assert isinstance(stats, ChatStats)
    assert isinstance(stats.tokens, TokenUsageStats)
    assert isinstance(stats.tool_calls, ToolCallStats)
    assert stats.discovery is None or isinstance(stats.discovery, DiscoveryStats)
    called = [
        call.function.name
        for message in answered
        if message.role == "assistant"
        for call in message.tool_calls or ()
    ]
    results = [message for message in answered if isinstance(message, ToolResultMessage)]
    assert called == [result.name for result in results] == list(stats.tool_calls.by_tool)
    assert [name.partition("__")[0] for name in called] == ["math"]
    assert {tool_from_mcp(tool).name for tool in tools} >= set(called)
    assert all(isinstance(server, McpServerConfig) for server in config.servers.values())


class Greeter:
    """As casual-mcp's guide writes one: its definition is casual-llm's."""

    name = "greet"
    definition = Tool.from_input_schema(
        "greet", "Greet somebody.", {"properties": {"who": {"type": "string"}}}
    )

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        return SyntheticToolResult(content=f"Hello {args['who']}", newly_loaded_tools=[])


async def test_a_fastmcp_client_and_a_synthetic_tool_of_ones_own() -> None:
    server = FastMCP("desk")

    @server.tool
    def lamp(on: bool) -> str:
        """Switch the lamp."""
        return "on" if on else "off"

    model = scripted_model(calls(call("desk__lamp", on=True), call("greet", who="Ada")), "Done.")
    greeter: SyntheticTool = Greeter()  # type: ignore[assignment]
    async with McpToolChat(
        Client(server), server_names={"desk"}, synthetic_tools=[greeter]
    ) as chat:
        answered = await chat.chat([UserMessage(content="Light!")], model=model)
        converted = tools_from_mcp(await chat.tool_cache.get_tools())
    assert [message.content for message in answered if message.role == "tool"] == [
        "on",
        "Hello Ada",
    ]
    assert [(tool.name, tool.required) for tool in converted] == [("desk__lamp", ["on"])]


async def test_tools_of_the_sdk_are_read_with_their_servers_names() -> None:
    server = FastMCP("desk")

    @server.tool
    def lamp(on: bool) -> str:
        """Switch the lamp."""
        return "on"

    async with Client(server) as client:
        listed = await client.list_tools()
    prefixed = [tool.model_copy(update={"name": f"desk_{tool.name}"}) for tool in listed]
    index = ToolSearchIndex(prefixed, {"desk_lamp": "desk"})
    assert [(owner, tool.name) for owner, tool in index.search("switch the lamp")] == [
        ("desk", "desk_lamp")
    ]
    assert [tool.name for tool in tools_from_mcp(prefixed)] == ["desk_lamp"]
    assert generate_manifest({"desk": prefixed}).startswith("- desk (1 tool): lamp")


@pytest.mark.defect("L2")
def test_a_fastmcp_client_of_a_command_or_a_url_is_connected_again() -> None:
    here = Client(StdioTransport("python", ["server.py"], env={"ZONE": "UTC"}))
    there = Client(
        StreamableHttpTransport(
            "http://127.0.0.1:9/mcp", headers={"x-desk": "1"}, auth="token-of-the-desk"
        )
    )
    older = Client(SSETransport("http://127.0.0.1:9/sse"))
    configs = [
        McpToolChat(client, server_names={"desk"}).server_manager.config_of("desk")
        for client in (here, there, older)
    ]
    assert [config and (config.command, config.url, config.transport) for config in configs] == [
        ("python", None, None),
        (None, "http://127.0.0.1:9/mcp", "http"),
        (None, "http://127.0.0.1:9/sse", "sse"),
    ]
    assert configs[0] is not None
    assert configs[0].args == ("server.py",)
    assert configs[1] is not None
    assert configs[1].auth.get_secret_value() == "token-of-the-desk"  # type: ignore[union-attr]


@pytest.mark.defect("L2")
async def test_a_client_is_entered_twice_and_left_without_being_closed(config: Config) -> None:
    client = load_mcp_client(config)
    assert not client.is_connected()
    async with client:
        async with client:
            assert client.is_connected()
        assert client.is_connected()
    assert not client.is_connected()
    async with client:
        assert await client.ping()
        assert {tool.server for tool in await client.list_tools()} == set(config.servers)
        assert (list(await client.list_resources()), list(await client.list_prompts())) == ([], [])
    chat = McpToolChat(client, server_names=set(config.servers))
    for _ in range(2):
        async with chat:
            answered = await chat.chat(
                "What is 42 + 17?", model=ModelFactory(config).get_model("planner")
            )
            assert "59" in answered[-1].content
    assert not client.is_connected()
    await client.close()
    with pytest.raises(ClosedError):
        await client.list_tools()


@pytest.mark.defect("L2")
async def test_a_result_of_a_client_reads_as_fastmcps() -> None:
    server = FastMCP("desk")

    @server.tool
    def count(words: str) -> int:
        """Count words."""
        return len(words.split())

    @server.tool
    def lamp(on: bool) -> dict[str, bool]:
        """Switch the lamp, which fails when it is off."""
        if not on:
            raise ValueError("the bulb is broken")
        return {"on": on}

    async with Client(server) as theirs, McpClient.of(Client(server)) as ours:
        for name, arguments in (("count", {"words": "one two"}), ("lamp", {"on": True})):
            there, here = (
                await theirs.call_tool(name, arguments),
                await ours.call_tool(name, arguments),
            )
            assert (here.data, here.structured_content, here.is_error) == (
                there.data,
                there.structured_content,
                there.is_error,
            )
            assert [part.text for part in here.content] == [part.text for part in there.content]
        with pytest.raises(ServerError, match="bulb"):
            await ours.call_tool("lamp", {"on": False})
        assert (await ours.call_tool("lamp", {"on": False}, raise_on_error=False)).is_error


@pytest.mark.defect("L2")
def test_a_hit_is_a_pair_and_an_unknown_model_a_value_error(config: Config) -> None:
    tools = [ToolSpec("desk", "lamp", "Switch the lamp."), ToolSpec("shelf", "sort", "Sort books.")]
    hit = ToolSearchIndex(tools).search("switch the lamp")[0]
    assert hit == ("desk", tools[0])
    assert (hit[0], hit[1], len(hit)) == (*hit, 2)
    assert hit in {("desk", tools[0])}
    for unknown in ("nothing", "desk"):
        with pytest.raises(ValueError, match=unknown):
            ModelFactory(config).get_model(unknown)
    content, loaded = SyntheticToolResult("Found.", tools)
    assert (content, loaded) == SyntheticToolResult("Found.", tools)


@pytest.mark.defect("H3")
async def test_one_call_is_run_and_formatted(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(name: str, arguments: str) -> AssistantToolCall:
        return AssistantToolCall(
            id="c-1", function=AssistantToolCallFunction(name=name, arguments=arguments)
        )

    monkeypatch.setenv("TOOL_RESULT_FORMAT", "function_args_result")
    async with McpToolChat(load_mcp_client(config)) as chat:
        texts = [
            (await chat.execute(called(name, arguments), meta={"user": "u-1"})).content
            for name, arguments in (
                ("math_add", '{"a": 1, "b": 2}'),
                ("math_add", "{"),
                ("math_nothing", "{}"),
            )
        ]
    assert texts[0] == "math_add(a=1, b=2) → 3"
    assert [text.startswith("Error") for text in texts] == [False, True, True]


@pytest.mark.defect("H3")
async def test_primed_tools_are_returned_until_they_are_invalidated(config: Config) -> None:
    client = load_mcp_client(config)
    cache = ToolCache(client, ttl_seconds=60)
    before, primed = cache.version, [ToolSpec("desk", "lamp")]
    await cache.prime(primed)
    assert await cache.get_tools() == primed
    assert cache.version > before
    assert not client.is_connected()
    assert {tool.server for tool in await cache.get_tools(force_refresh=True)} == set(
        config.servers
    )
    await client.close()


def test_a_client_from_a_config_is_reconnected() -> None:
    client = Client(
        {
            "here": {"command": "python", "args": ["server.py"]},
            "there": {"url": "http://127.0.0.1:9/mcp"},
        }
    )
    assert set(McpToolChat(client).server_names) == {"here", "there"}


def test_configs_can_be_built_from_the_classes() -> None:
    config = Config(
        clients={
            "desk": McpClientConfig(
                provider="openai", base_url="http://127.0.0.1:9/v1", api_key="sk-1"
            )
        },
        models={"small": McpModelConfig(client="desk", model="m-1", temperature=0.2)},
        servers={
            "here": StdioServerConfig(command="python", args=["server.py"], env={"ZONE": "UTC"}),
            "there": RemoteServerConfig(
                url="http://127.0.0.1:9/mcp", headers={"x-desk": "1"}, defer_loading=True
            ),
        },
    )
    assert config.servers["here"].transport == "stdio"
    assert config.servers["there"].defer_loading
    with pytest.raises(ValueError, match="command"):
        StdioServerConfig()  # type: ignore[call-arg]


def test_config_errors_are_raised_as_in_casual_mcp(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        load_config(tmp_path / "none.json")
    assert isinstance(missing.value, ConfigError)
    (tmp_path / "bad.json").write_text('{"models": {"a": {"client": "none", "model": "m"}}}')
    with pytest.raises(ValueError, match="none"):
        load_config(tmp_path / "bad.json")


async def test_a_template_of_theirs_is_rendered(config: Config, tmp_path: Path) -> None:
    (tmp_path / "prompt-templates").mkdir()
    template = (
        "{% for tool in tools %}{{ tool.name }}: {{ tool.inputSchema.properties | tojson }}\n{%"
        " endfor %}{{ end }}"
    )
    (tmp_path / "prompt-templates" / "listed.j2").write_text(template)
    async with load_mcp_client(config) as client:
        tools = await client.list_tools()
    prompt = await asyncio.to_thread(
        render_system_prompt, "listed.j2", tools, {"end": "That is all."}
    )
    assert 'math__add: {"a"' in prompt
    assert prompt.endswith("That is all.")


def test_the_log_is_configured_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = get_logger("tests.log")
    assert logger is logging.getLogger("casual_mcp_nb.tests.log")
    for _ in range(2):
        configure_logging("WARNING", logger)
    logger.warning("seen")
    logger.info("unseen")
    logger.handlers.clear()
    assert capsys.readouterr().err.count("seen") == 1


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_theirs_has_its_names(name: str) -> None:
    full = f"casual_mcp_nb.{name}"
    module = importlib.import_module(full)
    spec = importlib.util.find_spec(full)
    assert spec is not None
    assert (module.__name__, sys.modules[full], spec.loader) == (full, module, module.__loader__)
    assert set(module.__all__) <= set(vars(module))
    assert name in pydoc.plain(pydoc.render_doc(full))
    for each in module.__all__:
        value = getattr(module, each)
        if isinstance(value, type):
            assert pickle.loads(pickle.dumps(value)) is value


def test_an_unknown_module_is_not_made() -> None:
    assert importlib.util.find_spec("casual_mcp_nb.nothing") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("casual_mcp_nb.tool_cache.nothing")
