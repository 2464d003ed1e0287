"""What a person looks at in a session, each thing as a noun that shows itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.starting import StartDisplay, announcement_of, summary_of
from casual_mcp_nb.notebook.status import manifest_of, models_of, servers_of, status_of, tool_sets_of, tools_of
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.displayable import Displayable
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import Manifest, Models, Servers, SessionStatus, Tools, ToolSets
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.tool import ToolChange, ToolName
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


class SessionNouns(Displayable, ABC):
    """The readable side of `Session`."""

    config: Config
    model: str | None
    engine: EngineThread
    _chat: McpToolChat
    _runner: ConversationRunner

    _quiet = False

    @contextmanager
    def start_shown(self, *, quiet: bool = False, table: bool = False, handle: Any = None) -> Iterator[StartDisplay | None]:
        """Show how servers start while the body runs, where any has to be started.

        Args:
            quiet: Show nothing.
            table: Leave the servers as a table in the cell, and not only a line.
            handle: A display of the cell that is used until the body stops the display, and that the body leaves in order.
        """
        waiting = self._chat.server_manager.waiting
        if not waiting or self.engine.inherited:
            yield None
            return
        display = StartDisplay(announcement_of(waiting), quiet=quiet or self._quiet, handle=handle)
        display.follow(lambda: self.servers)
        try:
            yield display
        finally:
            servers = self.servers
            display.finish(servers, servers if table else summary_of(servers))

    @property
    def turns(self) -> list[Turn]:
        """The turns of the present conversation, oldest first; one that is running is the last."""
        return self._runner.turns

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation as messages; valid at every moment."""
        return self._runner.messages

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
        """All tools with their price, by number or name. Connects when needed, and blocks until then; see `tools_async`."""
        with self.start_shown():
            return tools_of(self.engine.run(self._view()))

    async def tools_async(self) -> Tools:
        """`tools`, awaited."""
        with self.start_shown():
            return tools_of(await self.engine.wait(self._view()))

    @property
    def changed_tools(self) -> Mapping[ToolName, ToolChange]:
        """The tools that a server describes in another way than before, with old and new text, unless that was accepted."""
        return self._chat.changed_tools

    def accept_change(self, name: str | ToolName) -> None:
        """Take a tool as its server describes it now; with `pin_tools` it is offered again from the next turn on.

        Raises:
            UnknownNameError: There is no such tool, or it has not changed.
        """
        self._chat.accept_change(name)

    @property
    def toolsets(self) -> ToolSets:
        """The toolsets of the config by name. Connects when needed, and blocks until then; see `toolsets_async`."""
        with self.start_shown():
            return tool_sets_of(self._chat, self.engine.run(self._view()))

    async def toolsets_async(self) -> ToolSets:
        """`toolsets`, awaited."""
        with self.start_shown():
            return tool_sets_of(self._chat, await self.engine.wait(self._view()))

    @property
    def models(self) -> Models:
        """The models of the config."""
        return models_of(self.config, self.model)

    @property
    def manifest(self) -> Manifest:
        """What the model reads about the deferred tools: `str()` is exactly that text. Connects when needed, and blocks until
        then; see `manifest_async`."""
        with self.start_shown():
            return manifest_of(self.engine.run(self._view()))

    async def manifest_async(self) -> Manifest:
        """`manifest`, awaited."""
        with self.start_shown():
            return manifest_of(await self.engine.wait(self._view()))

    @property
    def status(self) -> SessionStatus:
        """The session at a glance. Does not connect."""
        return status_of(self._chat, self.config, self.model, len(self.turns))

    def check_open(self) -> None:
        """Do nothing, unless the session cannot be used any more.

        Raises:
            ClosedError: It was closed, or belongs to the process that this one was forked from.
        """
        self.engine.check_process()
        self._runner.check_open()

    def __repr__(self) -> str:
        return f"<Session: {len(self.servers)} servers, model {self.model}, {len(self.turns)} turns>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)

    @abstractmethod
    async def _view(self) -> ToolView:
        """What the model sees; connects when needed."""
