"""Place tools' images in requests: how many, and in which messages."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.image import pictures_of

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ImageContent, TextContent, ToolResultMessage

MAX_CHARACTERS = 16_000_000
"""Maximum size of all tools' images in a request, as base64: Anthropic accepts 32 MB for the whole request."""


def has_images(messages: Sequence[ChatMessage]) -> bool:
    """Check whether a tool returned an image in these messages."""
    return any(images(message) for message in messages)


def images(message: ChatMessage) -> tuple[ImageContent, ...]:
    """List the images of a tool's result."""
    images: tuple[ImageContent, ...] = getattr(message, "images", ())
    return images


def refuse_addresses(messages: Sequence[ChatMessage], why: str) -> None:
    """Check that every image of the person is included: URLs are never fetched from here.

    Args:
        messages: The conversation.
        why: Why a URL cannot be sent.

    Raises:
        UsageError: One is a URL.
    """
    if not all(picture.data for picture in pictures_of(messages)):
        raise UsageError(f"{why}.", hint="Pass the image itself: its path or its bytes.")


def data_of(image: ImageContent) -> str:
    """Encode an image as base64."""
    return "" if isinstance(image.source, str) else image.source.get("data", "")


def digest_of(image: ImageContent) -> str:
    """Compute the digest by which refused images are remembered."""
    return hashlib.sha256(data_of(image).encode()).hexdigest()


def limited(messages: Sequence[ChatMessage], most: int, refused: Collection[str] = ()) -> list[ChatMessage]:
    """Keep only the newest tool images in messages, with a note in the result for each one left out.

    Args:
        messages: The conversation.
        most: Maximum number of images in a request; the person's images count, and are always sent.
        refused: Digests of images that the provider refused.
    """
    if not has_images(messages):
        return list(messages)
    left, characters = max(0, most - len(pictures_of(messages))), MAX_CHARACTERS
    sent: list[ChatMessage] = []
    for message in reversed(messages):
        taken: list[ImageContent] = []
        for image in images(message):
            size = len(data_of(image))
            if left > 0 and size <= characters and (not refused or digest_of(image) not in refused):
                left, characters = left - 1, characters - size
                taken.append(image)
        sent.append(_with_images(message, taken, cannot_see=most == 0))
    return sent[::-1]


def _with_images(message: ChatMessage, taken: list[ImageContent], cannot_see: bool) -> ChatMessage:
    missing = len(images(message)) - len(taken)
    if not missing:
        return message
    what = "1 image of this result is" if missing == 1 else f"{missing} images of this result are"
    note = f"[{what} not shown{': you cannot see images' if cannot_see else ''}.]"
    return message.model_copy(update={"images": tuple(taken), "content": f"{message.content}\n{note}".lstrip()})


def after_results(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Yield the messages with tools' images moved to a user message after all results of a step.

    Tool results of chat completions, Ollama and many of Google's models are text only.
    """
    waiting: list[ToolResultMessage] = []
    for message in messages:
        if message.role != "tool" and waiting:
            yield _shown(waiting)
            waiting = []
        yield message
        if message.role == "tool" and images(message):
            waiting.append(message)
    if waiting:
        yield _shown(waiting)


def _shown(results: list[ToolResultMessage]) -> ChatMessage:
    from casual_llm.messages import TextContent, UserMessage

    parts: list[TextContent | ImageContent] = []
    for result in results:
        parts += [TextContent(text=label_of(result)), *images(result)]
    return UserMessage(content=parts)


def label_of(result: ToolResultMessage) -> str:
    """Describe which call images belong to."""
    return f"{'Image' if len(images(result)) == 1 else 'Images'} returned by {result.name} (call {result.tool_call_id}):"
