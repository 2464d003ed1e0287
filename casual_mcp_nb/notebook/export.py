"""A conversation as one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from casual_mcp_nb.errors import UsageError, closest, did_you_mean, shown
from casual_mcp_nb.store.cassette_text import scrubbed
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.displayable import display
from casual_mcp_nb.types.files import write_text

TITLE = "A conversation with casual_mcp_nb"


def export(
    conversation: Conversation,
    path: Path,
    *,
    overwrite: bool = False,
    secrets: Iterable[str] = (),
    player: Callable[[Conversation, str], str] | None = None,
) -> Path:
    """Write a conversation to a file, in the format that its extension says.

    Args:
        conversation: What to write.
        path: The file: `.html`, `.md` or `.json`.
        overwrite: Replace a file that exists.
        secrets: The values to mask, also where a model repeats them.
        player: Returns the page that steps through the conversation, from it and a title, in place of the one without scripts.

    Returns:
        The file.

    Raises:
        UsageError: The extension is not one of these, the file exists, or it cannot be written.
    """
    write = _FORMATS.get(path.suffix.casefold())
    if write is None:
        hint = did_you_mean(closest(path.suffix, _FORMATS), _FORMATS)
        raise UsageError(f"A conversation cannot be saved as {shown(path.suffix or path.name)}.", hint=hint)
    if player and write is not _html:
        raise UsageError(f"A player is an .html file, not {shown(path.suffix)}.", hint="For example: lesson.html")
    conversation = _masked(conversation, secrets)
    text = player(conversation, TITLE) if player else write(conversation)
    path = path.expanduser()
    write_text(path, text, overwrite=overwrite, hint="To replace it: overwrite=True, or %mcp export with --overwrite.")
    return path


def _masked(conversation: Conversation, secrets: Iterable[str]) -> Conversation:
    text = conversation.to_json()
    before = json.loads(text)
    after = scrubbed(before, secrets)
    return conversation if after == before else Conversation.from_json(json.dumps(after))


def _html(conversation: Conversation) -> str:
    return display().document(conversation, "html", TITLE)


def _markdown(conversation: Conversation) -> str:
    return display().document(conversation, "markdown", TITLE)


_FORMATS: dict[str, Callable[[Conversation], str]] = {
    ".html": _html,
    ".md": _markdown,
    ".json": Conversation.to_json,
}
