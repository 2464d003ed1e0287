"""The state behind the panel's list of saved conversations, and the actions on them."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.conversation import StoredConversation
from casual_mcp_nb.display import words
from casual_mcp_nb.display.words import first
from casual_mcp_nb.widgets._rows import MAX_NAME
from casual_mcp_nb.widgets.base import HasParts, State, command

MAX_SHOWN = 50
"""How many conversations the list has. A search finds the others."""
MAX_TOOLS = 100
"""How many discovered tools are listed."""


class ConversationsState(State):
    """The saved conversations, read once somebody looks, and the actions on them."""

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._turns = session.parts.turn_service
        self._saver = self._turns.runner.saver
        self._version = 0
        self._loaded: list[ToolSpec] | None = None
        self.follow(session.parts.observers.changes.add(self._on_change))

    def snapshot(self) -> dict[str, Any]:
        """Collect whether and where conversations are saved, the tools this one has loaded, and the
        cassette's state.
        """
        if self._loaded is None:
            # The whole conversation is read for that, and a running turn is drawn many times.
            self._loaded = self._turns.runner.discovered
        loaded, cassette = self._loaded, self.parts.cassettes.current
        return {
            "saves": self._saver.store is not None,
            "saved": self._saver.current is not None,
            "note": self._saver.note(first=True) or None,
            "version": self._version,
            "discovered": len(loaded),
            "cassette": first(str(cassette.state), MAX_NAME) if cassette else None,
            "tools": [first(str(tool.tool_name), MAX_NAME) for tool in loaded[:MAX_TOOLS]],
        }

    @command
    async def found(self, query: str = "", archived: bool = False) -> dict[str, Any]:
        """Find the last conversations with a text in them. In Python: `session.conversations.find`.

        Args:
            query: The text, or empty for all.
            archived: Find archived conversations instead.

        Returns:
            `rows`; `total`, how many there are; `current`, the open one's id.
        """
        status: Literal["active", "archived"] = "archived" if archived else "active"
        stored = await asyncio.to_thread(
            self._saver.required.find, query[:1_000], status=status, limit=MAX_SHOWN
        )
        return {
            "rows": list(map(_row, stored)),
            "total": stored.total,
            "current": self._saver.id,
        }

    @command
    async def open(self, id: str) -> list[str]:
        """Continue a conversation, and list unavailable settings.

        In Python: `session.conversations.resume`.
        """
        _, problems = await asyncio.to_thread(self._turns.resume, id)
        return problems

    @command
    async def fork(self, id: str) -> list[str]:
        """Continue in a copy of a conversation, and return the same as `open`.

        In Python: `session.conversations.fork`.
        """
        problems: list[str] = []
        if id != self._saver.id:
            problems = await self.open(id)
        await asyncio.to_thread(self._turns.fork, -1)
        return problems

    @command
    async def rename(self, id: str, title: str) -> None:
        """Give a conversation another title. In Python: `session.conversations.rename`."""
        await asyncio.to_thread(self.parts.conversations.rename, id, title)

    @command
    async def archive(self, id: str) -> None:
        """Leave a conversation out of the list. In Python: `session.conversations.archive`."""
        await asyncio.to_thread(self.parts.conversations.archive, id)

    @command
    async def restore(self, id: str) -> None:
        """List an archived conversation again. In Python: `session.conversations.restore`."""
        await asyncio.to_thread(self.parts.conversations.restore, id)

    @command
    async def delete(self, id: str) -> None:
        """Delete a conversation for good. If it is the one that is open, start another.

        In Python: `session.conversations.delete`.
        """
        await asyncio.to_thread(self.parts.conversations.delete, id)

    @command
    def unload(self, tool: str) -> None:
        """Unload a discovered tool. In Python: `session.tools.unload`."""
        self.parts.tools.unload(tool)

    def _on_change(self) -> None:
        self._version += 1
        self._loaded = None
        self.changed()


def _row(stored: StoredConversation) -> dict[str, Any]:
    about = []
    if stored.damaged:
        about.append("damaged")
    if stored.head.forked_from:
        about.append("fork")
    about.append(words.count(stored.turns, "turn"))
    if stored.tokens:
        about.append(words.tokens(stored.tokens, stored.origin))
    return {
        "id": stored.id,
        "title": first(stored.title, MAX_NAME),
        "changed": stored.changed.isoformat(),
        "about": ", ".join(about),
    }
