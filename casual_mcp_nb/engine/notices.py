"""Notices and log messages of a turn: each is given once, and their number is limited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.base.tool import ToolName, tool_names
from casual_mcp_nb.conversation.event import Event, Notice, ServerLog
from casual_mcp_nb.errors import shown

if TYPE_CHECKING:
    from casual_mcp_nb.engine.tool_view import ToolView

MAX_LOGS = 1_000
"""How many log messages a turn keeps from its servers."""

MAX_LOG_CHARACTERS = 500_000
"""Their maximum total length in characters."""

_MAX_NAMES = 12


class SeenNotices:
    """What the person was told in a conversation, so that no notice appears twice."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._missing: tuple[Notice, ...] = ()

    def new(self, texts: Sequence[str], *, first: bool = False) -> list[str]:
        """Filter out the earlier texts, and remember the new ones."""
        if first:
            self._texts = set()
        if not texts:
            return []
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        self._texts.update(new)
        return new

    def changed(self, missing: tuple[Notice, ...], *, first: bool) -> tuple[Notice, ...]:
        """Filter out the notices on missing tools if the previous turn had the same ones."""
        before, self._missing = self._missing, missing
        return missing if first or missing != before else ()


class ServerLogs:
    """The log messages that servers send during a turn, up to a limit."""

    def __init__(self, emit: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._emit = emit
        self._now = now
        self._count = 0
        self._characters = 0
        self._full = False

    def add(self, server: str, level: str, text: str) -> None:
        """Emit a log message, unless there were too many already."""
        self._count += 1
        self._characters += len(text)
        if self._count <= MAX_LOGS and self._characters <= MAX_LOG_CHARACTERS:
            self._emit(ServerLog(server, level, text, at=self._now()))
        elif not self._full:
            self._full = True
            limit = f"{MAX_LOGS:,} log messages, or {MAX_LOG_CHARACTERS:,} characters of them"
            notice = f"There were more than {limit}. The others are left out."
            self._emit(Notice(notice, server=server, at=self._now()))


def view_changes(before: ToolView, after: ToolView) -> list[Notice]:
    """Build a notice for each server that offers more or fewer tools in one view than in the
    other.
    """
    old, new = _names(before), _names(after)
    return [
        *_by_server("now offers {count} more", new - old),
        *_by_server("no longer offers {count}", old - new),
    ]


def unseen(notices: Sequence[Notice], seen: Iterable[Notice]) -> list[Notice]:
    """Filter out the notices that share server and text with one in `seen`."""
    texts = {(notice.server, notice.text) for notice in seen}
    return [notice for notice in notices if (notice.server, notice.text) not in texts]


def _names(view: ToolView) -> set[ToolName]:
    return tool_names(view.included)


def _by_server(change: str, names: set[ToolName]) -> list[Notice]:
    by_server: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        by_server[name.server].append(name.tool)
    return [
        Notice(_sentence(server, change, tools), server=server)
        for server, tools in by_server.items()
    ]


def _sentence(server: str, change: str, tools: list[str]) -> str:
    count = "1 tool" if len(tools) == 1 else f"{len(tools):,} tools"
    more = f" and {len(tools) - _MAX_NAMES:,} more" if len(tools) > _MAX_NAMES else ""
    return (
        f"Server {shown(server)} {change.format(count=count)}:"
        f" {', '.join(map(shown, tools[:_MAX_NAMES]))}{more}."
    )
