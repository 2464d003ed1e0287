"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from casual_mcp_nb.errors import UsageError, shown


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


@contextlib.contextmanager
def part_file(path: Path, mode: int, put: Callable[[Path], None]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, and move it there once it is completely on disk.

    Args:
        path: The file to replace completely or not at all.
        mode: Its permissions.
        put: Move the written file to `path`.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        put(Path(name))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
