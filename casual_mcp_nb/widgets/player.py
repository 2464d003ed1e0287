"""The player: a conversation as one HTML file that a browser plays without Python and without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from markupsafe import escape

from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.widgets._bundles import bundle_of
from casual_mcp_nb.widgets._slides import TIERS, slides_of

FORMAT = "casual-mcp-nb player"
VERSION = 1
MAX_BYTES = 900_000
"""From this size on, the texts of the page are cut shorter."""

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
<script type="module">{script}</script>
</body>
</html>
"""


def player_page(conversation: Conversation, title: str) -> str:
    """Return a conversation as an HTML page that steps through it.

    Args:
        conversation: The conversation; what stays in the kernel is left out.
        title: The title of the page if the conversation has no turns.
    """
    script, style = bundle_of("player")
    head = {"format": FORMAT, "version": VERSION}
    for limits in TIERS:
        document: dict[str, Any] = {**head, **slides_of(conversation, limits)}
        data = _embedded(document)
        if len(data.encode()) <= MAX_BYTES:
            break
    return _PAGE.format(
        title=escape(document["title"] or title),
        script=script,
        script_hash=_hash(script),
        style=style,
        style_hash=_hash(style),
        data=data,
    )


def _embedded(value: Any) -> str:
    """Return JSON that cannot end the element that it is in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    """Return what a content security policy names an inline script or style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
