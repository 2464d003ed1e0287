"""McpToolChat, the MCP client and the tool cache with casual-mcp's constructors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.content import ResultFormat, ToolResult, format_result
from casual_mcp_nb.base.mcp import Prompts, Resources
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.environment import Settings, read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.engine import chat as engine
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.results import result_text, result_text_async
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import CasualMcpError, ToolCallError, UsageError, shown
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    import mcp
    from casual_llm.messages import AssistantToolCall, ToolResultMessage
    from fastmcp import Client


class McpClient:
    """Connections to all servers in a config, each separate: one that fails or hangs does not
    affect the others.

    As an async context manager it connects, and ends everything it started with the outermost
    `async with`. The next use starts it again.
    """

    def __init__(self, server_manager: ServerManager) -> None:
        self.server_manager = server_manager
        self._entered = 0

    @classmethod
    def of(
        cls, client: McpClient | ServerManager | Client[Any], server_names: Iterable[str] = ()
    ) -> McpClient:
        """Find a client's connections: one of ours, or a FastMCP client, whose server or config is
        connected again.
        """
        if isinstance(client, McpClient):
            return client
        if isinstance(client, ServerManager):
            return cls(client)
        fastmcp = sys.modules.get("fastmcp")
        transport = (
            client.transport if fastmcp is not None and isinstance(client, fastmcp.Client) else None
        )
        if (server := getattr(transport, "server", None)) is not None:
            name = next(iter(server_names), None) or server.name
            return cls(
                ServerManager(
                    {}, in_process={name: server}, cache_ttl=_settings(None).tool_cache_ttl
                )
            )
        if (config := getattr(transport, "config", None)) is not None:
            return load_mcp_client(config.model_dump(include={"mcpServers"}, exclude_none=True))
        if (entry := _entry_of(transport)) is not None:
            return load_mcp_client({"servers": {next(iter(server_names), None) or "server": entry}})
        raise UsageError(
            f"A {type(client).__name__} is not a client that can be connected again.",
            hint=(
                "Use load_mcp_client(config), or fastmcp.Client with a command, a URL, a config,"
                " or, as in tests, a FastMCP server of this process."
            ),
        )

    async def __aenter__(self) -> Self:
        self._entered += 1
        await self.server_manager.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if not self._entered:
            await self.server_manager.disconnect()

    async def list_tools(self) -> list[ToolSpec]:
        """List all server tools. Connects servers first if needed."""
        await self.server_manager.connect()
        return list(await self.server_manager.list_tools())

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        raise_on_error: bool = True,
    ) -> ToolResult:
        """Call a tool as the person does, without approval.

        Args:
            name: The tool, in any spelling that is unique.
            arguments: Its arguments.
            meta: Passed to the server with the call.
            raise_on_error: Whether a failure that the tool itself reports is raised. Otherwise the
                result has it.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The call failed, or the tool reported a failure.
        """
        await self.server_manager.connect()
        tool = (await self.server_manager.list_tools()).resolve(name)
        result = await self.server_manager.call(tool, arguments or {}, meta=meta)
        if result.is_error and raise_on_error:
            text = result_text(result)
            raise ToolCallError(
                f"Tool {shown(str(tool.tool_name))}: {text}",
                server=tool.server,
                tool=tool.wire_name,
            )
        return result

    async def list_resources(self) -> Resources:
        """List all server resources. Connects servers first if needed."""
        await self.server_manager.connect()
        return await self.server_manager.list_resources()

    async def list_prompts(self) -> Prompts:
        """List all server prompts. Connects servers first if needed."""
        await self.server_manager.connect()
        return await self.server_manager.list_prompts()

    async def ping(self) -> bool:
        """Connect servers if needed. Return whether any is connected."""
        await self.server_manager.connect()
        return self.is_connected()

    def is_connected(self) -> bool:
        """Check whether any server is connected."""
        return any(
            status.state in ("ready", "unlisted")
            for status in self.server_manager.statuses.values()
        )

    async def close(self) -> None:
        """End all connections and server processes, for good."""
        await self.server_manager.close()


def _settings(folder: Path | None) -> Settings:
    return Settings.from_environ(read_environment(folder))


def _entry_of(transport: Any) -> dict[str, Any] | None:
    """Convert a FastMCP transport to its server's config, or None if a config cannot express it."""
    if getattr(transport, "command", None):
        given = {
            "args": list(transport.args),
            "env": transport.env,
            "cwd": transport.cwd and str(transport.cwd),
        }
        return {"command": transport.command} | {
            key: value for key, value in given.items() if value
        }
    token = getattr(getattr(transport, "auth", None), "token", None)
    if not getattr(transport, "url", None) or (transport.auth is not None and token is None):
        return None
    given = {"headers": transport.headers, "auth": token and token.get_secret_value()}
    way = "sse" if type(transport).__name__ == "SSETransport" else "http"
    return {"url": str(transport.url), "transport": way} | {
        key: value for key, value in given.items() if value
    }


def load_mcp_client(config: Config | str | Path | Mapping[str, Any]) -> McpClient:
    """Create connections to a config's servers. Nothing is started before the first use.

    Args:
        config: A path, a dict, or a loaded config.

    Raises:
        ConfigError: The config is not valid.
    """
    loaded = load_config(config)
    ttl = _settings(loaded.folder).tool_cache_ttl
    return McpClient(
        ServerManager(loaded.servers, cache_ttl=ttl, secrets=loaded.high_confidence_secrets())
    )


class ToolCache:
    """All server tools, listed again when the list has expired.

    Each server's list is cached on its own.

    Args:
        client: The result of `load_mcp_client`, or a FastMCP client.
        ttl_seconds: How long a list is fresh. 0 or less forever, None for `MCP_TOOL_CACHE_TTL` or
            30 seconds.

    Attributes:
        client: The connections.
    """

    def __init__(
        self, client: McpClient | ServerManager | Client[Any], ttl_seconds: float | None = None
    ) -> None:
        self.client = McpClient.of(client)
        self._primed: tuple[list[Any], float] | None = None
        self._primes = 0
        if ttl_seconds is None:
            ttl_seconds = _settings(None).tool_cache_ttl
        else:
            self.client.server_manager.set_cache_ttl(ttl_seconds if ttl_seconds > 0 else None)
        self._seconds = ttl_seconds if ttl_seconds and ttl_seconds > 0 else float("inf")

    async def get_tools(self, force_refresh: bool = False) -> list[ToolSpec]:
        """List the tools. Connects servers first if needed.

        Args:
            force_refresh: List them even if the lists are fresh.
        """
        if force_refresh:
            await self.invalidate()
        if self._primed is not None and time.monotonic() < self._primed[1]:
            return self._primed[0]
        return await self.client.list_tools()

    async def prime(self, tools: Iterable[ToolSpec | mcp.Tool]) -> None:
        """Have `get_tools` return these tools, without asking a server, until they expire or are
        invalidated.

        Args:
            tools: The tools. A chat lists its servers' tools itself when it connects.
        """
        self._primed = list(tools), time.monotonic() + self._seconds
        self._primes += 1

    async def invalidate(self) -> None:
        """Make the next use list the tools again."""
        self._primed = None
        await self.client.server_manager.invalidate()

    @property
    def version(self) -> int:
        """A count that grows when a server's state or tools change."""
        return self.client.server_manager.version + self._primes


MetaDict = dict[str, Any]


class GenerationError(Exception):
    """A model's error, by casual-mcp's name. Nothing raises it, there or here.

    Args:
        message: The message.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


def format_tool_call_result(
    tool_call: AssistantToolCall,
    result: str,
    style: str = "function_result",
    include_id: bool = False,
) -> str:
    """Prefix a result with its call, as a model may read it.

    Args:
        tool_call: The call.
        result: Its result.
        style: `result`: the text alone; `function_result`: `name → text`; `function_args_result`:
            `name(a=1) → text`.
        include_id: Whether a line with the call id comes first.

    Raises:
        ValueError: The call's arguments are not JSON, or there is no such style.
    """
    name, arguments = tool_call.function.name, tool_call.function.arguments
    try:
        values = json.loads(arguments)
    except ValueError as error:
        raise ValueError(
            f"Malformed JSON in the arguments of {name}: {error}. Payload: {arguments!r}"
        ) from error
    if style not in get_args(ResultFormat):
        raise ValueError(
            f"Unsupported style: {style}. There are {', '.join(get_args(ResultFormat))}."
        )
    text = format_result(result, style, name, values)  # type: ignore[arg-type]
    return f"ID: {tool_call.id}\n{text}" if include_id else text


class McpToolChat(engine.McpToolChat):
    """Chats with a model that can call MCP servers' tools.

    It belongs to one event loop. Use it as an async context manager, or call `close` at the end.
    Leaving `async with` ends everything that it started, and the next use starts it again.
    `from_config` also sets up discovery, toolsets, templates and a config's policies.

    Args:
        mcp_client: The result of `load_mcp_client`, a `ServerManager`, or a FastMCP client.
        system: The system prompt if neither the turn nor the model's template gives one, or None
            for none.
        tool_cache: A `ToolCache` for the same client, which sets how long tool lists are fresh.
        server_names: The name for a FastMCP client's only, in-process server. Other servers know
            theirs.
        synthetic_tools: Your own synthetic tools, see `add_synthetic_tool`.
        model_factory: The models that `chat` can name, or None for none.
        more: Further arguments, such as `selection`, `tool_sets`, `limits`, `approver` and
            `approval`, see `ChatSetup`.

    Attributes:
        mcp_client: The connections.
        server_names: Their servers' names.
        tool_cache: The list of tools.
        model_factory: The models.

    Raises:
        UsageError: An argument is not valid.
    """

    def __init__(
        self,
        mcp_client: McpClient | ServerManager | Client[Any],
        system: str | None = None,
        tool_cache: ToolCache | None = None,
        server_names: Iterable[str] | None = None,
        synthetic_tools: Iterable[SyntheticTool] = (),
        model_factory: ModelFactory | None = None,
        **more: Any,
    ) -> None:
        if tool_cache is not None and not isinstance(tool_cache, ToolCache):
            raise UsageError(
                f"A {type(tool_cache).__name__} is not a ToolCache.", hint="Use ToolCache(client)."
            )
        if tool_cache is None:
            client = McpClient.of(mcp_client, server_names or ())
        else:
            client = tool_cache.client
        factory = model_factory or ModelFactory(Config())
        more.setdefault(
            "limits", TurnLimits.of(Config(), Settings.from_environ(read_environment(None)))
        )
        # As in casual-mcp: an empty prompt is none, while the engine's None is the default template.
        setup = ChatSetup(system=system or "", synthetic_tools=synthetic_tools, **more)
        super().__init__(client.server_manager, factory, setup)
        self.mcp_client = client
        self.model_factory = factory
        if tool_cache is not None:
            self.__dict__["tool_cache"] = tool_cache

    @classmethod
    def _of(cls, server_manager: ServerManager, models: ModelFactory, setup: ChatSetup) -> Self:
        return cls(server_manager, model_factory=models, **vars(setup))

    async def __aenter__(self) -> Self:
        await self.mcp_client.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.tools.close()
        await self.mcp_client.__aexit__(*exc_info)
        await self.state.large_results.close(for_good=False)
        await self.models.close()

    async def execute(
        self, tool_call: AssistantToolCall, meta: Mapping[str, Any] | None = None
    ) -> ToolResultMessage:
        """Run one model call, without asking anybody, and return its result as a message.

        A failure becomes its text.

        Args:
            tool_call: The call.
            meta: Passed to the server with the call.
        """
        from casual_llm.messages import ToolResultMessage

        name = tool_call.function.name
        try:
            arguments = json.loads(tool_call.function.arguments or "{}")
        except ValueError:
            text = f"Error: Malformed arguments for tool '{name}'."
        else:
            try:
                result = await self.mcp_client.call_tool(
                    name, arguments, meta=meta, raise_on_error=False
                )
                text = format_tool_call_result(
                    tool_call, await result_text_async(result), self.limits.result_format
                )
            except CasualMcpError as error:
                text = f"Error: {error}"
        return ToolResultMessage(name=name, tool_call_id=tool_call.id, content=text)

    @cached_property
    def tool_cache(self) -> ToolCache:
        """The list of tools."""
        return ToolCache(self.mcp_client)

    @property
    def server_names(self) -> set[str]:
        """The server names."""
        return set(self.server_manager.names)
