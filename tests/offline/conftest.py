"""A conversation in which the offline planner meets real servers, or tools made for the case."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import ChatMessage, ToolResultMessage, UserMessage
from fastmcp import Client
from kit.loop_guard import ROOT

from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.bundled import BUNDLED, build
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.providers.builtin.offline import OfflineClient
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.servers.convert import tool_from_mcp


@dataclass
class Said:
    """The planner's decisions in one turn."""

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    rounds: list[list[str]]

    @property
    def searches(self) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == SearchToolsTool.name]

    @property
    def tools(self) -> list[tuple[str, dict[str, Any]]]:
        return [(name, arguments) for name, arguments in self.calls if name != SearchToolsTool.name]


class Room:
    """A conversation of the offline planner with tools, some of them behind the search tool."""

    def __init__(
        self,
        catalog: Catalog,
        run: Callable[[ToolSpec, dict[str, Any]], Awaitable[str]],
        loaded: set[str],
    ) -> None:
        self.catalog = catalog
        self.run = run
        self.deferred = [tool for tool in catalog if tool.server not in loaded]
        self.offered = [tool for tool in catalog if tool.server in loaded]
        self.search = SearchToolsTool(self.deferred)
        self.model = ChatModel(OfflineClient(), "offline")
        self.messages: list[ChatMessage] = []

    async def ask(self, text: str) -> Said:
        self.messages.append(UserMessage(content=text))
        said = Said("", [], [])
        for _ in range(8):
            definitions = [tool.definition for tool in self.offered]
            if self.deferred:
                definitions.append(self.search.definition)
            message = (await self.model.complete(self.messages, definitions)).message
            self.messages.append(message)
            if not message.tool_calls:
                said.text = message.content or ""
                return said
            said.rounds.append([call.id for call in message.tool_calls])
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                said.calls.append((call.function.name, arguments))
                result = await self._result(call.function.name, arguments)
                self.messages.append(
                    ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=result)
                )
        raise AssertionError(f"The planner goes on for ever: {said.calls}")

    async def _result(self, name: str, arguments: dict[str, Any]) -> str:
        if name == self.search.name:
            found = await self.search.execute(arguments)
            self.offered += found.newly_loaded_tools
            return found.content
        return await self.run(self.catalog.by_wire_name[name], arguments)


_TOOLS: list[ToolSpec] = []
"""The tools of the bundled servers, once they were asked for them: to build all these servers takes
a third of a second.
"""


@pytest.fixture
async def bundled_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    """All bundled servers but the shell, in process, in a small folder; all but system-info behind
    the search tool.
    """
    for name in ("README.md", "pyproject.toml", "notebooks/01_quickstart.ipynb"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as stack:
        clients: dict[str, Client[Any]] = {}

        async def client(name: str) -> Client[Any]:
            if name not in clients:
                built = build(name)
                stack.callback(built.close)
                clients[name] = await stack.enter_async_context(Client(built))
            return clients[name]

        if not _TOOLS:
            for name in (name for name, server in BUNDLED.items() if server.default):
                listed = await (await client(name)).list_tools()
                _TOOLS.extend(tool_from_mcp(tool, name) for tool in listed)

        async def run(tool: ToolSpec, arguments: dict[str, Any]) -> str:
            result = await (await client(tool.server)).call_tool(
                tool.name, arguments, raise_on_error=False
            )
            text = "\n".join(part.text for part in result.content)
            return f"Error: {text}" if result.is_error else text

        yield Room(Catalog(_TOOLS), run, {"system-info"})


@pytest.fixture
def room_of() -> Callable[..., Room]:
    """A room with the tools and the results that a test gives; all loaded unless it names those
    that are.
    """

    def make(
        tools: list[ToolSpec], results: dict[str, str] | None = None, loaded: set[str] | None = None
    ) -> Room:
        async def run(tool: ToolSpec, arguments: dict[str, Any]) -> str:
            return (results or {}).get(tool.name, "done")

        return Room(
            Catalog(tools), run, {tool.server for tool in tools} if loaded is None else loaded
        )

    return make
