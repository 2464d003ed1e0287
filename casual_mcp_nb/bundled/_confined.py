"""A folder out of which no path and no link leads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

from mcp.server.mcpserver.exceptions import ToolError

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


class Folder:
    """A folder and its direct entries.

    A path that was checked can be exchanged for a link before it is opened. So a resolved path is
    opened part by part, and all that follows is done by name in the open folder.

    `name` is always a single path component. Systems without directory descriptors (Windows) use
    its real path.
    """

    def __init__(self, path: Path, fd: int | None) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    @contextmanager
    def opened(
        cls, root: Path, parts: tuple[str, ...], *, create: bool = False
    ) -> Iterator[Folder]:
        """Open a folder below `root` part by part, without following a link."""
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
        """Check whether an entry with this name exists, including links."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def stat(self, name: str | None = None) -> os.stat_result:
        """Read an entry's status, or the folder's own, without following a link."""
        if name is None:
            return os.stat(self._path) if self._fd is None else os.fstat(self._fd)
        path, at = self._at(name)
        return os.stat(path, follow_symlinks=False, **at)

    def scan(self) -> list[os.DirEntry[str]]:
        """List the entries by name."""
        with os.scandir(self._path if self._fd is None else self._fd) as entries:
            names: list[Any] = sorted(entries, key=attrgetter("name"))
        return names

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading, not a link."""
        path, at = self._at(name)
        # Opening a pipe without a writer would block.
        flags = os.O_RDONLY | _NO_LINK | _BINARY | getattr(os, "O_NONBLOCK", 0)
        fd = os.open(path, flags, **at)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(21, "Not a regular file", name)
        return os.fdopen(fd, "rb")

    def create(self, name: str) -> BinaryIO:
        """Make a new file and open it for writing."""
        path, at = self._at(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
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


# The same message for every refusal: it must not reveal whether anything exists outside.
REFUSED = "Path refused. Valid: a relative path inside the root folder, such as 'notes/today.txt'."


class Root:
    """A folder that no path can escape."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        if not self.folder.is_dir():
            raise ValueError(f"the root is not an existing folder: {folder}")

    def relative(self, path: Path) -> str:
        """Convert a path to one relative to the folder, with `/` between the parts."""
        return path.relative_to(self.folder).as_posix()

    def resolve(self, path: str) -> Path:
        """Resolve a path, following links, or raise ToolError if it leads outside.

        It need not exist.
        """
        real = self._real(self._inside(path))
        if not real.is_relative_to(self.folder):
            raise ToolError(REFUSED)
        return real

    def entry(self, path: str) -> Path:
        """Resolve a path's folders as `resolve` does, but not its last component, which may be a
        link.
        """
        if self.resolve(path) == self.folder:
            raise ToolError("The root folder itself cannot be changed. Name something inside it.")
        target = self._inside(path)
        return self._real(target.parent) / target.name

    @contextmanager
    def folder_at(self, path: Path, *, create: bool = False) -> Iterator[Folder]:
        """Open a folder that `resolve` returned, without following links that may have been created
        since.
        """
        if not path.is_relative_to(self.folder):
            # A link was created there after the path was checked.
            raise ToolError(REFUSED)
        parts = path.relative_to(self.folder).parts
        with Folder.opened(self.folder, parts, create=create) as folder:
            yield folder

    def _inside(self, path: str) -> Path:
        # Windows' rules are broader: they include drives and backslashes.
        windows = PureWindowsPath(path)
        if (
            not path.strip()
            or "\0" in path
            or path.startswith("~")
            or windows.anchor
            or ".." in windows.parts
        ):
            raise ToolError(REFUSED)
        return self.folder / path

    @staticmethod
    def _real(path: Path) -> Path:
        try:
            return Path(os.path.realpath(path))
        except (OSError, ValueError) as error:
            raise ToolError(REFUSED) from error


@contextmanager
def short_errors(action: str, path: str) -> Iterator[None]:
    """Convert an OSError to a short message that names the path as the caller wrote it."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(
            f"Cannot {action} {path!r}: it does not exist. list_directory shows the existing names."
        ) from error
    except OSError as error:
        raise ToolError(
            f"Cannot {action} {path!r}: {error.strerror or 'the system refused'}."
        ) from error
