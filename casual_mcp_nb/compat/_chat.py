"""McpToolChat with casual-mcp's constructor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, get_args

from casual_mcp_nb.compat._client import McpClient, ToolCache
from casual_mcp_nb.config import Settings, read_environment
from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.discovery import SyntheticTool
from casual_mcp_nb.engine import chat as engine
from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.engine.results import result_text_async
from casual_mcp_nb.errors import CasualMcpError, UsageError
from casual_mcp_nb.providers import ModelFactory
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.result_text import ResultFormat, format_result

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall, ToolResultMessage
    from fastmcp import Client

MetaDict = dict[str, Any]
"""What `meta` takes."""


class GenerationError(Exception):
    """An error of a model, by casual-mcp's name; nothing raises it, there or here.

    Args:
        message: What happened.

    Attributes:
        message: As given.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


def format_tool_call_result(
    tool_call: AssistantToolCall, result: str, style: str = "function_result", include_id: bool = False
) -> str:
    """Prefix a result with its call, as a model may read it.

    Args:
        tool_call: The call.
        result: Its result.
        style: `result`: the text alone; `function_result`: `name → text`; `function_args_result`: `name(a=1) → text`.
        include_id: Whether a line with the id of the call comes first.

    Raises:
        ValueError: The arguments of the call are not JSON, or there is no such style.
    """
    name, arguments = tool_call.function.name, tool_call.function.arguments
    try:
        values = json.loads(arguments)
    except ValueError as error:
        raise ValueError(f"Malformed JSON in the arguments of {name}: {error}. Payload: {arguments!r}") from error
    if style not in get_args(ResultFormat):
        raise ValueError(f"Unsupported style: {style}. There are {', '.join(get_args(ResultFormat))}.")
    text = format_result(result, style, name, values)  # type: ignore[arg-type]
    return f"ID: {tool_call.id}\n{text}" if include_id else text


class McpToolChat(engine.McpToolChat):
    """Chats with a model that can call the tools of MCP servers.

    It belongs to one event loop. Use it as an async context manager, or call `close` at the end: what `async with` started ends
    with it, and the next use starts it again. `from_config` also sets up discovery, toolsets, templates and the policies of a
    config.

    Args:
        mcp_client: What `load_mcp_client` returned, a `ServerManager`, or a FastMCP client.
        system: The system prompt where neither the turn nor the model's template gives one; None for the default template.
        tool_cache: A `ToolCache` of the same client, which has set how long lists of tools are fresh.
        server_names: The name of the server of a FastMCP client for one server of this process; other servers know theirs.
        synthetic_tools: Your own synthetic tools, see `add_synthetic_tool`.
        model_factory: The models that `chat` can name; None for none.
        more: Further arguments, such as `selection`, `tool_sets`, `limits`, `approver` and `approval`.

    Attributes:
        mcp_client: The connections.
        server_names: The names of their servers.
        tool_cache: The list of tools.
        model_factory: The models.

    Raises:
        UsageError: An argument is not what it should be.
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
            raise UsageError(f"A {type(tool_cache).__name__} is not a ToolCache.", hint="Use ToolCache(client).")
        client = McpClient.of(mcp_client, server_names or ()) if tool_cache is None else tool_cache.client
        factory = model_factory or ModelFactory(Config())
        more.setdefault("limits", TurnLimits.of(Config(), Settings.from_environ(read_environment(None))))
        super().__init__(client.server_manager, factory, system=system, synthetic_tools=synthetic_tools, **more)
        self.mcp_client = client
        self.model_factory = factory
        if tool_cache is not None:
            self.__dict__["tool_cache"] = tool_cache

    @classmethod
    def _of(cls, server_manager: ServerManager, models: ModelFactory, **more: Any) -> Self:
        return cls(server_manager, model_factory=models, **more)

    async def __aenter__(self) -> Self:
        await self.mcp_client.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.tools.close()
        await self.mcp_client.__aexit__(*exc_info)
        await self.large_results.close(for_good=False)
        await self.models.close()

    async def execute(self, tool_call: AssistantToolCall, meta: Mapping[str, Any] | None = None) -> ToolResultMessage:
        """Run one call of a model, without asking anybody, and return its result as a message; a failure is its text.

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
                result = await self.mcp_client.call_tool(name, arguments, meta=meta, raise_on_error=False)
                text = format_tool_call_result(tool_call, await result_text_async(result), self.limits.result_format)
            except CasualMcpError as error:
                text = f"Error: {error}"
        return ToolResultMessage(name=name, tool_call_id=tool_call.id, content=text)

    @cached_property
    def tool_cache(self) -> ToolCache:
        """The list of tools."""
        return ToolCache(self.mcp_client)

    @property
    def server_names(self) -> set[str]:
        """The names of the servers."""
        return set(self.server_manager.names)
