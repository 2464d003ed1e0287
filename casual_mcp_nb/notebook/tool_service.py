"""The servers and tools of a session: their state, the model's view of them, and the user's changes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.diagnosis import HostAudit
from casual_mcp_nb.base.search import Explanation, SearchResults
from casual_mcp_nb.base.selection import Listeners, Selection
from casual_mcp_nb.base.status import Servers, ServerStatus, ToolSets
from casual_mcp_nb.base.tokens import Budget, estimate_tokens
from casual_mcp_nb.base.tool import Catalog, Permission, ToolName, ToolSpec
from casual_mcp_nb.conversation.audit import (
    AuditRecord,
    Caller,
    DirectCall,
    DirectCalls,
    size_of_arguments,
    size_of_result,
)
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.discovery.toolsets import resolve_tool_set
from casual_mcp_nb.engine.calls import NestedCall, Nesting
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.context import turn_budget
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.results import result_text_async
from casual_mcp_nb.engine.tool_client import ToolClient
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.engine.tools import ChatNames
from casual_mcp_nb.errors import ServerError, ToolTimeoutError, TrustRequiredError, UnknownNameError, UsageError
from casual_mcp_nb.notebook.consent import TrustGate
from casual_mcp_nb.notebook.live import ShownServers
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.prompts import Questions
from casual_mcp_nb.notebook.shell import notebook_shell
from casual_mcp_nb.notebook.starting import StartDisplay, announcement_of, summary_of, warm_up, warmed_up
from casual_mcp_nb.notebook.status import servers_of, tool_sets_of
from casual_mcp_nb.notebook.sync_and_async import on_engine

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex
    from casual_mcp_nb.servers.server_manager import ServerManager

T = TypeVar("T")

MAX_CALLS = 200
MAX_SIZE = 32 * 1024 * 1024
"""What the results of all recorded calls may take, in characters and bytes; the last one is kept whatever it takes."""


class RecordedCalls:
    """The last calls; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._calls: tuple[tuple[DirectCall, int], ...] = ()

    def add(self, at: float, call: ToolCall) -> DirectCall:
        """Record a call that began at `at`, in seconds since 1970."""
        with self._lock:
            added = DirectCall(str(next(self._numbers)), at, call)
            calls = [*self._calls, (added, _size(call))][-MAX_CALLS:]
            size = sum(each for _, each in calls)
            while len(calls) > 1 and size > MAX_SIZE:
                size -= calls.pop(0)[1]
            self._calls = tuple(calls)
        return added

    def list(self, tool: ToolName | None = None) -> DirectCalls:
        """List the calls, the newest first.

        Args:
            tool: Only those of this tool; None for all.
        """
        return DirectCalls(tuple(each for each, _ in reversed(self._calls) if tool is None or each.call.tool == tool))

    def by_id(self, id: str) -> DirectCall:
        """Find the call with this id.

        Raises:
            UnknownNameError: It is not recorded, or not any more.
        """
        calls = {each.id: each for each, _ in self._calls}
        if id not in calls:
            raise UnknownNameError("call", id, calls)
        return calls[id]


def _size(call: ToolCall) -> int:
    # Structured content is in the text too, in some form.
    parts = sum(len(part.text) + len(part.data or b"") for part in call.content)
    return len(call.result) * (2 if call.structured is not None else 1) + parts


class ToolService:
    """Servers, tools, toolsets and the selection. Its coroutines run on the engine's loop; the rest is for any thread.

    Args:
        chat: Has the connections and the selection.
        config: Where toolsets are saved.
        engine: The thread of the coroutines.
        observers: Told when the toolsets change.
        questions: What a tool asks when a person calls it.
        gate: Decides whether the servers of the config may start.
        check_open: Raises if the session can no longer be used.
        quiet: Do not show how servers start.

    Attributes:
        predecessors: Earlier sessions that must be closed before anything is connected: they may hold a port or a file.
        calls: The last calls of `call`.
    """

    def __init__(
        self,
        chat: McpToolChat,
        config: Config,
        engine: EngineThread,
        observers: Observers,
        questions: Questions,
        *,
        gate: TrustGate,
        check_open: Callable[[], None] = lambda: None,
        quiet: bool = False,
    ) -> None:
        self.predecessors: Sequence[Future[None]] = ()
        self.calls = RecordedCalls()
        self._chat = chat
        self._config = config
        self._engine = engine
        self._observers = observers
        self._questions = questions
        self._gate = gate
        self.check_open = check_open
        self._quiet = quiet

    @property
    def catalog(self) -> Catalog:
        """The tools that are known now."""
        return self._chat.catalog

    def status_of(self, name: str) -> ServerStatus:
        """Get the state of one server.

        Raises:
            UnknownNameError: There is no server of that name.
        """
        return self._chat.server_manager.status_of(name)

    @property
    def waiting(self) -> list[str]:
        """The servers that are not connected yet and would be by `connect`."""
        return self._chat.server_manager.waiting

    @property
    def servers(self) -> Servers:
        """The servers with the modes that the selection gives them."""
        return servers_of(self._chat)

    @property
    def selection(self) -> Selection:
        """The tools that the model sees; it checks the names that are assigned to it."""
        return self._chat.selection

    @property
    def names(self) -> ChatNames:
        """The check of the names of servers, toolsets and tools."""
        return self._chat.names

    @property
    def tool_sets(self) -> Mapping[str, ToolSetConfig]:
        """The toolsets by name."""
        return self._chat.tool_sets

    def resolve_tool_set(self, tool_set: str | ToolSetConfig | None) -> ToolSetConfig | None:
        """Look up the toolset of a name.

        Raises:
            UnknownNameError: No toolset has that name.
        """
        return resolve_tool_set(tool_set, self._chat.tool_sets)

    def tool_sets_in(self, view: ToolView) -> ToolSets:
        """List the toolsets with the number of tools of a view that each includes."""
        return tool_sets_of(self._chat, view)

    def current_view(self, selection: Selection | None = None) -> ToolView:
        """Compile the view from the tools that are known now. Does not connect and does not wait.

        Args:
            selection: The selection; None for the present one.
        """
        return self._chat.current_view(selection)

    async def update(self) -> None:
        """Read the tools of the servers that are ready. Does not connect."""
        await self._chat.tools.update()

    async def view(self) -> ToolView:
        """Compile the model's view; connects servers that are not connected yet.

        Raises:
            ClosedError: The session can no longer be used.
            TrustRequiredError: The person has not accepted the config.
        """
        await self.admit()
        return await self._chat.view()

    async def admit(self) -> None:
        """Wait until the servers may be used: until earlier sessions that may hold a port or a file are closed.

        Raises:
            ClosedError: The session can no longer be used.
            TrustRequiredError: The person has not accepted the config.
        """
        self.require_trust()
        for end in self.predecessors:
            await asyncio.wait([asyncio.wrap_future(end)])
        self.predecessors = ()

    def require_trust(self) -> None:
        """Raise an error unless the servers may start, without asking.

        Raises:
            ClosedError: The session can no longer be used.
            TrustRequiredError: The person has not accepted the config.
        """
        self.check_open()
        self._gate.require()

    async def relist(self) -> None:
        """List the tools again that servers have changed; wait a few seconds at most."""
        await self._chat.tools.relist()

    @property
    def server_manager(self) -> ServerManager:
        """The connections."""
        return self._chat.server_manager

    @property
    def server_logs(self) -> Listeners[[str, str, str]]:
        """Called with server, level and text of each line that a server logs."""
        return self._chat.server_logs

    def client(self, options: TurnOptions, **asking: Any) -> ToolClient:
        """Create a client of these tools that is not the model of this session.

        Args:
            options: Which tools it is offered, where they differ from the selection.
            asking: As of `ToolClient`: how the person of that client is asked.
        """
        return ToolClient(self._chat, options, admit=self.admit, **asking)

    async def start(self) -> None:
        """Connect all servers, and begin the imports that the first turn needs."""
        warm_up()
        await self.view()

    async def _ready(self) -> None:
        await self.start()
        if notebook_shell() is not None:
            # Rather while servers start than in the cell of the first question.
            await warmed_up()

    async def connect(self, *, strict: bool, quiet: bool) -> Servers:
        """Connect, and show progress, see `Session.connect`; a coroutine of the caller's side, see `on_engine`."""
        with self.start_shown(quiet=quiet, table=True) as display:
            await on_engine(lambda _: self._ready())
        servers = self.servers
        if strict:
            servers.raise_for_status()
        in_cell = display is not None and display.in_notebook
        return ShownServers(servers, notebook_shell()) if in_cell else servers

    @contextmanager
    def start_shown(self, *, quiet: bool = False, table: bool = False, handle: Any = None) -> Iterator[StartDisplay | None]:
        """Show how servers start while the body runs, if any has to be started; ask the person first if they must accept it.

        On the engine's own thread, which has no cell, it does nothing.

        Args:
            quiet: Show nothing.
            table: Leave the servers in the cell as a table instead of a line.
            handle: A display that the cell already has; it is used until the body stops this one.
        """
        if self._engine.inherited or self._engine.is_current:
            yield None
            return
        if not self._gate.is_open:
            self.check_open()
            self._gate.ask()
        waiting = self._chat.server_manager.waiting
        if not waiting:
            yield None
            return
        display = StartDisplay(announcement_of(waiting), quiet=quiet or self._quiet, handle=handle)
        display.follow(lambda: self.servers)
        try:
            yield display
        finally:
            servers = self.servers
            display.finish(servers, servers if table else summary_of(servers))

    async def run_shown(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the engine thread do work for which servers may have to start, which is shown; see `on_engine`."""
        try:
            with self.start_shown():
                return await on_engine(lambda _: work)
        except TrustRequiredError:
            work.close()
            raise

    def use_context(self, values: Mapping[str, Any]) -> None:
        """Set the values that functions are given and no model sees, and hide the parameters that are named as they are."""
        toolbox = self._chat.toolbox
        before, self._chat.context = toolbox.tools_version, values
        if toolbox.tools_version != before:
            self.tools_changed()

    def tools_changed(self) -> None:
        """Take over that a tool of the notebook was added or removed."""
        # A turn that runs takes it from there, and the next line of the cell may look at it.
        future, _ = self._engine.submit(self._chat.tools.update_known())
        if not self._engine.is_current:
            future.result()

    def budget_in(self, view: ToolView) -> Budget:
        """Estimate the cost of turns with a view."""
        instructions = estimate_tokens(with_instructions("", view, self._chat.server_manager))
        budget = turn_budget(view, estimate_tokens(self._chat.system or "") + instructions)
        return replace(budget, instructions=instructions)

    def host_audit(self, unreadable: Mapping[str, str]) -> HostAudit:
        """Measure the cost of the connected servers' tools, see `audit_host`.

        Args:
            unreadable: Servers of the file that are left out of the config, each with the reason.
        """
        from casual_mcp_nb.notebook.status import measure

        return measure(self._chat, self._config, unreadable)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> DirectCall:
        """Call a tool, see `session.tools.call`, and record it."""
        catalog = (await self.view()).catalog

        async def run(nested: NestedCall) -> ToolCall:
            return (await self._call(catalog.resolve(nested.name), nested.arguments, nested.depth, run)).call

        return await self._call(catalog.resolve(name), arguments, 0, run)

    async def _call(
        self, tool: ToolSpec, arguments: Mapping[str, Any], depth: int, run: Callable[[NestedCall], Awaitable[ToolCall]]
    ) -> DirectCall:
        at, start = time.time(), time.monotonic()
        call = ToolCall(id="", name=tool.wire_name, tool=tool.tool_name, arguments=dict(arguments), status="stopped")
        try:
            async with self._questions.prompt_on(), Nesting("", self._chat.context, run, depth):
                result = await self._chat.server_manager.call(tool, arguments)
            call = replace(
                call,
                status="error" if result.is_error else "ok",
                result=await result_text_async(result),
                content=result.content,
                structured=result.structured,
                payload=result.payload,
                previews=result.previews,
                returned=result.returned,
            )
        except ServerError as error:
            call = replace(call, status="timeout" if isinstance(error, ToolTimeoutError) else "error", result=str(error))
            raise
        finally:
            recorded = self.calls.add(at, replace(call, seconds=time.monotonic() - start))
            self._chat.audit.add(_audited(recorded, tool, "tool" if depth else "person"))
        return recorded

    async def search(self, query: str, k: int | None, server: str | None, *, all_tools: bool) -> SearchResults:
        """Search the tools as the model does, see `Session.search`."""
        if k is not None and k < 1:
            raise UsageError(f"k cannot be {k}.", hint="It must be 1 or more; None for the selection's limit.")
        index = await self.searchable(all_tools)
        results = index.find(query, self.selection.max_search_results if k is None else k, server)
        return replace(results, why_not=partial(_why_not, results, index, self.current_view()))

    async def searchable(self, whole: bool = True) -> ToolSearchIndex:
        """Build the search index over the deferred tools, or over all that the selection includes.

        Args:
            whole: Over all of them; the same holds if none is deferred.

        Raises:
            UnknownNameError: The selection's toolset no longer exists.
        """
        view = await self.view()
        self.resolve_tool_set(view.selection.tool_set)
        return await view.searchable(whole=whole or not view.deferred)


def _audited(direct_call: DirectCall, tool: ToolSpec, caller: Caller) -> AuditRecord:
    call = direct_call.call
    permission = Permission("direct", definition=tool.digest)
    sizes = size_of_arguments(call.arguments), size_of_result(call.content, call.result)
    return AuditRecord(direct_call.at, tool.tool_name, caller, permission, call.status, call.seconds, *sizes)


def _why_not(results: SearchResults, index: ToolSearchIndex, view: ToolView, name: str) -> Explanation:
    """Explain the rank of any tool of the catalog, also of one that the search skipped."""
    tool = view.catalog.resolve(name)
    if tool.tool_name in {searched.tool_name for searched in index.tools}:
        return results.why_not(str(tool.tool_name))
    loaded = tool.wire_name in view.loaded_by_name
    skipped = "Already loaded, so search skips it." if loaded else "The selection leaves it out, so search skips it."
    return Explanation(tool, results.query, 0.0, None, results.cut, (), (), skipped=skipped)
