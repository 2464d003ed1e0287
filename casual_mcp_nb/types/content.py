"""The content of a tool's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.types.payload import PayloadPreview

ContentKind = Literal["text", "image", "audio", "resource", "link", "unknown"]


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One part of a tool's result.

    Args:
        kind: The kind of part.
        text: The text of a text part or text resource; for other kinds, a short note such as `image/png, 2,048 bytes`.
        mime_type: Its media type, if it has one.
        data: The bytes of an image, audio or a binary resource.
        uri: The URI of a resource or a link. Never fetched.
    """

    kind: ContentKind
    text: str = ""
    mime_type: str | None = None
    data: bytes | None = field(default=None, repr=False)
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class TableRows:
    """All rows of a table of which the content of a result has only the first ones.

    Args:
        what: What it is, such as `table of 60,000 rows, 8 columns`.
        json: The rows, a JSON list of objects.
    """

    what: str
    json: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Args:
        content: The parts, in the server's order.
        structured: Structured content, if the tool returned any.
        is_error: Whether the tool itself reported a failure.
        payload: What a function of the notebook returned for the person; no model and no file gets it.
        previews: What displays show of the payload.
        mocked: Whether a stub answered in place of the tool.
        rows: The whole of a table that a function of the notebook returned, for questions about it; in no file.
        returned: What a function of the notebook returned, the very object, in a tuple; empty for other tools. In no file.
    """

    content: tuple[ContentPart, ...] = ()
    structured: Any = None
    is_error: bool = False
    payload: Any = field(default=None, repr=False, compare=False)
    previews: tuple[PayloadPreview, ...] = ()
    mocked: bool = False
    rows: TableRows | None = field(default=None, repr=False, compare=False)
    returned: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def structured_content(self) -> Any:
        """The structured content, by FastMCP's name."""
        return self.structured

    @property
    def data(self) -> Any:
        """The structured content; the value itself where FastMCP's servers put one into `{"result": ...}`."""
        wrapped = isinstance(self.structured, dict) and self.structured.keys() == {"result"}
        return self.structured["result"] if wrapped else self.structured
