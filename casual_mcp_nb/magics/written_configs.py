"""Config files that a cell has written, so that it does not overwrite what somebody else wrote."""

from __future__ import annotations

import hashlib
from pathlib import Path

from casual_mcp_nb.errors import ConfigError, UsageError, shown


class WrittenConfigs:
    """Writes config files, and remembers what it wrote.

    A file that somebody else has changed since is not overwritten.
    """

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}

    def write(self, path: Path, text: str, *, overwrite: bool) -> None:
        """Write a config file completely or not at all.

        Args:
            path: The file.
            text: The config.
            overwrite: Replace the file even if its content was not written here.

        Raises:
            UsageError: The file has other content that was not written here.
        """
        from casual_mcp_nb.base.files import write_text
        from casual_mcp_nb.config.saving import replace_text

        target = path.resolve()
        before = _text_of(target)
        if before is None or not target.exists():
            write_text(path, text, overwrite=overwrite, hint=_hint(path))
        elif before != text:
            if not overwrite and self._digests.get(target) != _digest(before):
                raise UsageError(
                    f"{shown(path)} already exists with another config.", hint=_hint(path)
                )
            replace_text(target, before, text)
        self._digests[target] = _digest(text)


def _text_of(path: Path) -> str | None:
    from casual_mcp_nb.config.document import read_text

    try:
        return read_text(path)
    except ConfigError:
        return None


def _hint(path: Path) -> str:
    return (
        f"Use another file, connect to this one with %mcp connect {path}, or replace it:"
        f" %%mcp_config {path} --overwrite"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
