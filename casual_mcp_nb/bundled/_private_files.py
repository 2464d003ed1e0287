"""Files with credentials in the user's folder for settings, which nobody else can read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

MAX_CHARACTERS = 100_000


def private_folder() -> Path:
    """Return the folder; it need not exist."""
    from platformdirs import user_config_path

    return user_config_path("casual_mcp_nb", appauthor=False) / "accounts"


def read_private(path: Path) -> str:
    """Return the beginning of a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not text.
    """
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS)


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600 in a folder with mode 0700; an earlier one is replaced in one step.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    # Its mode is 0600 from the beginning.
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
