"""What `%%mcp_config` writes, and what it leaves alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

from casual_mcp_nb.errors import ConfigError, UsageError, shown


class WrittenConfigs:
    """Writes config files, and remembers what it has written: a file that is still so can be written again."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}

    def write(self, path: Path, text: str, *, overwrite: bool) -> None:
        """Write a config as a whole or not at all.

        Args:
            path: The file.
            text: The config.
            overwrite: Replace whatever is there.

        Raises:
            UsageError: There is a file that says something else and that was not written here, or it cannot be written.
            ConfigError: It cannot be replaced; it is as it was.
        """
        from casual_mcp_nb.config.saving import replace_text
        from casual_mcp_nb.notebook.export import write_text

        place = path.resolve()
        before = _text_of(place)
        if before is None or not place.exists():
            write_text(path, text, overwrite=overwrite, hint=_hint(path))
        elif before != text:
            if not overwrite and self._digests.get(place) != _digest(before):
                raise UsageError(f"{shown(path)} is there already, with another config.", hint=_hint(path))
            replace_text(place, before, text)
        self._digests[place] = _digest(text)


def _text_of(place: Path) -> str | None:
    """The text of a file; None where there is none, or it is no text."""
    from casual_mcp_nb.config.document import read_text

    try:
        return read_text(place)
    except ConfigError:
        return None


def _hint(path: Path) -> str:
    return f"Take another file, connect to it with %mcp connect {path}, or replace it: %%mcp_config {path} --overwrite"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
