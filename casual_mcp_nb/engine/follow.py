"""Tools that appear, change or go while a turn runs: the next step sees them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.event import Notice
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_mcp_nb.engine.view import ToolView

RELIST_SECONDS = 3.0
"""How long a step waits for servers that list their tools again."""
_TURNS_OF_THE_LOOP = 3
_NAMED = 12


class Relisting:
    """Lists tools again where a server said that they changed, or where its list has become old.

    Args:
        is_fresh: Whether there is nothing to list.
        list_again: Lists what is not fresh. It is not cancelled when it takes too long: the next step may have it.
    """

    def __init__(self, is_fresh: Callable[[], bool], list_again: Callable[[], Awaitable[None]]) -> None:
        self._is_fresh = is_fresh
        self._list_again = list_again
        self._task: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Have the lists up to date, or wait for that as long as a step waits; once only for a server that hangs."""
        # A notice that came with a result is read by a task of its own, just after it.
        for _ in range(_TURNS_OF_THE_LOOP):
            await asyncio.sleep(0)
        if self._task is not None and not self._task.done():
            return
        if not self._is_fresh():
            self._task = asyncio.ensure_future(self._list_again())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({self._task}, timeout=RELIST_SECONDS)

    def close(self) -> None:
        """End a listing that is under way."""
        if self._task is not None:
            self._task.cancel()


def changes(before: ToolView, after: ToolView) -> list[Notice]:
    """What a person should know about the tools of a server that came or went between two views."""
    old, new = _names(before), _names(after)
    return [*_told("now offers {count} more", new - old), *_told("no longer offers {count}", old - new)]


def news(notices: Sequence[Notice], told: Iterable[Notice]) -> list[Notice]:
    """Those notices whose text was not told before."""
    known = {(notice.server, notice.text) for notice in told}
    return [notice for notice in notices if (notice.server, notice.text) not in known]


def _names(view: ToolView) -> set[ToolName]:
    return {tool.tool_name for tool in (*view.loaded, *view.deferred)}


def _told(what: str, names: set[ToolName]) -> list[Notice]:
    by_server: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        by_server[name.server].append(name.tool)
    return [Notice(f"{_sentence(server, what, tools)}", server=server) for server, tools in by_server.items()]


def _sentence(server: str, what: str, tools: list[str]) -> str:
    count = "1 tool" if len(tools) == 1 else f"{len(tools):,} tools"
    more = f" and {len(tools) - _NAMED:,} more" if len(tools) > _NAMED else ""
    return f"Server {shown(server)} {what.format(count=count)}: {', '.join(map(shown, tools[:_NAMED]))}{more}."
