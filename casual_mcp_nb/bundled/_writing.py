"""Change files so that a place holds its old content or its new one, and never half of it."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from casual_mcp_nb.bundled._paths import short_errors
from casual_mcp_nb.bundled._server import ToolError

MAX_BYTES = 10_000_000


class Writer:
    """Writes, copies and moves files one after the other, so that two calls cannot both find a place free.

    In each method `name` is the place as the caller wrote it, for the messages.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()

    def save(self, place: Path, name: str, content: str, overwrite: bool) -> tuple[int, bool]:
        """Write a text; return its size in bytes and whether the file is new.

        Raises:
            ToolError: The text is too long or no UTF-8, the place is taken, or the system refuses.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError("The content has characters that UTF-8 cannot hold (lone surrogates).") from error
        if len(data) > MAX_BYTES:
            raise ToolError(f"The content has {len(data)} bytes; at most {MAX_BYTES} are written.")
        return len(data), self._put(place, name, overwrite, lambda temporary: _save(temporary, data))

    def copy(self, origin: Path, place: Path, name: str, overwrite: bool) -> int:
        """Copy a file; return its size in bytes.

        Raises:
            ToolError: The place is taken, or the system refuses.
        """
        self._put(place, name, overwrite, lambda temporary: _copy(origin, temporary))
        return place.stat().st_size

    def move(self, origin: Path, place: Path, name: str, overwrite: bool) -> None:
        """Move a file or folder.

        Raises:
            ToolError: The place is taken.
            OSError: The system refuses.
        """
        with self._changing:
            origin.lstat()
            _check_free(place, name, overwrite)
            os.replace(origin, place)

    def _put(self, place: Path, name: str, overwrite: bool, fill: Callable[[Path], None]) -> bool:
        """Fill a temporary file beside the place and move it there; return whether the place was free."""
        temporary = place.with_name(f".{secrets.token_hex(8)}.part")
        with self._changing, short_errors("write", name):
            free = _check_free(place, name, overwrite)
            try:
                fill(temporary)
                if not free:
                    shutil.copymode(place, temporary)
                os.replace(temporary, place)
            finally:
                temporary.unlink(missing_ok=True)
        return free


def _check_free(place: Path, name: str, overwrite: bool) -> bool:
    if not place.parent.is_dir():
        raise ToolError(f"The folder of {name!r} does not exist; create_directory makes it.")
    if not os.path.lexists(place):
        return True
    if place.is_dir():
        raise ToolError(f"{name!r} is a folder; name a file.")
    if not overwrite:
        raise ToolError(f"{name!r} exists already. Set overwrite to true to replace it.")
    return False


def _save(temporary: Path, data: bytes) -> None:
    with temporary.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _copy(origin: Path, temporary: Path) -> None:
    with origin.open("rb") as source, temporary.open("xb") as target:
        shutil.copyfileobj(source, target)
