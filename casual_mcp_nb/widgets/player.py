"""The player: a conversation as slides in one HTML file that a browser plays without Python and
without a network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from markupsafe import escape

from casual_mcp_nb.cassettes.format import Cassette, scrubbed
from casual_mcp_nb.conversation.codec import PLAYER
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.written_program import WrittenProgram
from casual_mcp_nb.display.words import first
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.widgets._slides import MAX_NAME, PageLimits, Row, slides_of
from casual_mcp_nb.widgets.base import bundle_of

MAX_BYTES = 950_000
"""Maximum page size."""
MAX_DATA_BYTES = 600_000
"""If its data are larger than this, the page's texts are cut shorter."""

_MAX_DESCRIPTION = 300

TIERS = (
    PageLimits(20_000, 8_000, 300_000, 1_000),
    PageLimits(6_000, 2_000, 150_000, 1_000),
    PageLimits(2_000, 500, 0, 300),
    PageLimits(400, 0, 0, 100),
)
"""From most to least: a page that is too large is built with the next one."""

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
    programs: Sequence[WrittenProgram] = (),
) -> str:
    """Build an HTML page that steps through a conversation, lists its searches and the session's
    tools, and is a cassette.

    Args:
        conversation: The conversation, without values that stay in the kernel.
        title: The page's title if the conversation has no turns.
        view: The session's tools, which a person can look through.
        cassette: The cassette that replays the conversation.
        secrets: Values to mask, wherever they occur.
        programs: What models wrote for notebook cells meanwhile, shown after the turns.
    """
    secrets = tuple(secrets)
    script, style = bundle_of("player")
    parts = {
        "script": script,
        "script_hash": _hash(script),
        "style": style,
        "style_hash": _hash(style),
    }
    element = cassette.to_element(secrets) if cassette else ""
    fits = len(element.encode()) <= MAX_BYTES - MAX_DATA_BYTES - len(script) - len(style)
    for limits in TIERS:
        document: dict[str, Any] = {
            **PLAYER.head,
            "cassette": bool(element) and fits,
            "catalog": _catalog(view, limits.tools),
            **slides_of(conversation, limits, programs),
        }
        document = scrubbed(document, secrets)
        data = _embedded(document)
        if len(data.encode()) <= MAX_DATA_BYTES:
            break
    return _PAGE.format(
        title=escape(document["title"] or title),
        data=data,
        cassette=element if fits else "",
        **parts,
    )


def _catalog(view: ToolView | None, limit: int) -> Row:
    """List the tools that the session's model can search, or all if none is deferred.

    Returns:
        `deferred`, whether it is the former; `total`, how many there are; and up to `limit` of them
        as `tools`, each with its name and its description.
    """
    if view is None:
        return {"deferred": False, "total": 0, "tools": []}
    tools = sorted(view.deferred or view.loaded, key=attrgetter("tool_name"))
    rows = []
    for tool in tools[:limit]:
        name, description = first(str(tool.tool_name), MAX_NAME), tool.description
        rows.append([name, first(description, _MAX_DESCRIPTION)])
    return {"deferred": bool(view.deferred), "total": len(tools), "tools": rows}


def _embedded(value: Any) -> str:
    """Format JSON that cannot end the element that it is in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    """Compute the hash by which a content security policy names an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
