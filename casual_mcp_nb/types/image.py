"""Images in messages: supported formats, and extraction from messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.content import ToolResult

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_BYTES = 3_750_000
"""Maximum size of an image: 5 MB as base64, which every provider accepts."""
MAX_IMAGES = 8
"""Maximum number of images in a tool result, and in all results of a request: the limit of Mistral's API; others accept at
least 20."""

_SIGNS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}


@dataclass(frozen=True)
class Picture:
    """An image in a message.

    Args:
        media_type: The declared media type.
        data: Its bytes; empty for a URL, which is never fetched.
        address: The URL of an image that only the provider fetches.
    """

    media_type: str
    data: bytes = field(default=b"", repr=False)
    address: str = ""


def media_type_of(data: bytes) -> str | None:
    """Detect the media type of PNG, JPEG, GIF or WebP by the first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, sign in _SIGNS.items() if data.startswith(sign)), None)


def images_of(result: ToolResult) -> list[bytes]:
    """Find the images in a tool's result that can be sent to a model.

    Their type is determined by their first bytes, whatever the server says. At most `MAX_IMAGES` of at most `MAX_BYTES` each;
    the text of the result has a note about the others.
    """
    binary = [part for part in result.content if part.data]
    if not binary:
        return []
    candidates = (part.data for part in binary if part.data and part.kind in ("image", "resource"))
    shown = (data for data in candidates if len(data) <= MAX_BYTES and media_type_of(data) is not None)
    return list(islice(shown, MAX_IMAGES))


def pictures_of(messages: Iterable[ChatMessage]) -> list[Picture]:
    """Find the images in messages, in order."""
    contents = [message.content for message in messages if isinstance(message.content, list)]
    return [_picture(part) for content in contents for part in content if part.type == "image"]


def _picture(part: Any) -> Picture:
    address = part.source if isinstance(part.source, str) else ""
    text = address.partition(";base64,")[2] if address.startswith("data:") else ""
    if not isinstance(part.source, str):
        text = part.source.get("data", "")
    elif not text:
        return Picture(part.media_type, address=address)
    try:
        return Picture(part.media_type, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return Picture(part.media_type)
