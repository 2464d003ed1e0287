"""The current tools of a chat: listed, checked for changes, and compiled into views."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.discovery import SyntheticTool
from casual_mcp_nb.engine.exclusions import Exclusions
from casual_mcp_nb.engine.instructions import are_enabled
from casual_mcp_nb.engine.options import always_loaded, mode_of
from casual_mcp_nb.engine.own_tools import OnLog, OwnTool
from casual_mcp_nb.engine.tool_changes import ToolChangeTracker
from casual_mcp_nb.engine.view import ToolView, ViewCache
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.toolbox.toolbox import NOTEBOOK
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tool import MAX_TOOLS_ON_LOOP, Catalog

if TYPE_CHECKING:
    from casual_mcp_nb.providers.chat_model import ChatModel

RELIST_SECONDS = 3.0
"""How long a step waits for servers that list their tools again."""
_LOOP_ITERATIONS = 3


class ChatTools:
    """The tools of a chat's servers, and the views of them that a model sees under a selection.

    Args:
        server_manager: The connections.
        tool_sets: The toolsets that a selection can name.
        strict: Whether a changed tool of any server is blocked until the change is accepted.

    Attributes:
        changes: The changes of definitions.
        exclusions: The tools that the config excludes.
        own: The person's own synthetic tools.
        window: Returns the context window, in tokens, of the model that turns use unless they name another; None if unknown.
    """

    def __init__(self, server_manager: ServerManager, tool_sets: Mapping[str, ToolSetConfig], strict: bool = False) -> None:
        self._server_manager = server_manager
        self._strict = strict
        self._tool_sets = tool_sets
        self._views = ViewCache()
        self._relisting = Relisting(lambda: server_manager.fresh, self.update)
        self.changes = ToolChangeTracker(self._is_pinned, own={NOTEBOOK})
        self.exclusions = Exclusions(server_manager.config_of)
        self.own: tuple[OwnTool, ...] = ()
        self.window: Callable[[], int | None] = lambda: None
        self._instruction_texts: tuple[Catalog, Mapping[str, str]] = Catalog(), {}
        self._last_view: tuple[str, tuple[OwnTool, ...], ToolView | None] = "", (), None

    async def update(self) -> None:
        """Update the tools of the servers that are ready, listing again if a list is stale. Does not connect."""
        catalog = await self._server_manager.catalog()
        if catalog is not self.changes.catalog and len(catalog) > MAX_TOOLS_ON_LOOP:
            await asyncio.to_thread(self.changes.update, catalog)
        else:
            self.changes.update(catalog)

    async def update_known(self) -> None:
        """Update the tools to the last lists of the servers: those of the notebook have changed. Asks no server."""
        self.changes.update(self._server_manager.known_catalog())

    async def connected_view(self, selection: Selection, model: ChatModel | None = None) -> ToolView:
        """Connect the servers that a selection needs, and compile the model's view under it.

        Args:
            selection: The selection.
            model: The model; None for the one that turns use unless they name another.
        """
        self._enable(selection)
        # Each turn calls this, and usually there is nothing to do.
        if (catalog := self._server_manager.current_catalog()) is None or catalog is not self.changes.catalog:
            await self._server_manager.connect()
            await self.update()
        auto = selection.discovery == "auto"
        window = model.window if auto and model is not None else None
        if auto and len(self.changes.catalog) > MAX_TOOLS_ON_LOOP:
            view = await asyncio.to_thread(self.view, selection, window)
        else:
            view = self.view(selection, window)
        if "undeferred_tokens" not in view.__dict__:
            await view.measure()
        return view

    def _enable(self, selection: Selection) -> None:
        if self._server_manager.disabled:
            self._server_manager.enable(name for name, mode in selection.servers.items() if mode != "off")

    async def current_view(self, selection: Selection) -> ToolView:
        """Compile the current view of a selection: connect the servers it needs, or wait a few seconds at most for new lists.

        Args:
            selection: The selection.
        """
        self._enable(selection)
        if self._server_manager.waiting:
            return await self.connected_view(selection)
        await self.relist()
        view = self.view(selection)
        await view.measure()
        return view

    async def relist(self) -> None:
        """List the tools again that servers have changed; wait a few seconds at most."""
        # A notification that came with a result is read by another task, just after it.
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)
        if (catalog := self._server_manager.current_catalog()) is not None and catalog is self.changes.catalog:
            return
        if await self._relisting.wait():
            # Also what changed without a listing, such as the functions of the notebook.
            await self.update()

    async def refreshed_view(self, view: ToolView) -> ToolView:
        """Update the view of a running turn after changes by servers; the same view if nothing changed.

        Waits for servers that list their tools again, for a few seconds at most.
        """
        await self.relist()
        if self.changes.catalog is view.catalog and self.changes.blocked == view.blocked and view.own is self.own:
            return view
        refreshed = self.view(self._with_new_servers(view.selection))
        await refreshed.measure()
        return refreshed

    def _with_new_servers(self, selection: Selection) -> Selection:
        """Add the servers that are new to the selection of a running turn, as their configs have them."""
        new = [name for name in self.changes.catalog.by_server if name not in selection.servers]
        configs = {name: config for name in new if (config := self._server_manager.config_of(name)) is not None}
        if not configs:
            return selection
        selection = selection.snapshot()
        for name, config in configs.items():
            selection.servers[name] = mode_of(config)
            if always := always_loaded(name, config):
                selection.always_loaded = (*selection.always_loaded, *always)
        return selection

    def view(self, selection: Selection, window: int | None = None) -> ToolView:
        """Compile the view from the tools that are known now. Does not connect and does not wait; for any thread.

        Args:
            selection: The selection.
            window: Context window of the model in tokens; None for that of the model that turns use unless they name another.
        """
        catalog, key, blocked, own = self.changes.catalog, selection.key(), self.changes.blocked, self.own
        last_key, last_own, last = self._last_view
        if last is not None and key is last_key and catalog is last.catalog and blocked is last.blocked and own is last_own:
            return last
        excluded = self.exclusions.of(catalog)
        instructions = self._instructions(catalog)
        window = window or self.window()
        view = self._views.get(catalog, selection, self._tool_sets, blocked, excluded, own, instructions, window)
        # A toolset can be given another content under the same name, and models have other windows.
        if selection.tool_set is None and selection.discovery != "auto" and selection.key() is key:
            self._last_view = key, own, view
        return view

    def _instructions(self, catalog: Catalog) -> Mapping[str, str]:
        """Collect the instructions of servers; the same as long as the catalog is, so that the manifest is too."""
        if self._instruction_texts[0] is not catalog:
            # Those of a server that is gone for a moment stay.
            texts = {name: text for name, text in self._instruction_texts[1].items() if name in catalog.by_server}
            for name, text in self._server_manager.instructions.items():
                if text.strip() and are_enabled(name, self._server_manager):
                    texts[name] = text
            self._instruction_texts = catalog, texts
        return self._instruction_texts[1]

    def add_own(self, tool: SyntheticTool, on_log: OnLog) -> None:
        """Add a synthetic tool of the person; one of the same name is replaced.

        Raises:
            UsageError: It is not one, or its name is taken.
        """
        own = OwnTool(tool, on_log)
        own.check(self.changes.catalog)
        self.own = (*(each for each in self.own if each.spec.name != own.spec.name), own)

    def remove_own(self, name: str) -> None:
        """Remove a synthetic tool of the person.

        Raises:
            UnknownNameError: There is none of that name.
        """
        names = [each.spec.name for each in self.own]
        if name not in names:
            raise UnknownNameError("synthetic tool", name, names)
        self.own = tuple(each for each in self.own if each.spec.name != name)

    def close(self) -> None:
        """Cancel a listing in progress."""
        self._relisting.close()

    def abandon(self) -> None:
        """Forget the views, in a forked child: the lock of the cache may have been held at the fork."""
        self._views, self._last_view = ViewCache(), ("", (), None)

    def _is_pinned(self, server: str) -> bool:
        config = self._server_manager.config_of(server)
        return self._strict or (config is not None and config.pin_tools)


class Relisting:
    """Lists tools again if a server reported a change or its list has expired.

    Args:
        is_fresh: Returns whether there is nothing to list.
        relist: Lists what is not fresh. It is not cancelled when it takes too long: the next step may use the result.
    """

    def __init__(self, is_fresh: Callable[[], bool], relist: Callable[[], Awaitable[None]]) -> None:
        self._is_fresh = is_fresh
        self._relist = relist
        self._task: asyncio.Future[None] | None = None

    async def wait(self) -> bool:
        """Wait until the lists are up to date, a few seconds at most; only once for a server that does not answer.

        Returns:
            Whether they are.
        """
        if self._task is not None and not self._task.done():
            return self._is_fresh()
        if self._is_fresh():
            return True
        self._task = asyncio.ensure_future(self._relist())
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({self._task}, timeout=RELIST_SECONDS)
        return self._is_fresh()

    def close(self) -> None:
        """Cancel a listing in progress."""
        if self._task is not None:
            self._task.cancel()
