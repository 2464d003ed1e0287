"""Session: the one object that a person holds."""

from __future__ import annotations

import asyncio
import importlib
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.config import load_config
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.results import result_text
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import ClosedError
from casual_mcp_nb.notebook.approve import ask_with_input
from casual_mcp_nb.notebook.demo import demo_config
from casual_mcp_nb.notebook.live import Echo, LiveOutput, notebook_shell
from casual_mcp_nb.notebook.loop import EngineThread, engine_thread
from casual_mcp_nb.notebook.status import models_of, servers_of, status_of, tool_sets_of, tools_of
from casual_mcp_nb.notebook.turn import ShownTurn
from casual_mcp_nb.notebook.twins import awaited, blocking
from casual_mcp_nb.types.config import Config, ToolSetConfig
from casual_mcp_nb.types.event import TurnStarted
from casual_mcp_nb.types.rich import Rich
from casual_mcp_nb.types.search import SearchResults
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import Manifest, Models, Servers, ServerStatus, SessionStatus, Tools, ToolSets
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage
    from fastmcp import FastMCP

    from casual_mcp_nb.providers.base import ChatModel


class Session(Rich):
    """MCP servers, models and one conversation, for a notebook or a script.

    Every method that takes time blocks; its twin with `_async` at the end of the name is awaited instead. Both run on the
    engine thread, so it does not matter which loop or thread they are called from. Use it as a context manager, or call
    `close`.

    Args:
        config: A path to a config file, a dict, or a loaded config.
        in_process: FastMCP servers of this process, by name.

    Attributes:
        config: The config as loaded.
        model: Name of the model that is used unless a call names another; None where the config has none.
        turns: The turns of the present conversation, oldest first.

    Raises:
        ConfigError: The config is wrong; nothing was started.
    """

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
    ) -> None:
        self.config = load_config(config)
        self.model: str | None = next(iter(self.config.models), None)
        self.turns: list[Turn] = []
        self.engine: EngineThread = engine_thread()
        self._chat = McpToolChat.from_config(self.config, in_process=in_process, approver=ask_with_input)
        self._end = weakref.finalize(self, _close_in_background, self.engine, self._chat)

    @classmethod
    def from_config(
        cls,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
    ) -> Self:
        """A session from a config file or value; it connects on first use, or by `connect`."""
        return cls(config, in_process=in_process)

    @classmethod
    def demo(cls) -> Self:
        """A session with the bundled servers and the offline planner: no key, no network."""
        return cls(demo_config())

    async def _connect(self) -> Servers:
        """Start all servers side by side and wait until each is ready or has failed.

        Returns:
            How each of them is. A server that failed does not raise; its status says why.
        """
        await asyncio.gather(self._view(), asyncio.to_thread(_warm_up))
        return self.servers

    connect, connect_async = blocking(_connect), awaited(_connect)

    async def _reconnect(self, name: str) -> ServerStatus:
        """Connect one server anew; the others are not touched.

        Args:
            name: The server's name in the config.

        Raises:
            UnknownNameError: There is no such server.
        """
        self._check_open()
        await self._chat.fleet.reconnect(name)
        await self._view()
        return self.servers[name]

    reconnect, reconnect_async = blocking(_reconnect), awaited(_reconnect)

    async def _close(self) -> None:
        """End all server processes and connections. Closing twice is harmless; what was said stays readable."""
        self._end.detach()
        await self._chat.close()

    close, close_async = blocking(_close), awaited(_close)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.connect_async()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close_async()

    def chat(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        model: str | Model | ChatModel | None = None,
        tool_set: str | ToolSetConfig | None = None,
        system: str | None = None,
        template: str | None = None,
        discovery: bool | None = None,
        echo: Echo = "output",
        max_steps: int | None = None,
        stream: bool | None = None,
        variables: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Say something, and go on with the conversation.

        Args:
            prompt: The text, or messages to add.
            model: Name of a model of the config, or a model object; None for the session's.
            tool_set: Name of a toolset for this turn; None for the selection's.
            system: The system prompt for this turn; None for the template's.
            template: File in `prompt-templates/` for this turn; None for the model's.
            discovery: Whether deferred tools are hidden behind the search tool in this turn; None for the selection's.
            echo: `output` shows the turn live in a notebook; `none` shows nothing.
            max_steps: Calls of the model at most; None for the config's limit.
            stream: False shows text only at the end of each step; otherwise as it arrives, where the provider streams.
            variables: More variables for the template.
            meta: Handed through to the servers with each call.

        Returns:
            The turn. When the model or a limit failed it, its status is `failed` and `raise_for_status` raises.

        Raises:
            UsageError: A name does not exist; nothing was sent.
            KeyboardInterrupt: It was interrupted; the turn is in `turns`, marked as stopped, and the conversation is valid.
        """
        options = TurnOptions(model or self.model, tool_set, system, template, variables or {}, discovery, max_steps, meta)
        with self._shown(echo, stream) as (turn, live):
            return self.engine.run(self._take(turn, prompt, options, live))

    async def chat_async(
        self,
        prompt: str | Sequence[ChatMessage],
        *,
        model: str | Model | ChatModel | None = None,
        echo: Echo = "output",
        stream: bool | None = None,
        **options: Any,
    ) -> Turn:
        """`chat`, awaited; takes the same arguments.

        Raises:
            CancelledError: It was interrupted or cancelled; the turn is in `turns`, marked as stopped.
        """
        turn_options = TurnOptions(model=model or self.model, **options)
        with self._shown(echo, stream) as (turn, live):
            return await self.engine.wait(self._take(turn, prompt, turn_options, live))

    def new_conversation(self) -> None:
        """Start another conversation: nothing said and nothing discovered. The selection stays."""
        self.turns = []

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation as messages; valid at every moment."""
        return [message for turn in self.turns for message in turn.messages]

    @property
    def stats(self) -> ChatStats:
        """What the present conversation took."""
        return sum((turn.stats for turn in self.turns), ChatStats())

    @property
    def selection(self) -> Selection:
        """What the model is shown. Assign to its fields; it holds from the next turn on."""
        return self._chat.selection

    @selection.setter
    def selection(self, value: Selection) -> None:
        self._chat.selection.assign(value)

    @property
    def servers(self) -> Servers:
        """How each server is, by name. Does not connect."""
        return servers_of(self._chat)

    @property
    def tools(self) -> Tools:
        """All tools with their price, by number or name. Connects when needed."""
        return tools_of(self.engine.run(self._view()))

    @property
    def toolsets(self) -> ToolSets:
        """The toolsets of the config by name. Connects when needed."""
        return tool_sets_of(self._chat, self.engine.run(self._view()))

    @property
    def models(self) -> Models:
        """The models of the config."""
        return models_of(self.config, self.model)

    @property
    def manifest(self) -> Manifest:
        """What the model reads about the deferred tools: `str()` is exactly that text. Connects when needed."""
        view = self.engine.run(self._view())
        return Manifest(view.manifest, len(view.deferred), sum(tool.tokens for tool in view.deferred))

    @property
    def status(self) -> SessionStatus:
        """The session at a glance. Does not connect."""
        return status_of(self._chat, self.config, self.model, len(self.turns))

    async def _search(self, query: str, k: int | None = None, server: str | None = None) -> SearchResults:
        """Search all tools that the selection lets through, in the way in which the model searches the deferred ones.

        Args:
            query: What is looked for, in words.
            k: How many; None for the selection's limit.
            server: Only tools of this server.

        Returns:
            The hits, best first; each explains itself, and `why_not(name)` explains any other tool.
        """
        view = await self._view()
        return view.whole_index.find(query, k or view.max_search_results, server)

    search, search_async = blocking(_search), awaited(_search)

    async def _call_tool(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call a tool by hand. Selection and approval policy do not apply: it is the person who asks.

        Args:
            name: Any name that the catalog resolves, such as `math__add` or `math:add`.
            arguments: The tool's arguments.

        Returns:
            The call with its result; its status is `error` where the tool itself reports one.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The server failed.
        """
        tool = (await self._view()).catalog.resolve(name)
        start = time.monotonic()
        result = await self._chat.fleet.call(tool, arguments)
        return ToolCall(
            id="",
            name=tool.wire_name,
            tool=tool.tool_name,
            arguments=arguments,
            status="error" if result.is_error else "ok",
            result=result_text(result),
            content=result.content,
            structured=result.structured,
            seconds=time.monotonic() - start,
        )

    call_tool, call_tool_async = blocking(_call_tool), awaited(_call_tool)

    def __repr__(self) -> str:
        return f"<Session: {len(self.servers)} servers, model {self.model}, {len(self.turns)} turns>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)

    async def _view(self) -> ToolView:
        self._check_open()
        return await self._chat.view()

    def _check_open(self) -> None:
        if not self._end.alive:
            raise ClosedError("This session is closed.", hint="Make a new one with Session.from_config.")

    async def _take(
        self, turn: Turn, prompt: str | Sequence[ChatMessage], options: TurnOptions, live: LiveOutput | None
    ) -> Turn:
        from casual_llm.messages import UserMessage

        self._check_open()
        added = [UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
        on_event = live.on_event if live else None
        return await self._chat.run(added, options, history=self.messages, turn=turn, on_event=on_event)

    @contextmanager
    def _shown(self, echo: Echo, stream: bool | None) -> Iterator[tuple[Turn, LiveOutput | None]]:
        """Show a turn in its cell while the body runs, and keep it in the conversation however that ends."""
        shell = notebook_shell() if echo != "none" else None
        turn = ShownTurn(Trace(), shell) if shell else Turn(Trace())
        live = LiveOutput(turn, streamed=stream is not False) if shell else None
        try:
            yield turn, live
        finally:
            if turn.trace.of(TurnStarted):
                self.turns.append(turn)
            if live:
                live.finish()


def _warm_up() -> None:
    """Import what the first turn needs while the servers start: casual-llm brings every SDK that is installed."""
    for name in ("casual_llm", "casual_mcp_nb.display", "casual_mcp_nb.discovery.index"):
        importlib.import_module(name)


def _close_in_background(engine: EngineThread, chat: McpToolChat) -> None:
    engine.submit(chat.close())
