"""McpToolChat with casual-mcp's constructor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, get_args

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.content import ResultFormat, format_result
from casual_mcp_nb.compat._clients import AnyClient, ListsTools, McpClient, ToolCache
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.discovery.synthetic import SyntheticTool
from casual_mcp_nb.engine import chat as engine
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.results import result_text_async
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall, ToolResultMessage

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
        mcp_client: The result of `load_mcp_client`, a `ServerManager`, a FastMCP client, or an
            object with `list_tools` and `call_tool`.
        system: The system prompt if neither the turn nor the model's template gives one, or None
            for none.
        tool_cache: A `ToolCache` for the same client, which sets how long tool lists are fresh, or
            an object with `get_tools`.
        server_names: The name for a FastMCP client's only, in-process server, or the servers of an
            object with `list_tools`, which its tools' names begin with. Other servers know theirs.
        synthetic_tools: Your own synthetic tools, see `add_synthetic_tool`.
        model_factory: The models that `chat` can name, or None for none.
        more: Further arguments, such as `selection`, `tool_sets`, `limits`, `approver` and
            `approval`, see `ChatSetup`.

    Attributes:
        mcp_client: The connections, or the object with `list_tools`.
        server_names: Their servers' names.
        tool_cache: The list of tools.
        model_factory: The models.

    Raises:
        UsageError: An argument is not valid.
    """

    def __init__(
        self,
        mcp_client: AnyClient,
        system: str | None = None,
        tool_cache: ToolCache | ListsTools | None = None,
        server_names: Iterable[str] | None = None,
        synthetic_tools: Iterable[SyntheticTool] = (),
        model_factory: ModelFactory | None = None,
        **more: Any,
    ) -> None:
        names = server_names or ()
        if tool_cache is None:
            client = McpClient.of(mcp_client, names)
        elif isinstance(tool_cache, ToolCache):
            client = tool_cache.naming(names)
        else:
            client = McpClient.asking(mcp_client, tool_cache, names)
        factory = model_factory or ModelFactory(Config())
        more.setdefault(
            "limits", TurnLimits.of(Config(), Settings.from_environ(read_environment(None)))
        )
        # As in casual-mcp: an empty prompt is none, while the engine's None is the default template.
        setup = ChatSetup(system=system or "", synthetic_tools=synthetic_tools, **more)
        super().__init__(client.server_manager, factory, setup)
        self._connections = client
        self.mcp_client = client if client.asked is None else client.asked
        self.model_factory = factory
        if tool_cache is not None:
            self.__dict__["tool_cache"] = tool_cache

    @classmethod
    def _of(cls, server_manager: ServerManager, models: ModelFactory, setup: ChatSetup) -> Self:
        return cls(server_manager, model_factory=models, **vars(setup))

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.tools.close()
        await self._connections.__aexit__(*exc_info)
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
                result = await self._connections.call_tool(
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
        return ToolCache(self._connections)

    @property
    def server_names(self) -> set[str]:
        """The server names."""
        return set(self.server_manager.names)
