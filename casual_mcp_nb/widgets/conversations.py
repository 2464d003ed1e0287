"""The state behind the panel's list of conversations, and its list of the tools that this one has loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.text import first
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.stored import StoredConversation
from casual_mcp_nb.types.tool import ToolSpec
from casual_mcp_nb.widgets._rows import MAX_NAME
from casual_mcp_nb.widgets.state import SessionParts, State, command

MAX_SHOWN = 50
"""How many conversations the list has; a search finds the others."""
MAX_TOOLS = 100
"""How many discovered tools are listed."""


class ConversationsState(State):
    """The saved conversations, read once somebody looks, and the actions on them.

    Args:
        session: The session.
    """

    def __init__(self, session: SessionParts) -> None:
        super().__init__(session)
        self._turns = session.turn_service
        self._saver = self._turns.runner.saver
        self._version = 0
        self._loaded: list[ToolSpec] | None = None
        self.follow(session.observers.changes.add(self._on_change))

    def snapshot(self) -> dict[str, Any]:
        """Collect whether and where conversations are saved, the tools this one has loaded, and the state of the cassette."""
        if self._loaded is None:
            # The whole conversation is read for that, and a running turn is drawn many times.
            self._loaded = self._turns.runner.discovered
        loaded, cassette = self._loaded, self.session.cassettes.current
        return {
            "saves": self._saver.store is not None,
            "saved": self._saver.current is not None,
            "note": self._saver.note or None,
            "version": self._version,
            "discovered": len(loaded),
            "cassette": first(str(cassette.state), MAX_NAME) if cassette else None,
            "tools": [first(str(tool.tool_name), MAX_NAME) for tool in loaded[:MAX_TOOLS]],
        }

    @command
    async def found(self, query: str = "", archived: bool = False) -> dict[str, Any]:
        """Find the last conversations with a text in them. In Python: `session.store.find`.

        Args:
            query: The text; empty for all.
            archived: Those that are archived instead of the others.

        Returns:
            `rows`; `total`, how many there are; `current`, the id of the one that is open.
        """
        find = partial(self._saver.required.find, status="archived" if archived else "active", limit=MAX_SHOWN)
        stored = await asyncio.to_thread(find, query[:1_000])
        return {"rows": [_row(each) for each in stored], "total": stored.total, "current": self._saver.id}

    @command
    async def open(self, id: str) -> list[str]:
        """Continue a conversation, and list the settings of it that are not available. In Python: `session.resume`."""
        _, problems = await asyncio.to_thread(self._turns.resume, id)
        return problems

    @command
    async def fork(self, id: str) -> list[str]:
        """Continue in a copy of a conversation, and return as `open` does. In Python: `session.fork`."""
        problems = [] if id == self._saver.id else await self.open(id)
        await asyncio.to_thread(self._turns.fork, -1)
        return problems

    @command
    async def rename(self, id: str, title: str) -> None:
        """Give a conversation another title. In Python: `session.store.rename`."""
        await self._change(partial(self._saver.required.rename, id, title))

    @command
    async def archive(self, id: str) -> None:
        """Leave a conversation out of the list. In Python: `session.store.archive`."""
        await self._change(partial(self._saver.required.archive, id))

    @command
    async def restore(self, id: str) -> None:
        """List an archived conversation again. In Python: `session.store.restore`."""
        await self._change(partial(self._saver.required.restore, id))

    @command
    async def delete(self, id: str) -> None:
        """Delete a conversation for good; if it is the one that is open, start another. In Python: `session.store.delete`.

        Raises:
            UsageError: It is the one that is open, and a turn of it is running.
        """
        is_open = id == self._saver.id
        if is_open and self._turns.runner.busy:
            raise UsageError("A turn of this conversation is running: stop it first.")
        await self._change(partial(self._saver.required.delete, id))
        if is_open:
            self._turns.new_conversation()

    @command
    def unload(self, tool: str) -> None:
        """Unload a discovered tool. In Python: `session.unload`."""
        self._turns.runner.unload(tool)

    async def _change(self, change: Callable[[], object]) -> None:
        await asyncio.to_thread(change)
        # Other panels of this session show it too.
        self.session.observers.changes.notify()

    def _on_change(self) -> None:
        self._version += 1
        self._loaded = None
        self.changed()


def _row(stored: StoredConversation) -> dict[str, Any]:
    return {
        "id": stored.id,
        "title": first(stored.title, MAX_NAME),
        "changed": stored.changed.isoformat(),
        "about": ", ".join(
            filter(
                None, [words.count(stored.turns, "turn"), words.tokens(stored.tokens, stored.origin) if stored.tokens else ""]
            )
        ),
    }
