"""Explain to a model why a tool that it called is not available."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, ToolSpec
from casual_mcp_nb.conversation.event import SEARCH_TOOLS
from casual_mcp_nb.discovery.synthetic import not_loaded_error
from casual_mcp_nb.discovery.text import readable
from casual_mcp_nb.engine.near_names import harmless_first, nearest, suggestion
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.errors import closest, did_you_mean, shown

_MAX_LISTED = 12
_MAX_HITS = 3
_MAX_NAME = 200


async def why_unavailable(name: str, offered: OfferedTools, calls_directly: bool) -> str:
    """Write the error for a call of a tool that is not available, with what to do instead.

    Args:
        name: The tool's name as the model wrote it.
        offered: The tools that there are.
        calls_directly: Whether deferred tools may be called before a search has found them.
    """
    view = offered.view
    tool = view.catalog.get(name)
    if tool and tool.wire_name in view.deferred_by_name:
        return not_loaded_error(name, view.loader)
    if tool and tool.tool_name in view.blocked:
        return (
            f"Error: Tool {shown(name)} is blocked: its server changed its definition, and the"
            " change was not accepted yet."
        )
    if tool and tool.restriction == "task only":
        return (
            f"Error: Tool {shown(name)} runs only as a task, which is not supported here. Use"
            " another tool."
        )
    if server_hint := _server_hint(name, offered):
        return f"Error: {server_hint}"
    if (owner := view.catalog.absent_owner(name)) is not None:
        reason = view.catalog.absent().get(owner, "is gone")
        return (
            f"Error: Tool {shown(name)} is not available: server {shown(owner)} {reason}. Do"
            " without it."
        )
    # Comparing many names would hold the event loop.
    hint = await asyncio.to_thread(_hint, name, offered, calls_directly)
    if not hint:
        hint = await _tools_for(name, offered, calls_directly)
    return f"Error: Tool {shown(name)} is not available. {hint}"


def _hint(name: str, offered: OfferedTools, calls_directly: bool) -> str:
    """Suggest the tool that an unknown name may mean, or return an empty text if no name is
    near.
    """
    callable_tools = [*offered.view.loaded, *offered.discovered.values()]
    if near := suggestion(name, callable_tools):
        return near
    deferred = [tool for tool in offered.view.deferred if tool.wire_name not in offered.discovered]
    if found := nearest(name, deferred[:MAX_TOOLS_ON_LOOP]):
        how = f"Load it with '{offered.view.loader}' first."
        if calls_directly:
            how = "Call it by exactly this name."
        return f"Did you mean {shown(found[0].wire_name)}? {how}"
    synthetic = closest(name, offered.synthetic)
    return did_you_mean(synthetic, ()) if synthetic else ""


async def _tools_for(name: str, offered: OfferedTools, calls_directly: bool) -> str:
    """Suggest tools that do what an unknown name says, or list those that there are."""
    view, names = offered.view, offered.names()
    if len(view.catalog) > MAX_TOOLS_ON_LOOP:
        return did_you_mean([], names)
    index = await view.searchable(whole=True)
    hits = await asyncio.to_thread(index.search, readable(name)[:_MAX_NAME], _MAX_HITS)
    fitting = []
    for hit in hits:
        may_call = calls_directly and offered.find_deferred(hit.tool.wire_name)
        if may_call or offered.is_callable(hit.tool):
            fitting.append(hit.tool)
    if not fitting:
        return did_you_mean([], names)
    listed = ", ".join(shown(tool.wire_name) for tool in harmless_first(fitting))
    return f"These may do it: {listed}."


def _server_hint(name: str, offered: OfferedTools) -> str:
    """Explain how to get at a server's tools, to a model that called the server as if it were one.

    Empty if no server in use has the name.
    """
    view = offered.view
    deferred = _of_server(view.deferred_by_name, name)
    loaded = _of_server(view.loaded_by_name, name)
    if deferred and SEARCH_TOOLS in offered.synthetic:
        load = json.dumps({"server_name": deferred[0].server}, ensure_ascii=False)
        return (
            f"{shown(name)} is a server, not a tool. Load its tools: call {SEARCH_TOOLS} with"
            f" {load}."
        )
    if deferred:
        return f"{shown(name)} is a server, not a tool. Load its tools with {view.loader} first."
    if loaded:
        names = ", ".join(shown(tool.wire_name) for tool in loaded[:_MAX_LISTED])
        return f"{shown(name)} is a server, not a tool. Call one of its tools: {names}."
    return ""


def _of_server(tools: Mapping[str, ToolSpec], name: str) -> list[ToolSpec]:
    """List the tools of the server with this name, in whatever case."""
    folded = name.casefold()
    return [tool for tool in tools.values() if tool.server.casefold() == folded]
