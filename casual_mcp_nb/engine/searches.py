"""A search by the model, on the trace and in a replay."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.arguments import parse_arguments
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import SearchRow, ToolsSearched
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall


def search_event(
    step: int, call: AssistantToolCall, search: SyntheticToolResult, offered: int, at: float
) -> ToolsSearched | None:
    """Build the event for a call that searched for tools, or None for another call."""
    if search.rows is None:
        return None
    arguments = parse_arguments(call.function.arguments)
    query = _query_in_words(arguments) if isinstance(arguments, dict) else ""
    unloaded = tuple(tool.tool_name for tool in search.unloaded)
    return ToolsSearched(
        step,
        call.id,
        query=query,
        rows=search.rows,
        offered=offered,
        at=at,
        unloaded=unloaded,
        ranked_by=search.ranked_by,
        skills=search.skills,
    )


def as_presented(
    search: SyntheticToolResult, text: str, deferred: Mapping[str, ToolSpec], loaded: Container[str]
) -> SyntheticToolResult:
    """Correct a search's result, so that it loads the tools that the text presents as loaded. In a
    replay, the model reads that text, and the search may find other tools today.

    Args:
        search: The result of the search.
        text: The text, from the cassette that is replayed.
        deferred: The deferred tools, by wire name.
        loaded: The wire names of those that are loaded already.
    """
    names = loaded_in(text)
    if names == loaded_in(search.content):
        return search
    rows = {row.tool: row for row in search.rows or ()}
    tools = [deferred[name] for name in names if name in deferred]
    new = [tool for tool in tools if tool.wire_name not in loaded]
    ranked = []
    for tool in tools:
        row = rows.get(tool.tool_name) or SearchRow(tool.tool_name, None, newly_loaded=True)
        ranked.append(replace(row, newly_loaded=tool in new))
    presented = tuple(ranked) if search.rows is not None else None
    return SyntheticToolResult(
        text,
        new,
        rows=presented,
        unloaded=search.unloaded,
        ranked_by=search.ranked_by,
        skills=search.skills,
    )


def _query_in_words(arguments: dict[str, Any]) -> str:
    parts = []
    if query := arguments.get("query"):
        parts.append(str(query))
    if server := arguments.get("server_name"):
        parts.append(f"server {server}")
    names = arguments.get("tool_names") or arguments.get("names")
    if isinstance(names, list) and names:
        parts.append(f"named {', '.join(map(str, names))}")
    return ", ".join(parts)[:1000]
