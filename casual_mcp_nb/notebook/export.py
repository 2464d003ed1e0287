"""A conversation as one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from casual_mcp_nb.config.saving import part_file
from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown
from casual_mcp_nb.types.conversation import Conversation

TITLE = "A conversation with casual_mcp_nb"


def export(conversation: Conversation, path: Path, *, overwrite: bool = False) -> Path:
    """Write a conversation to a file, in the format that its extension says.

    Args:
        conversation: What to write.
        path: The file: `.html`, `.md` or `.json`.
        overwrite: Replace a file that exists.

    Returns:
        The file.

    Raises:
        UsageError: The extension is not one of these, the file exists, or it cannot be written.
    """
    write = _FORMATS.get(path.suffix.casefold())
    if write is None:
        hint = did_you_mean(closest(path.suffix, _FORMATS), _FORMATS)
        raise UsageError(f"A conversation cannot be saved as {shown(path.suffix or path.name)}.", hint=hint)
    path = path.expanduser()
    write_text(
        path, write(conversation), overwrite=overwrite, hint="To replace it: overwrite=True, or %mcp export with --overwrite."
    )
    return path


def write_text(path: Path, text: str, *, overwrite: bool, hint: str) -> None:
    """Write a file whole or not at all.

    Args:
        path: The file.
        text: What is written, in UTF-8.
        overwrite: Replace a file that exists.
        hint: What to do if it exists.

    Raises:
        UsageError: It exists, or it cannot be written; an old file is unchanged.
    """
    try:
        with part_file(path, 0o666 & ~_umask(), lambda part: _put(part, path, overwrite)) as file:
            file.write(text.encode())
    except FileExistsError:
        raise UsageError(f"{shown(path)} already exists.", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be written: {error.strerror}.") from None


def _put(part: Path, path: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        if path.exists():
            raise FileExistsError from None
        os.replace(part, path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _html(conversation: Conversation) -> str:
    from casual_mcp_nb.display import document

    return document(conversation, "html", TITLE)


def _markdown(conversation: Conversation) -> str:
    from casual_mcp_nb.display import document

    return document(conversation, "markdown", TITLE)


_FORMATS: dict[str, Callable[[Conversation], str]] = {
    ".html": _html,
    ".md": _markdown,
    ".json": Conversation.to_json,
}
