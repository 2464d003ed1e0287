"""Tool result content: texts, images, payloads, and results too large for the model."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.binary import bytes_of
from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


OnProgress = Callable[[float, float | None, str | None], None]
"""Called with a running call's progress, its total and a text."""
ResultFormat = Literal["result", "function_result", "function_args_result"]


def format_result(
    text: str, style: ResultFormat, name: str, arguments: dict[str, Any] | str
) -> str:
    """Prefix a result's text with the tool's name and arguments. `bare_result` reverses this.

    `result` is the text alone, `function_result` is `name → text`, and `function_args_result` is
    `name(a=1) → text`.
    """
    if style == "result":
        return text
    if style == "function_result":
        return f"{name} → {text}"
    if not isinstance(arguments, str):
        arguments = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({arguments}) → {text}"


def bare_result(text: str, name: str) -> str:
    """Remove the prefix that `format_result` added."""
    return re.sub(rf"\A{re.escape(name)}(?:\(.*?\))? → ", "", text, count=1, flags=re.DOTALL)


def says_failed(text: str) -> bool:
    """Check whether a result's text reports a failure: it begins with `Error`."""
    return text.lstrip().casefold().startswith("error")


@dataclass(frozen=True, slots=True)
class PayloadPreview:
    """A preview of a payload, which stays in the kernel: its kind and size, such as `DataFrame,
    1,200 rows, 5 columns`.

    It has a table's first columns and rows, a figure or small image as PNG, or else how the repr
    begins. Files have only the kind and size.
    """

    what: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    more_rows: int = 0
    picture: bytes | None = field(default=None, repr=False)
    text: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether there is more than the description."""
        return bool(self.columns or self.picture or self.text)


def in_a_file(preview: PayloadPreview) -> PayloadPreview:
    """Reduce a preview to the fields that files hold."""
    return PayloadPreview(preview.what)


ContentKind = Literal["text", "image", "audio", "resource", "link", "unknown"]


@dataclass(frozen=True)
class ContentPart:
    """One part of a tool result.

    Unless it is a text or a text resource, its text is a short note such as `image/png, 2,048
    bytes`. A URI is never fetched.
    """

    kind: ContentKind
    text: str = ""
    mime_type: str | None = None
    data: bytes | None = field(default=None, repr=False)
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table's rows as a JSON list of objects, if the result content has only the first ones."""

    what: str
    json: str = field(repr=False)


@dataclass(frozen=True)
class ToolResult:
    """A tool call's result, its parts in the server's order; `mocked` if a stub answered in place
    of the tool.

    `task` is the number of the task that continues after the call. Its result comes later.

    A notebook function's own values are never saved: the `payload` for the person, which no model
    gets, a table's `rows` for questions about it, and `returned`, a tuple with the very object. Nor
    is what only the tool's app gets: the server's `_meta` (`meta`), and the `whole` of a result
    that was cut for the model.
    """

    content: tuple[ContentPart, ...] = ()
    structured: Any = None
    is_error: bool = False
    payload: Any = field(default=None, repr=False, compare=False)
    previews: tuple[PayloadPreview, ...] = ()
    mocked: bool = False
    rows: TableRows | None = field(default=None, repr=False, compare=False)
    returned: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    meta: Any = field(default=None, repr=False, compare=False)
    whole: ToolResult | None = field(default=None, repr=False, compare=False)
    task: int | None = None

    @property
    def structured_content(self) -> Any:
        """The structured content, by FastMCP's name."""
        return self.structured

    @property
    def data(self) -> Any:
        """The structured content.

        The value itself where FastMCP's servers put one into `{"result": ...}`.
        """
        if isinstance(self.structured, dict) and self.structured.keys() == {"result"}:
            return self.structured["result"]
        return self.structured


MAX_BYTES = 3_750_000
"""Maximum image size: 5 MB as base64, which every provider accepts."""
MAX_IMAGES = 8
"""How many images a tool result may have, and all results in a request together: Mistral's limit.

Others accept at least 20.
"""

_SIGNS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}


@dataclass(frozen=True)
class Picture:
    """An image in a message: its bytes, or an address that only the provider fetches."""

    media_type: str
    data: bytes = field(default=b"", repr=False)
    address: str = ""


def media_type_of(data: bytes) -> str | None:
    """Detect PNG, JPEG, GIF or WebP by the first bytes: the media type, or None for anything
    else.
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, sign in _SIGNS.items() if data.startswith(sign)), None)


def images_of(result: ToolResult) -> list[bytes]:
    """Find the images in a tool's result that can be sent to a model.

    The first bytes determine the type, not the server's claim. At most `MAX_IMAGES`, of at most
    `MAX_BYTES` each. The result's text has a note about the others.
    """
    images: list[bytes] = []
    for part in result.content:
        if not part.data or part.kind not in ("image", "resource"):
            continue
        if len(part.data) <= MAX_BYTES and media_type_of(part.data) is not None:
            images.append(part.data)
            if len(images) == MAX_IMAGES:
                break
    return images


def pictures_of(messages: Iterable[ChatMessage]) -> list[Picture]:
    """Find the images in messages, in order."""
    pictures: list[Picture] = []
    for message in messages:
        if isinstance(message.content, list):
            pictures += [_picture(part) for part in message.content if part.type == "image"]
    return pictures


def _picture(part: Any) -> Picture:
    if isinstance(part.source, str):
        if part.source.lstrip()[:5].lower() != "data:":
            return Picture(part.media_type, address=part.source)
        text = part.source
    else:
        text = part.source.get("data", "")
    try:
        return Picture(part.media_type, bytes_of(text)[0])
    except ValueError:
        return Picture(part.media_type)


HANDLE_NOTE = re.compile(r"\[Result (r_[0-9a-f]{10}): ")
"""How the model reads a large result's handle, which depends on its call's id."""


class KeptText:
    """A result's whole text until it is dropped.

    Args:
        text: The text.
        plain: Whether reading it as JSON took too long or too much memory.
        server: The server that it came from.
    """

    def __init__(self, text: str, plain: bool = False, server: str = "") -> None:
        self.text: str | None = text
        self.plain = plain
        self.server = server

    def drop(self) -> None:
        """Free the text."""
        self.text = None


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A result whose head, of `tokens`, is all the model read.

    The whole stays in this process and is never saved.

    The model reads on by its `handle`. `source` is a `KeptText`, or None in a saved conversation.
    """

    handle: str
    what: str
    size: int
    tokens: int = 0
    source: Any = field(default=None, repr=False, compare=False)

    @property
    def size_in_words(self) -> str:
        """Its size, such as `5.7 MB`."""
        return size_in_words(self.size)

    @property
    def is_kept(self) -> bool:
        """Whether the whole is still here."""
        return self.source is not None and self.source.text is not None

    @property
    def text(self) -> str:
        """The whole text. A UsageError if it was dropped."""
        if self.source is None:
            raise UsageError(
                f"The whole result ({self.what}) is not in a saved conversation.",
                hint="Call the tool again to get it.",
            )
        if self.source.text is None:
            raise UsageError(
                f"The whole result ({self.what}) was dropped, because later ones needed the"
                " memory.",
                hint="Call the tool again, and keep call.value in a variable.",
            )
        return str(self.source.text)

    @property
    def value(self) -> Any:
        """The whole as a Python value, see `value_of`. A UsageError if it was dropped."""
        text = self.text
        return text if self.source.plain else value_of(text)


def size_in_words(size: int) -> str:
    """Format a byte count: `5.7 MB`, `28.0 kB`."""
    return f"{size / 1_000_000:,.1f} MB" if size >= 100_000 else f"{size / 1_000:,.1f} kB"


def value_of(text: str) -> Any:
    """Parse a text: as a pandas DataFrame for a table, a list or dict for other JSON, else the
    text.

    Without pandas, a table is a list of dicts.
    """
    from casual_mcp_nb.isolation._query import parse

    kind, value = parse(text)
    if kind != "table":
        return value
    return frame_of(value)


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """Build a pandas DataFrame from rows. Without pandas, return the rows.

    Args:
        rows: The rows.
        columns: Their names, so that a frame without rows has them too.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=columns)
