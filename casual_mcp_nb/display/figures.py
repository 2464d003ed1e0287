"""Stats for other libraries: a table for pandas, a figure for matplotlib. Nothing else needs them."""

from __future__ import annotations

import importlib
from typing import Any

from casual_mcp_nb.display.tokens import PARTS
from casual_mcp_nb.errors import MissingDependencyError
from casual_mcp_nb.types.host_audit import HostAudit
from casual_mcp_nb.types.stats import ChatStats


def frame_of(value: ChatStats | HostAudit) -> Any:
    """Build a pandas DataFrame with a row for each model call, or for each tool of a config.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    return _library("pandas").DataFrame(_tools(value) if isinstance(value, HostAudit) else _model_calls(value))


def _tools(audit: HostAudit) -> list[dict[str, Any]]:
    return [
        {"server": server.server, "tool": each.tool.tool, "tokens": each.tokens, "share": each.tokens / max(audit.tokens, 1)}
        for server in audit
        for each in server.tools
    ]


def _model_calls(stats: ChatStats) -> list[dict[str, Any]]:
    return [
        {
            "turn": step.turn + 1,
            "step": step.step + 1,
            **step.parts.as_dict(),
            "request": step.parts.total,
            "request_origin": step.parts.origin,
            "with_nothing_deferred": step.undeferred_tokens,
            "reused": step.reused,
            "cached": step.cached_tokens,
            "cache_written": step.cache_write_tokens,
            "answer": step.completion_tokens,
            "cost": step.cost.amount if step.cost else None,
            "seconds": step.seconds,
            "tool_calls": step.tool_calls,
        }
        for step in stats.steps
    ]


def figure_of(stats: ChatStats) -> Any:
    """Draw a matplotlib figure with a stacked bar for each model call.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    _library("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(4.0, 1.2 + 0.6 * len(stats.steps)), 3.2), layout="constrained")
    axes = figure.subplots()
    places = [f"{step.turn + 1}.{step.step + 1}" for step in stats.steps]
    below = [0] * len(places)
    for name, title in PARTS.items():
        sizes = [step.parts.as_dict()[name] for step in stats.steps]
        axes.bar(places, sizes, bottom=below, label=title)
        below = [low + size for low, size in zip(below, sizes, strict=True)]
    axes.set(xlabel="turn.step", ylabel=f"tokens ({stats.parts.origin})", title="Requests by part")
    axes.legend(fontsize="small")
    return figure


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(f"This needs {name}, which is not installed.", hint=f"Run: pip install {name}") from None
