"""Images in a user message: from files, bytes, URLs, and objects that can save themselves."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.content import MAX_BYTES, MAX_IMAGES, media_type_of, pictures_of
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage, ImageContent

    from casual_mcp_nb.conversation.conversation import Prompt

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{0,2}")


def with_images(prompt: Prompt, images: Any) -> Prompt:
    """Add images to a prompt, see `Session.chat`. Without images, the prompt is unchanged."""
    image_list = _several(images)
    if not image_list:
        return prompt
    from casual_llm.messages import TextContent, UserMessage

    if not isinstance(prompt, str):
        raise UsageError(
            "Images can only be added to a text.", hint="Add them to a message as ImageContent."
        )
    return [UserMessage(content=[TextContent(text=prompt), *map(_content, image_list)])]


def _several(images: Any) -> list[Any]:
    if images is None:
        return []
    if isinstance(images, bytes | bytearray | str | Path) or _can_save(images):
        return [images]
    if not isinstance(images, Iterable):
        return [images]
    return list(images)


def _content(image: Any) -> ImageContent:
    from casual_llm.messages import ImageContent

    if isinstance(image, ImageContent):
        return image
    if isinstance(image, str) and _is_address(image):
        return ImageContent(source=image)
    data = _bytes(image)
    name = f"This image ({type(image).__name__})"
    if isinstance(image, str | Path):
        name = shown(image)
    return image_content(data, name)


def image_content(data: bytes, name: str) -> ImageContent:
    """Convert an image's bytes to a message part.

    Args:
        data: The bytes.
        name: What errors call the image.

    Raises:
        UsageError: The image is too large, or of a kind that no model can read.
    """
    from casual_llm.messages import ImageContent

    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{name} has {len(data):,} bytes, and the limit is {MAX_BYTES:,}.",
            hint="Make it smaller.",
        )
    media_type = media_type_of(data)
    if media_type is None:
        raise UsageError(
            f"{name} is not a PNG, JPEG, GIF or WebP image.", hint="Convert it to one of them."
        )
    return ImageContent(
        source={"type": "base64", "data": base64.b64encode(data).decode("ascii")},
        media_type=media_type,
    )


async def fetched_images(
    messages: Sequence[ChatMessage], allowed: Collection[str] = ()
) -> list[ChatMessage]:
    """Fetch the images that messages name by address.

    The provider gets the image itself. Otherwise a service's client could make the provider request
    an address in the provider's own network.

    Args:
        messages: The messages.
        allowed: IP addresses from which images may be fetched besides those that the bundled server
            `web` allows.

    Returns:
        The messages with the images in place of their addresses.

    Raises:
        UsageError: An image cannot be fetched or used, or there are too many.
    """
    addresses: list[str] = []
    for picture in pictures_of(messages):
        if picture.address and picture.address not in addresses:
            addresses.append(picture.address)
    if len(addresses) > MAX_IMAGES:
        text = f"There are {len(addresses)} images by address, and the limit is {MAX_IMAGES}."
        raise UsageError(text, hint="Send them as base64.")
    fetched = await asyncio.gather(*(_fetched(address, allowed) for address in addresses))
    images = dict(zip(addresses, fetched, strict=True))
    if not images:
        return list(messages)
    return [
        message.model_copy(update={"content": _with_images(message.content, images)})
        for message in messages
    ]


def _with_images(content: Any, images: Mapping[str, ImageContent]) -> Any:
    if not isinstance(content, list):
        return content
    parts: list[Any] = []
    for part in content:
        source = getattr(part, "source", None)
        if isinstance(source, str):
            parts.append(images.get(source, part))
        else:
            parts.append(part)
    return parts


async def _fetched(address: str, allowed: Collection[str]) -> ImageContent:
    from mcp.server.mcpserver.exceptions import ToolError

    from casual_mcp_nb.bundled.web_server import fetch

    try:
        page = await fetch(address, allowed, MAX_BYTES)
    except ToolError as error:
        raise UsageError(
            f"The image {shown(address)} cannot be used. {error}", hint="Send it as base64."
        ) from error
    if page.cut:
        raise UsageError(
            f"The image {shown(address)} has more than {MAX_BYTES:,} bytes.",
            hint="Make it smaller.",
        )
    return image_content(page.body, f"The image {shown(address)}")


def _is_address(text: str) -> bool:
    """Check whether a text is a URL and not a path.

    Raises:
        UsageError: It is a URL that no provider could fetch, or that has a password.
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return False
    if scheme[1].lower() not in ("http", "https"):
        # A file can have a colon in its name.
        if os.path.exists(text):
            return False
        hint = "An address begins with https:// or http://. For a file, give its path."
        raise UsageError(
            f"{shown(scheme[1])}: is not an address that images can be fetched from.", hint=hint
        )
    try:
        parts = urlsplit(text)
        valid = bool(parts.hostname) and not re.search(r"[\s\x00-\x1f]", text)
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            f"{shown(text)} is not the address of an image.",
            hint="It looks like https://example.org/a.png.",
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "This image address contains a user name or password.", hint="Pass the image itself."
        )
    return True


def _can_save(image: Any) -> bool:
    return callable(getattr(image, "savefig", None)) or callable(getattr(image, "save", None))


def _bytes(image: Any) -> bytes:
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, str | Path):
        path = Path(image).expanduser()
        try:
            with path.open("rb") as file:
                # One byte more than the limit shows that the file is too large, without reading all
                # of it.
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    if not _can_save(image):
        kind = type(image).__name__
        hint = "Pass bytes, a path, or an object with savefig or save."
        raise UsageError(f"A {kind} cannot be sent as an image.", hint=hint)
    buffer = io.BytesIO()
    save = getattr(image, "savefig", None) or image.save
    save(buffer, format="PNG")
    return buffer.getvalue()
