"""Files with credentials in the user's folder for settings, which nobody else can read."""

from __future__ import annotations

import os
from pathlib import Path

from casual_mcp_nb.base import files

MAX_BYTES = 100_000


def private_folder() -> Path:
    """Locate the private folder, which need not exist."""
    from platformdirs import user_config_path

    return user_config_path("casual_mcp_nb", appauthor=False) / "accounts"


def read_private(path: Path) -> str:
    """Read the beginning of a file, or raise NotPrivateError, with the remedy, if others can read or replace it."""
    return files.read_private(path, MAX_BYTES, within=private_folder()).decode("utf-8")


def why_not_private(path: Path) -> str | None:
    """Explain how others can read or replace a file, and the remedy, or None if they cannot, or there is no file."""
    try:
        return files.why_not_private(path, within=private_folder())
    except OSError:
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600 in folders with mode 0700. An earlier one is replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in (path.parent, *path.parent.parents):
        if folder.is_relative_to(private_folder()) and not folder.is_symlink():
            folder.chmod(0o700)
    with files.part_file(path, 0o600, lambda part: os.replace(part, path)) as file:
        file.write(text.encode())
    if (problem := why_not_private(path)) is not None:
        path.unlink(missing_ok=True)
        raise files.NotPrivateError(f"Not saved: {problem}")
