"""A loopback server that speaks a provider's wire format."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import certifi
import pytest
from fastmcp import FastMCP
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from kit.message_rules import StrictProvider
from kit.pictures import DOT
from kit.provider import PROVIDERS, Provider
from kit.requests import check_request
from kit.scripted_http import Reply
from mcp.types import TextContent

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.providers import limits
from casual_mcp_nb.providers._bound_model import touch
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory


@pytest.fixture(scope="session", autouse=True)
def sdks() -> None:
    """Import the SDKs before a loop runs: tests make models on theirs, where a turn has a thread do
    it.
    """
    clients = {name: {"provider": name, "api_key": "sk-none"} for name in PROVIDERS}
    models = {name: {"client": name, "model": "m-1"} for name in PROVIDERS}
    factory = ModelFactory(Config.model_validate({"clients": clients, "models": models}))
    for name in PROVIDERS:
        touch(name, factory.chat_model(name).client)


@pytest.fixture
def loopback() -> Iterator[Callable[..., Provider]]:
    """Starts servers that give one answer to every request."""
    with ExitStack() as stack:
        yield lambda answer=None, status=200: stack.enter_context(
            _checked(stack, Provider(Reply(status, answer)))
        )


class Clock:
    """A clock on which a sleep is over at once, unless `goes_on` is cleared.

    Other threads sleep as they did.

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
    """The clock of the limits of clients and of the waits between requests; time limits keep the
    machine's.
    """
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
    """Start servers that refuse requests which break one of their rules, and give other requests
    the next reply.
    """
    with ExitStack() as stack:
        yield lambda rules, *replies, **more: stack.enter_context(
            _checked(stack, StrictProvider(rules, *replies, **more))
        )


@pytest.fixture
def desk() -> FastMCP:
    """A server whose tools return images, fail, and return their input."""
    server: FastMCP = FastMCP("desk")

    @server.tool
    def plot(title: str = "") -> list[Any]:
        return [f"A plot: {title}", Image(data=DOT, format="png")]

    @server.tool
    def broken(title: str = "") -> ToolResult:
        content = [
            TextContent(type="text", text="no paper"),
            Image(data=DOT, format="png").to_image_content(),
        ]
        return ToolResult(content=content, is_error=True)

    @server.tool
    def echo(text: str = "") -> str:
        return f"echo: {text}"

    return server


def _checked(stack: ExitStack, server: Any) -> Any:
    """Start a server whose requests are all checked to be valid for the provider when the test is
    over.
    """
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
    return lambda server, provider, **client: factory_for(
        Config.model_validate(server.config(provider, **client))
    ).chat_model()


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one certificate: each client of an SDK reads all that this machine trusts, and
    nothing here is encrypted.
    """
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
    path = tmp_path_factory.mktemp("trusted") / "one.pem"
    path.write_text(first + end + "\n")
    return path


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_certificate: Path) -> None:
    """Hide this machine's settings: the SDKs find no key, no profile and no address."""
    monkeypatch.setenv("SSL_CERT_FILE", str(one_certificate))
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "OLLAMA"):
        for name in ("API_KEY", "BASE_URL", "AUTH_TOKEN", "HOST", "PROFILE"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
