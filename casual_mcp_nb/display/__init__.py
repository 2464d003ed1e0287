"""How nouns are shown: noun → view → text, Markdown and HTML. Knows the nouns and nothing else of the package.

A display never fails, never runs anything, and is the same each time for the same noun. Whatever a server or a model says is
shown as text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import singledispatch
from typing import Any

from casual_mcp_nb.display.calls import call_view
from casual_mcp_nb.display.html import to_html, to_page
from casual_mcp_nb.display.markdown import to_markdown
from casual_mcp_nb.display.plain import to_text
from casual_mcp_nb.display.search import explanation_view, search_view
from casual_mcp_nb.display.servers import server_view, servers_view
from casual_mcp_nb.display.session import models_view, session_view
from casual_mcp_nb.display.stats import stats_view
from casual_mcp_nb.display.text import cut
from casual_mcp_nb.display.tools import manifest_view, tool_sets_view, tool_view, tools_view
from casual_mcp_nb.display.turn import turn_view
from casual_mcp_nb.display.view import LADDER, Limits, Text, View, fit
from casual_mcp_nb.types.search import Explanation, SearchResults
from casual_mcp_nb.types.session import Manifest, Models, Servers, ServerStatus, SessionStatus, Tools, ToolSets
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.tool import ToolSpec
from casual_mcp_nb.types.trace import Turn

__all__ = ["MAX_BYTES", "mimebundle", "page", "turn_html", "view_of"]

MAX_BYTES = 64 * 1024
"""The most that one output takes, all its forms together, in bytes of UTF-8."""

_BARE_TEXT = 2_000
_log = logging.getLogger(__name__)
_reported: set[str] = set()


@singledispatch
def view_of(noun: Any, limits: Limits) -> View:
    """What `noun` shows within `limits`; its texts are not cleaned yet, which `fit` does.

    Raises:
        TypeError: There is no display for it.
    """
    raise TypeError(f"There is no display for {type(noun).__name__}.")


view_of.register(ServerStatus, server_view)
view_of.register(Servers, servers_view)
view_of.register(SessionStatus, session_view)
view_of.register(Models, models_view)
view_of.register(Tools, tools_view)
view_of.register(ToolSpec, tool_view)
view_of.register(Manifest, manifest_view)
view_of.register(ToolSets, tool_sets_view)
view_of.register(SearchResults, search_view)
view_of.register(Explanation, explanation_view)
view_of.register(Turn, turn_view)
view_of.register(ToolCall, call_view)
view_of.register(ChatStats, stats_view)


def mimebundle(noun: Any) -> dict[str, str]:
    """All forms of a noun.

    Args:
        noun: Any noun of `casual_mcp_nb.types` that is shown to people.

    Returns:
        `text/plain`, `text/markdown` and `text/html`, together at most `MAX_BYTES`. Never raises: what cannot be drawn is
        shown as its `repr`, and the log says so once.
    """
    return _drawn(noun, _forms)


def turn_html(turn: Turn) -> str:
    """The HTML of a turn as it stands now, for live output; at most `MAX_BYTES`, never raises."""
    return _drawn(turn, lambda view: {"text/html": to_html(view)})["text/html"]


def page(noun: Any, title: str) -> str:
    """A noun as a whole HTML document, in one file, without scripts and without the network."""
    return _drawn(noun, lambda view: {"text/html": to_page(view, title)})["text/html"]


def _forms(view: View) -> dict[str, str]:
    return {"text/plain": to_text(view), "text/markdown": to_markdown(view), "text/html": to_html(view)}


def _drawn(noun: Any, draw: Callable[[View], dict[str, str]]) -> dict[str, str]:
    try:
        return _within_limits(noun, draw)
    except Exception as trouble:
        _report(noun, trouble)
        return draw(_bare(type(noun).__name__, _repr(noun)))


def _within_limits(noun: Any, draw: Callable[[View], dict[str, str]]) -> dict[str, str]:
    for limits in LADDER:
        view = fit(view_of(noun, limits), limits)
        forms = draw(view)
        if sum(len(form.encode()) for form in forms.values()) <= MAX_BYTES:
            return forms
    return draw(_bare(view.title, to_text(view)))


def _bare(title: str, text: str) -> View:
    return fit(View("bare", title, (Text(cut(text, _BARE_TEXT), code=True),)), LADDER[0])


def _repr(noun: Any) -> str:
    try:
        return repr(noun)
    except Exception:
        return "It cannot be shown."


def _report(noun: Any, trouble: Exception) -> None:
    kind = type(noun).__name__
    if kind not in _reported:
        _reported.add(kind)
        _log.warning("A %s could not be drawn (%s) and is shown as its repr.", kind, type(trouble).__name__)
