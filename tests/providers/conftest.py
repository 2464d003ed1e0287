"""A loopback server that speaks a provider's wire format, and a room in which the offline planner meets real servers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certifi
import pytest
from casual_llm.messages import ChatMessage, ToolResultMessage, UserMessage
from fastmcp import Client, FastMCP
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from kit.message_rules import StrictProvider
from kit.pictures import DOT
from kit.provider import PROVIDERS, Provider
from kit.requests import check_request
from kit.scripted_http import Reply
from mcp.types import TextContent

from casual_mcp_nb.bundled import BUNDLED, build
from casual_mcp_nb.discovery import SearchToolsTool
from casual_mcp_nb.providers import ChatModel, ModelFactory, OfflineClient, limits
from casual_mcp_nb.providers._loading import touch
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.tool import Catalog, ToolSpec


@pytest.fixture(scope="session", autouse=True)
def sdks() -> None:
    """Import the SDKs before a loop runs: tests make models on theirs, where a turn has a thread do it."""
    clients = {name: {"provider": name, "api_key": "sk-none"} for name in PROVIDERS}
    models = {name: {"client": name, "model": "m-1"} for name in PROVIDERS}
    factory = ModelFactory(Config.model_validate({"clients": clients, "models": models}))
    for name in PROVIDERS:
        touch(name, factory.chat_model(name).client)


@pytest.fixture
def loopback() -> Iterator[Callable[..., Provider]]:
    """Starts servers that give one answer to every request."""
    with ExitStack() as stack:
        yield lambda answer=None, status=200: stack.enter_context(_checked(stack, Provider(Reply(status, answer))))


class Clock:
    """A clock on which a sleep is over at once, unless `goes_on` is cleared. Other threads sleep as they did.

    Attributes:
        now: The time in seconds: the latest for which somebody slept.
        slept: How long was asked for, one sleep after the other.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._sleep = asyncio.sleep
        self._thread = threading.get_ident()

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            return await self._sleep(seconds)
        end = self.now + seconds
        self.slept.append(seconds)
        await self._sleep(0)
        await self.goes_on.wait()
        self.now = max(self.now, end)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the limits of clients and of the waits between requests; time limits keep the machine's."""
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    return clock


@pytest.fixture
def serving() -> Iterator[Callable[..., Provider]]:
    """Starts servers that give each request the next of these replies."""
    with ExitStack() as stack:
        yield lambda *replies: stack.enter_context(_checked(stack, Provider(*replies)))


@pytest.fixture
def strict() -> Iterator[Callable[..., StrictProvider]]:
    """Starts servers that refuse what breaks one of their rules, and give other requests the next of these replies."""
    with ExitStack() as stack:
        yield lambda rules, *replies, **more: stack.enter_context(_checked(stack, StrictProvider(rules, *replies, **more)))


@pytest.fixture
def desk() -> FastMCP:
    """A server whose tools return images, fail, and give back what they get."""
    server: FastMCP = FastMCP("desk")

    @server.tool
    def plot(title: str = "") -> list[Any]:
        return [f"A plot: {title}", Image(data=DOT, format="png")]

    @server.tool
    def broken(title: str = "") -> ToolResult:
        content = [TextContent(type="text", text="no paper"), Image(data=DOT, format="png").to_image_content()]
        return ToolResult(content=content, is_error=True)

    @server.tool
    def echo(text: str = "") -> str:
        return f"echo: {text}"

    return server


def _checked(stack: ExitStack, server: Any) -> Any:
    """A server all of whose requests are found to be what the provider takes, when the test is over."""
    stack.callback(lambda: [check_request(request.path, request.body) for request in server.seen])
    return server


@pytest.fixture
async def factory_for() -> AsyncIterator[Callable[..., ModelFactory]]:
    """Makes factories from configs, and closes them."""
    made: list[ModelFactory] = []

    def make(config: Config) -> ModelFactory:
        made.append(ModelFactory(config))
        return made[-1]

    yield make
    for factory in made:
        await factory.close()


@pytest.fixture
def model_of(factory_for: Callable[..., ModelFactory]) -> Callable[..., ChatModel]:
    """The model at a server; more fields for its client."""
    return lambda server, provider, **client: factory_for(Config.model_validate(server.config(provider, **client))).chat_model()


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one certificate: each client of an SDK reads all that this machine trusts, and nothing here is encrypted."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
    path = tmp_path_factory.mktemp("trusted") / "one.pem"
    path.write_text(first + end + "\n")
    return path


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_certificate: Path) -> None:
    """Whatever this machine has set, the SDKs find no key, no profile and no address."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_certificate))
    for provider in ("OPENAI", "ANTHROPIC", "OLLAMA"):
        for name in ("API_KEY", "BASE_URL", "AUTH_TOKEN", "HOST", "PROFILE"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))


@dataclass
class Said:
    """What the planner came to in one turn."""

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

    def __init__(self, catalog: Catalog, run: Callable[[ToolSpec, dict[str, Any]], Awaitable[str]], loaded: set[str]) -> None:
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
                self.messages.append(ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=result))
        raise AssertionError(f"The planner goes on for ever: {said.calls}")

    async def _result(self, name: str, arguments: dict[str, Any]) -> str:
        if name == self.search.name:
            found = await self.search.execute(arguments)
            self.offered += found.newly_loaded_tools
            return found.content
        return await self.run(self.catalog.by_wire_name[name], arguments)


@pytest.fixture
async def bundled_room() -> AsyncIterator[Room]:
    """All bundled servers but the shell, in process; all but system-info behind the search tool."""
    async with AsyncExitStack() as stack:
        clients = {}
        tools: list[ToolSpec] = []
        for name, server in BUNDLED.items():
            if server.default:
                built = build(name)
                stack.callback(built.close)
                clients[name] = await stack.enter_async_context(Client(built))
                listed = await clients[name].list_tools()
                tools += [ToolSpec(name, tool.name, tool.description or "", tool.input_schema) for tool in listed]

        async def run(tool: ToolSpec, arguments: dict[str, Any]) -> str:
            result = await clients[tool.server].call_tool(tool.name, arguments, raise_on_error=False)
            text = "\n".join(part.text for part in result.content)
            return f"Error: {text}" if result.is_error else text

        yield Room(Catalog(tools), run, {"system-info"})


@pytest.fixture
def room_of() -> Callable[..., Room]:
    """A room with the tools and the results that a test gives; all loaded unless it names those that are."""

    def make(tools: list[ToolSpec], results: dict[str, str] | None = None, loaded: set[str] | None = None) -> Room:
        async def run(tool: ToolSpec, arguments: dict[str, Any]) -> str:
            return (results or {}).get(tool.name, "done")

        return Room(Catalog(tools), run, {tool.server for tool in tools} if loaded is None else loaded)

    return make
