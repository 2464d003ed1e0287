"""What is checked, and what is said, when a turn starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import ConnectError, UnknownNameError
from casual_mcp_nb.toolsets import check_tool_set, missing_servers, resolve_tool_set
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.event import Event, Notice, TurnStarted
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import Catalog
from casual_mcp_nb.types.trace import Trace

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.connections import ServerManager
    from casual_mcp_nb.engine.view import ToolView
    from casual_mcp_nb.providers.chat_model import ChatModel


class PreflightChecks:
    """The checks before a turn; what they came to is kept until a server or the view changes."""

    def __init__(self) -> None:
        self._view: ToolView | None = None
        self._version = 0
        self._missing: tuple[Notice, ...] = ()
        self._told: tuple[Notice, ...] = ()

    def missing(
        self, view: ToolView, server_manager: ServerManager, tool_sets: Mapping[str, ToolSetConfig]
    ) -> tuple[Notice, ...]:
        """A notice for each server in use whose tools are missing.

        Raises:
            UsageError, ConnectError: As of `check_selection`.
        """
        if view is not self._view or server_manager.version != self._version:
            version, statuses = server_manager.version, server_manager.statuses
            check_selection(view.selection, statuses, view.catalog, tool_sets)
            self._missing = missing_notices(view.selection, statuses, tool_sets)
            self._view, self._version = view, version
        return self._missing

    def news(self, missing: tuple[Notice, ...], first: bool) -> tuple[Notice, ...]:
        """What a turn says of what is missing: in the first turn of a conversation all of it, and then only when it is not the
        same as in the turn before."""
        told, self._told = self._told, missing
        return missing if first or missing != told else ()


class Told:
    """What the person was told in this conversation, so that nothing is told twice."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def new(self, texts: Sequence[str], *, first: bool = False) -> list[str]:
        """Return the texts that were not told yet, and take them as told.

        Args:
            texts: What there is to tell.
            first: Whether a conversation begins.
        """
        if first:
            self._texts = set()
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        self._texts.update(new)
        return new


def check_selection(
    selection: Selection,
    statuses: Mapping[str, ServerStatus],
    catalog: Catalog,
    tool_sets: Mapping[str, ToolSetConfig],
) -> None:
    """Check that what a selection names exists, and that one of its servers is there.

    Raises:
        UsageError: A name in it does not exist.
        ConnectError: None of its servers could be connected.
    """
    for name in selection.servers:
        if name not in statuses:
            raise UnknownNameError("server", name, statuses)
    in_use = _in_use(selection, statuses).values()
    if in_use and all(status.state == "failed" for status in in_use):
        reasons = "\n".join(map(_reason, in_use))
        raise ConnectError(
            f"No server could be connected:\n{reasons}\n",
            hint="Repair one and reconnect it, or turn them off to chat without tools.",
        )
    tool_set = resolve_tool_set(selection.tool_set, tool_sets)
    if tool_set is not None:
        tool_set_name = selection.tool_set if isinstance(selection.tool_set, str) else None
        check_tool_set(tool_set, statuses, catalog, name=tool_set_name)


def missing_notices(
    selection: Selection, statuses: Mapping[str, ServerStatus], tool_sets: Mapping[str, ToolSetConfig]
) -> tuple[Notice, ...]:
    """A notice for each server in use whose tools are missing."""
    return missing_servers(resolve_tool_set(selection.tool_set, tool_sets), _in_use(selection, statuses))


def turn_started(
    messages: Sequence[ChatMessage], model: ChatModel, selection: Selection, view: ToolView, discovered: Mapping[str, object]
) -> TurnStarted:
    """The event that begins a turn."""
    tool_set = selection.tool_set
    return TurnStarted(
        messages=tuple(messages),
        model=model.name,
        provider=model.provider,
        tool_set="custom" if isinstance(tool_set, ToolSetConfig) else tool_set,
        discovery=selection.discovery,
        loaded=len(view.loaded) + len(discovered),
        deferred=len(view.deferred) - len(discovered),
        undeferred_tokens=view.undeferred_tokens,
        price=model.price,
    )


def recorder(trace: Trace, on_event: Callable[[Event], None] | None) -> Callable[[Event], None]:
    """What adds events to a trace, and hands them on."""

    def emit(event: Event) -> None:
        trace.append(event)
        if on_event is not None:
            on_event(event)

    return emit


def _in_use(selection: Selection, statuses: Mapping[str, ServerStatus]) -> dict[str, ServerStatus]:
    return {name: status for name, status in statuses.items() if selection.servers.get(name) != "off"}


def _reason(status: ServerStatus) -> str:
    tail = status.stderr_tail.splitlines()[-3:]
    return "\n".join([f"- {status.name}: {status.error}", *(f"    {line}" for line in tail)])
