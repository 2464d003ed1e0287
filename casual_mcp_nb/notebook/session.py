"""Session: the one object that a person holds."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

from casual_mcp_nb.config import Settings, load_config, read_environment
from casual_mcp_nb.config.prices import read_prices
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.notebook.control import checked_system
from casual_mcp_nb.notebook.conversation_runner import ConversationRunner
from casual_mcp_nb.notebook.demo import demo_config
from casual_mcp_nb.notebook.direct_calls import call_tool_directly
from casual_mcp_nb.notebook.extract import SessionExtract
from casual_mcp_nb.notebook.interaction.pending import Questions
from casual_mcp_nb.notebook.log import show_log
from casual_mcp_nb.notebook.loop import OTHER_PROCESS, engine_thread
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.notebook.session_registry import close_in_background, replace_earlier, unregister
from casual_mcp_nb.notebook.shell import notebook_shell
from casual_mcp_nb.notebook.shown import ShownServers
from casual_mcp_nb.notebook.starting import StartDisplay
from casual_mcp_nb.notebook.sync_and_async import awaited, blocking
from casual_mcp_nb.notebook.warming import warm_up
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.search import Explanation, SearchResults
from casual_mcp_nb.types.server import Policies
from casual_mcp_nb.types.session import Servers, ServerStatus
from casual_mcp_nb.types.step import ToolCall

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from casual_mcp_nb.discovery.index import ToolSearchIndex


class Session(SessionExtract):
    """MCP servers, models and one conversation, for a notebook or a script.

    Every method that takes time blocks; its twin with `_async` at the end of the name is awaited instead. Both run on the
    engine thread, so it does not matter which loop or thread they are called from. Use it as a context manager, or call
    `close`.

    In IPython a config stands for one session: opening it anew closes the one before, so that a set-up cell can be run again
    and again. Two of one config at the same time have different names.

    Args:
        config: A path to a config file, a dict, or a loaded config.
        in_process: FastMCP servers of this process, by name.
        name: What tells this session from another one of the same config.
        system: The system prompt of turns that name neither another one nor a template; None for the model's template.
        prices: What models cost, in the place of the config's `prices`: a JSON file or plain objects, see `read_prices`.
        approval: When the person is asked before a call, by server, also for servers of this process: `never`, `destructive`,
            `always`, or a mapping of tool names to these. It counts instead of the config's `approval`.
        quiet: Do not show how the servers start; `MCP_QUIET` in the environment does the same for all sessions.

    Attributes:
        config: The config as loaded.
        name: The name as given.

    Raises:
        ConfigError: The config or a policy is wrong; nothing was started.
        UnknownNameError: `approval` names a server that does not exist.
    """

    _made = False

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        quiet: bool = False,
    ) -> None:
        try:
            self.config = load_config(config)
        finally:
            # A traceback that shows the values of variables would show what is in a dict.
            del config
        if prices is not None:
            self.config = self.config.model_copy(update={"prices": read_prices(prices)})
        self.name = name
        self._quiet = quiet
        self._model = next(iter(self.config.models), None)
        self._observers = Observers()
        self.engine = engine_thread()
        self._questions = Questions(self.engine, self._observers)
        variables = read_environment(self.config.folder)
        settings = Settings.from_environ(variables)
        if variables.get("LOG_LEVEL", "").strip():
            show_log(settings.log_level)
        self._chat = McpToolChat.from_config(
            self.config,
            settings=settings,
            in_process=in_process,
            system=checked_system(system),
            approver=self._questions.approve,
            approval=approval,
            can_ask=self._questions.can_ask,
            answer_limits=self._questions.limits,
            elicitation=self._questions.elicit,
            changed=self._observers.changed,
        )
        self._runner = ConversationRunner(self._chat, self._observers)
        self._forgotten = weakref.finalize(self, close_in_background, self.engine, self._chat.close)
        self._forgotten.atexit = False
        self._before = replace_earlier(self)
        self._made = True

    if not TYPE_CHECKING:  # A type checker finds such a name by itself, unless there is this method.

        def __setattr__(self, name: str, value: Any) -> None:
            # A subclass has attributes of its own.
            if self._made and type(self) is Session and not name.startswith("_"):
                self._check_attribute(name)
            super().__setattr__(name, value)

    def _check_attribute(self, name: str) -> None:
        if name not in self.__dict__ and not hasattr(type(self), name):
            known = [each for each in dir(type(self)) if getattr(getattr(type(self), each), "fset", None)]
            raise UnknownNameError("attribute of a session", name, known)

    @classmethod
    def from_config(
        cls,
        config: Config | str | Path | Mapping[str, Any],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        name: str | None = None,
        system: str | None = None,
        prices: str | Path | Mapping[str, Any] | None = None,
        approval: Mapping[str, Policies] | None = None,
        quiet: bool = False,
    ) -> Self:
        """A session from a config file or value; it connects on first use, or by `connect`. Takes what `Session` takes."""
        try:
            return cls(config, in_process=in_process, name=name, system=system, prices=prices, approval=approval, quiet=quiet)
        finally:
            del config

    @classmethod
    def demo(cls) -> Self:
        """A session with the bundled servers and the offline planner: no key, no network."""
        return cls(demo_config())

    def connect(self, *, strict: bool = False, quiet: bool = False) -> Servers:
        """Start all servers side by side and wait until each is ready or has failed; a cell or a terminal shows it meanwhile.

        Args:
            strict: Whether a server that failed is an error.
            quiet: Show nothing.

        Returns:
            How each of them is. A server that failed does not raise unless `strict`; its status says why.

        Raises:
            ConnectError: With `strict`, a server failed; the message has the reason of each.
        """
        with self.start_shown(quiet=quiet, table=True) as display:
            self.engine.run(self._connect())
        return self._connected(strict, display)

    async def connect_async(self, *, strict: bool = False, quiet: bool = False) -> Servers:
        """`connect`, awaited; takes the same arguments."""
        with self.start_shown(quiet=quiet, table=True) as display:
            await self.engine.wait(self._connect())
        return self._connected(strict, display)

    async def _connect(self) -> None:
        warm_up()
        await self._view()

    def _connected(self, strict: bool, display: StartDisplay | None) -> Servers:
        servers = self.servers
        if strict:
            servers.raise_for_status()
        shown = display is not None and display.in_notebook
        return ShownServers(servers, notebook_shell()) if shown else servers

    async def _reconnect(self, name: str) -> ServerStatus:
        """Connect one server anew; the others are not touched.

        Args:
            name: The server's name in the config.

        Raises:
            UnknownNameError: There is no such server.
        """
        self._runner.check_open()
        await self._chat.server_manager.reconnect(name)
        await self._view()
        return self.servers[name]

    reconnect, reconnect_async = blocking(_reconnect), awaited(_reconnect)

    async def _close(self) -> None:
        self._forgotten.detach()
        unregister(self)
        try:
            await self._runner.close("it was closed")
        finally:
            # After the turn: what freezes now stays as it is.
            self._observers.closed()
        await self._chat.close()

    def close(self) -> None:
        """End all server processes and connections; a turn that is running is stopped. Closing twice is harmless, and so is
        closing in a forked child, which leaves the parent's servers alone; what was said stays readable."""
        if not self.engine.inherited:
            self.engine.run(self._close())

    async def close_async(self) -> None:
        """`close`, awaited."""
        if not self.engine.inherited:
            await self.engine.wait(self._close())

    def _inherit(self) -> None:
        """Become unusable, in a forked child, without a word to servers, listeners or the engine thread: they are the
        parent's."""
        self._forgotten.detach()
        self._observers.clear()
        self._runner.end(OTHER_PROCESS)
        self._chat.abandon()

    def __reduce__(self) -> Never:
        raise UsageError(
            "A session cannot be pickled or copied: it belongs to the process that made it.",
            hint="Make one where it is used, from the same config: Session.from_config(…).",
        )

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

    async def _search(
        self, query: str, k: int | None = None, server: str | None = None, *, all_tools: bool = False
    ) -> SearchResults:
        """Search the deferred tools as the model does; where none is deferred, all that the selection includes.

        Args:
            query: What is looked for, in words.
            k: How many; None for the selection's limit.
            server: Only tools of this server.
            all_tools: Search the loaded tools too.

        Returns:
            The hits, best first; each explains itself, and `why_not(name)` explains any other tool.

        Raises:
            UsageError: `k` is less than 1.
        """
        if k is not None and k < 1:
            raise UsageError(f"A search for {k} tools finds none.", hint="k is 1 or more; None for the selection's limit.")
        index = await self._searchable(all_tools)
        results = index.find(query, self.selection.max_search_results if k is None else k, server)
        return replace(results, why_not=partial(_why_not, results, index, self._chat.current_view()))

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
        with self._questions.prompt_on():
            return await call_tool_directly(self._chat.server_manager, tool, arguments)

    call_tool, call_tool_async = blocking(_call_tool), awaited(_call_tool)

    async def _view(self) -> ToolView:
        self._runner.check_open()
        # The servers of a session whose place this one takes may hold what its own need: a port, a file.
        for end in self._before:
            await asyncio.wait([asyncio.wrap_future(end)])
        self._before = []
        return await self._chat.view()

    def close_replaced(self, why: str) -> Future[None]:
        """Close in the background, from any thread; use from now on is an error that says why."""
        self._runner.end(why)
        return close_in_background(self.engine, self._close)


def _why_not(results: SearchResults, index: ToolSearchIndex, view: ToolView, name: str) -> Explanation:
    """Explain the place of any tool of the catalog, also of one that the search did not look at."""
    tool = view.catalog.resolve(name)
    if tool.tool_name in {known.tool_name for known in index.tools}:
        return results.why_not(str(tool.tool_name))
    loaded = tool.wire_name in view.loaded_by_name
    skipped = "Already loaded, so search skips it." if loaded else "The selection leaves it out, so search skips it."
    return Explanation(tool, results.query, 0.0, None, results.cut, (), (), skipped=skipped)
