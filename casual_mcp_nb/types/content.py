"""What a call of a tool came back with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ContentKind = Literal["text", "image", "audio", "resource", "link", "unknown"]


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One part of a tool's result.

    Args:
        kind: What it is.
        text: The text of a text part or of a text resource; for other kinds a short note such as `image/png, 2,048 bytes`.
        mime_type: Its media type, where it has one.
        data: The bytes of an image, of audio or of a binary resource.
        uri: Where it came from, for a resource or a link. Never fetched.
    """

    kind: ContentKind
    text: str = ""
    mime_type: str | None = None
    data: bytes | None = field(default=None, repr=False)
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came back with.

    Args:
        content: The parts, in the server's order.
        structured: Structured content, where the tool gives it.
        is_error: Whether the tool itself said that it failed.
    """

    content: tuple[ContentPart, ...] = ()
    structured: Any = None
    is_error: bool = False
