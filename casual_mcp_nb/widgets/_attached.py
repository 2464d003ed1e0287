"""Images that a person attached to a message on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Base64Bytes

from casual_mcp_nb.errors import shown
from casual_mcp_nb.notebook.images import image_content, with_images
from casual_mcp_nb.notebook.turn_service import Prompt

MAX_TOGETHER = 7_000_000
"""Bytes of all images of a message: with base64 they fit into the largest message that a Jupyter server takes, 10 MiB."""


@dataclass(frozen=True)
class Attached:
    """One image.

    Args:
        name: What the person calls it.
        data: Its bytes; they arrive as base64.
    """

    name: str
    data: Base64Bytes


def with_attached(prompt: str, images: Sequence[Attached]) -> Prompt:
    """Add the attached images to a prompt.

    Raises:
        UsageError: One of them is too large, or is not an image that models take.
    """
    return with_images(prompt, [image_content(image.data, shown(image.name)) for image in images])
