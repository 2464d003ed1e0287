"""A folder held open by descriptor, so that operations in it never follow a link, even one swapped in meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


class Folder:
    """A folder and its direct entries. `name` is always a single path component.

    Systems without directory descriptors (Windows) use paths instead.

    Args:
        path: The folder's real path, for systems without directory descriptors.
        fd: Its descriptor; None on those systems.
    """

    def __init__(self, path: Path, fd: int | None) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    @contextmanager
    def opened(cls, root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[Folder]:
        """Open a folder below `root` part by part, without following a link.

        Args:
            root: A real path.
            parts: The names on the way.
            create: Make the folders that are missing.

        Raises:
            OSError: One of them is missing, or is a link or something else that is not a folder.
        """
        folder = cls(root, os.open(root, _FOLDER) if _BY_DESCRIPTOR else None)
        try:
            for part in parts:
                if create and not folder.has(part):
                    # Another call may make it meanwhile.
                    with suppress(FileExistsError):
                        folder.make(part)
                below = folder._below(part)
                folder.close()
                folder = below
            yield folder
        finally:
            folder.close()

    def close(self) -> None:
        """Close the folder."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def has(self, name: str) -> bool:
        """Check whether an entry of this name exists, including links."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def stat(self, name: str | None = None) -> os.stat_result:
        """Read the status of an entry, or of the folder itself, without following a link."""
        if name is None:
            return os.stat(self._path) if self._fd is None else os.fstat(self._fd)
        path, at = self._at(name)
        return os.stat(path, follow_symlinks=False, **at)

    def scan(self) -> list[os.DirEntry[str]]:
        """List the entries by name."""
        with os.scandir(self._path if self._fd is None else self._fd) as entries:
            names: list[Any] = sorted(entries, key=lambda entry: entry.name)
        return names

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            OSError: It is missing, or a link.
            IsADirectoryError: It is not a regular file.
        """
        path, at = self._at(name)
        # A pipe without a writer would hold an open that blocks.
        fd = os.open(path, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), **at)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(21, "Not a regular file", name)
        return os.fdopen(fd, "rb")

    def create(self, name: str) -> BinaryIO:
        """Make a new file and open it for writing.

        Raises:
            FileExistsError: An entry of this name exists.
        """
        path, at = self._at(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(path, flags, 0o666, **at), "wb")

    def make(self, name: str) -> None:
        """Make a folder."""
        path, at = self._at(name)
        os.mkdir(path, **at)

    def remove(self, name: str) -> None:
        """Remove a file, a link or an empty folder."""
        path, at = self._at(name)
        if stat.S_ISDIR(self.stat(name).st_mode):
            os.rmdir(path, **at)
        else:
            os.unlink(path, **at)

    def put(self, name: str, folder: Folder, new: str) -> None:
        """Move an entry to another folder under a new name, replacing any entry there."""
        (source, at), (target, to) = self._at(name), folder._at(new)
        os.replace(source, target, src_dir_fd=at.get("dir_fd"), dst_dir_fd=to.get("dir_fd"))

    def _below(self, name: str) -> Folder:
        path, at = self._at(name)
        if not _BY_DESCRIPTOR:
            if not stat.S_ISDIR(self.stat(name).st_mode):
                raise NotADirectoryError(20, "Not a folder", name)
            return Folder(self._path / name, None)
        return Folder(self._path / name, os.open(path, _FOLDER, **at))

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        if self._fd is None:
            return str(self._path / name), {}
        return name, {"dir_fd": self._fd}
