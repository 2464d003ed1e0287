"""Images that a person puts beside a text: from files, bytes, addresses, and objects that can save themselves."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.image import MAX_BYTES, media_type_of

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage, ImageContent

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{0,2}")


def with_images(prompt: str | Sequence[ChatMessage], images: Any) -> str | Sequence[ChatMessage]:
    """What the person says, with images; without images the prompt as it is.

    Args:
        prompt: The text. Messages of one's own hold their images themselves.
        images: One image or several: bytes, the path of a file, an address (`https://…`), which the provider fetches, or an
            object with `savefig` or `save`, such as a figure of matplotlib or an image of Pillow.

    Raises:
        UsageError: One of them is not a PNG, JPEG, GIF or WebP image, is too large or cannot be read, or is an address that no
            provider could fetch.
    """
    given = _several(images)
    if not given:
        return prompt
    from casual_llm.messages import TextContent, UserMessage

    if not isinstance(prompt, str):
        raise UsageError("Images go with a text.", hint="In messages of your own they are ImageContent parts of a UserMessage.")
    return [UserMessage(content=[TextContent(text=prompt), *map(_content, given)])]


def _several(images: Any) -> list[Any]:
    if images is None:
        return []
    alone = isinstance(images, bytes | bytearray | str | Path) or _can_save(images) or not isinstance(images, Iterable)
    return [images] if alone else list(images)


def _content(image: Any) -> ImageContent:
    from casual_llm.messages import ImageContent

    if isinstance(image, str) and _is_address(image):
        return ImageContent(source=image)
    data = _bytes(image)
    what = shown(image) if isinstance(image, str | Path) else f"This image ({type(image).__name__})"
    if len(data) > MAX_BYTES:
        raise UsageError(f"{what} has {len(data):,} bytes, and {MAX_BYTES:,} are possible.", hint="Make it smaller.")
    media_type = media_type_of(data)
    if media_type is None:
        raise UsageError(f"{what} is no PNG, JPEG, GIF or WebP image.", hint="Convert it to one of them.")
    return ImageContent(source={"type": "base64", "data": base64.b64encode(data).decode("ascii")}, media_type=media_type)


def _is_address(text: str) -> bool:
    """Whether this is an address and not a path.

    Raises:
        UsageError: It is an address that no provider could fetch, or that has a password, which would be saved and sent.
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return False
    if scheme[1].lower() not in ("http", "https"):
        # A file can have a colon in its name.
        if os.path.exists(text):
            return False
        hint = "An address begins with https:// or http://; of a file give the path."
        raise UsageError(f"An image cannot be given as {shown(scheme[1])}: address.", hint=hint)
    try:
        parts = urlsplit(text)
        valid = bool(parts.hostname) and not re.search(r"[\s\x00-\x1f]", text)
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{shown(text)} is not an address of an image.", hint="It looks like https://example.org/a.png.")
    if parts.username is not None or parts.password is not None:
        raise UsageError("This address of an image has a name or a password in it.", hint="Give the image itself.")
    return True


def _can_save(image: Any) -> bool:
    return callable(getattr(image, "savefig", None)) or callable(getattr(image, "save", None))


def _bytes(image: Any) -> bytes:
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, str | Path):
        return _file(Path(image).expanduser())
    if not _can_save(image):
        kind = type(image).__name__
        hint = "It is bytes, a path, or an object with savefig or save."
        raise UsageError(f"A {kind} is no image that can be sent.", hint=hint)
    buffer = io.BytesIO()
    save = getattr(image, "savefig", None) or image.save
    save(buffer, format="PNG")
    return buffer.getvalue()


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # One more than is possible tells that there is too much, without reading all of it.
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None
