"""Write files atomically: a path has its old content or its new one, never half of it."""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from casual_mcp_nb.bundled._folder import Folder
from casual_mcp_nb.bundled._paths import Root, short_errors
from casual_mcp_nb.bundled._server import ToolError

MAX_BYTES = 10_000_000
MAX_COPY_BYTES = 200_000_000
MAX_COPY_SECONDS = 30.0
_CHUNK = 1_000_000


class Writer:
    """Writes, copies and moves files, one at a time at the end, so that two calls cannot both see a free path.

    In each method, `name` is the path as the caller wrote it, for messages.

    Args:
        root: The folder that contains all paths.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._changing = threading.Lock()

    def save(self, target: Path, name: str, content: str, overwrite: bool, create_folders: bool) -> tuple[int, bool]:
        """Write text to a file, in missing folders too if asked to; return its size in bytes and whether the file is new.

        Raises:
            ToolError: The text is too long or not UTF-8, the path exists, or the system refuses.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError("The content has characters that UTF-8 cannot hold (lone surrogates).") from error
        if len(data) > MAX_BYTES:
            raise ToolError(f"The content has {len(data)} bytes; at most {MAX_BYTES} are written.")
        return self._put(target, name, overwrite, lambda file: file.write(data), create_folders)

    def copy(self, origin: Path, target: Path, name: str, overwrite: bool) -> int:
        """Copy a file; return its size in bytes.

        Raises:
            ToolError: It exceeds a size or time limit, the path exists, or the system refuses.
        """
        with self._root.folder_at(origin.parent) as folder, folder.open(origin.name) as source:
            return self._put(target, name, overwrite, lambda file: _copy(source, file))[0]

    def move(self, origin: Path, destination: Path, name: str, overwrite: bool) -> None:
        """Move a file or folder.

        Raises:
            ToolError: The path exists.
            OSError: The system refuses.
        """
        with self._root.folder_at(origin.parent) as source, self._changing:
            source.stat(origin.name)
            with self._parent(destination, name) as target:
                _check_free(target, destination.name, name, overwrite)
                source.put(origin.name, target, destination.name)

    @contextmanager
    def _parent(self, target: Path, name: str, create: bool = False) -> Iterator[Folder]:
        """Open the folder of a path, or create it; the error for a missing one names the tool that creates it."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.folder_at(target.parent, create=create))
            except (FileNotFoundError, NotADirectoryError) as error:
                if create:
                    raise ToolError(f"The folder of {name!r} cannot be created: part of its path is not a folder.") from error
                raise ToolError(f"The folder of {name!r} does not exist; create_directory makes it.") from error
            yield folder

    def _put(
        self, target: Path, name: str, overwrite: bool, fill: Callable[[BinaryIO], int], create_folders: bool = False
    ) -> tuple[int, bool]:
        """Fill a temporary file beside the path and move it there; return its size and whether the path was free."""
        temporary = f".{secrets.token_hex(8)}.part"
        with short_errors("write", name), self._parent(target, name, create_folders) as folder:
            _check_free(folder, target.name, name, overwrite)
            try:
                with folder.create(temporary) as file:
                    size = fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                    with self._changing:
                        free = _check_free(folder, target.name, name, overwrite)
                        if not free and hasattr(os, "fchmod"):
                            os.fchmod(file.fileno(), stat.S_IMODE(folder.stat(target.name).st_mode))
                        if os.name != "nt":
                            folder.put(temporary, folder, target.name)
                if os.name == "nt":
                    # An open file cannot be moved on Windows.
                    folder.put(temporary, folder, target.name)
            finally:
                with suppress(FileNotFoundError):
                    folder.remove(temporary)
        return size, free


def _check_free(folder: Folder, entry: str, name: str, overwrite: bool) -> bool:
    if not folder.has(entry):
        return True
    if stat.S_ISDIR(folder.stat(entry).st_mode):
        raise ToolError(f"{name!r} is a folder; name a file.")
    if not overwrite:
        raise ToolError(f"{name!r} exists already. Set overwrite to true to replace it.")
    return False


def _copy(source: BinaryIO, target: BinaryIO) -> int:
    size, end = 0, time.monotonic() + MAX_COPY_SECONDS
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > MAX_COPY_BYTES:
            raise ToolError(f"The file is larger than {MAX_COPY_BYTES:,} bytes, the most that is copied.")
        if time.monotonic() > end:
            raise ToolError(f"The copy took longer than {MAX_COPY_SECONDS:g} s and was given up.")
        target.write(chunk)
    return size
