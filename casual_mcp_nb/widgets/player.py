"""The player: a conversation as one HTML file that a browser plays without Python and without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from markupsafe import escape

from casual_mcp_nb.display.text import first
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.store.cassette import Cassette
from casual_mcp_nb.store.cassette_text import scrubbed
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.counts import count
from casual_mcp_nb.types.tool import ToolSpec
from casual_mcp_nb.widgets._bundles import bundle_of
from casual_mcp_nb.widgets._rows import MAX_NAME, MAX_SUMMARY
from casual_mcp_nb.widgets._slides import TIERS, slides_of

FORMAT = "casual-mcp-nb player"
VERSION = 1
MAX_BYTES = 950_000
"""How large a page becomes."""
MAX_DATA_BYTES = 600_000
"""From this size of its data on, the texts of the page are cut shorter."""
MAX_INDEX_BYTES = 400_000

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; style-src '{style_hash}'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="root"></div>
<noscript>This page steps through a conversation with JavaScript, which is off in this browser.</noscript>
<script type="application/json" id="player">{data}</script>
{cassette}
<script type="module">{script}</script>
</body>
</html>
"""


def player_page(
    conversation: Conversation,
    title: str,
    *,
    view: ToolView | None = None,
    cassette: Cassette | None = None,
    secrets: Iterable[str] = (),
) -> str:
    """Build an HTML page of a conversation that steps through it, searches as its model does, and is a cassette.

    Args:
        conversation: The conversation; what stays in the kernel is left out.
        title: The title of the page if the conversation has no turns.
        view: The tools of the session, which the page can search.
        cassette: What replays the conversation.
        secrets: Values to mask, wherever they occur.
    """
    secrets = tuple(secrets)
    script, style = bundle_of("player")
    parts = {"script": script, "script_hash": _hash(script), "style": style, "style_hash": _hash(style)}
    element = cassette.to_element(secrets) if cassette else ""
    fits = len(element.encode()) <= MAX_BYTES - MAX_DATA_BYTES - len(script) - len(style)
    fixed = {"format": FORMAT, "version": VERSION, "search": _search(view), "cassette": bool(element) and fits}
    for limits in TIERS:
        document: dict[str, Any] = scrubbed({**fixed, **slides_of(conversation, limits)}, secrets)
        data = _embedded(document)
        if len(data.encode()) <= MAX_DATA_BYTES:
            break
    return _PAGE.format(title=escape(document["title"] or title), data=data, cassette=element if fits else "", **parts)


def _search(view: ToolView | None) -> dict[str, Any]:
    """Embed the search of a session: the index that its model searches, or the reason why the page has none."""
    index = None if view is None else view.index if view.deferred else view.whole_index
    if view is None or index is None or not len(index):
        return {"tools": [], "cut": 0, "deferred": False, "note": "No tools were connected when this page was made."}
    data = {"cut": view.selection.max_search_results, "deferred": bool(view.deferred)}
    plain = index.to_plain()
    if len(_embedded(plain).encode()) > MAX_INDEX_BYTES:
        return {**data, "tools": [], "note": f"{count(len(index), 'tool')} are too many to be searched in a page."}
    by_name = {tool.wire_name: tool for tool in index.tools}
    tools = [_tool(by_name[wire_name]) for _, _, wire_name in plain["tools"]]
    note = "The index is in this page; the scores are those of the session's own search."
    return {**data, "index": plain, "tools": tools, "note": note}


def _tool(tool: ToolSpec) -> list[str]:
    return [
        first(tool.name, MAX_NAME),
        first(tool.server, MAX_NAME),
        tool.wire_name,
        first(tool.description, MAX_SUMMARY),
    ]


def _embedded(value: Any) -> str:
    """Format JSON that cannot end the element that it is in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    """Compute the hash by which a content security policy names an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
