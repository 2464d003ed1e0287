"""A folder whose files can be searched and written, and out of which no path or link leads."""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.bundled._documents import detect_encoding

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


class Folder:
    """A folder and its direct entries.

    `name` is always a single path component. Systems without directory descriptors (Windows) use its real path instead.
    """

    def __init__(self, path: Path, fd: int | None) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    @contextmanager
    def opened(cls, root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[Folder]:
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
        """Open a regular file for reading, not a link."""
        path, at = self._at(name)
        # A pipe without a writer would hold an open that blocks.
        fd = os.open(path, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), **at)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(21, "Not a regular file", name)
        return os.fdopen(fd, "rb")

    def create(self, name: str) -> BinaryIO:
        """Make a new file and open it for writing."""
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
        """Resolve a path, following links, or raise ToolError if it leads outside. It need not exist."""
        real = self._real(self._inside(path))
        if not real.is_relative_to(self.folder):
            raise ToolError(REFUSED)
        return real

    def entry(self, path: str) -> Path:
        """Resolve the folders of a path as `resolve` does, but not its last component, which may be a link."""
        if self.resolve(path) == self.folder:
            raise ToolError("The root folder itself cannot be changed. Name something inside it.")
        target = self._inside(path)
        return self._real(target.parent) / target.name

    @contextmanager
    def folder_at(self, path: Path, *, create: bool = False) -> Iterator[Folder]:
        """Open a folder that `resolve` returned, without following links that may have been created since."""
        if not path.is_relative_to(self.folder):
            # A link was created there after the path was checked.
            raise ToolError(REFUSED)
        with Folder.opened(self.folder, path.relative_to(self.folder).parts, create=create) as folder:
            yield folder

    def _inside(self, path: str) -> Path:
        # Windows' rules are broader: they include drives and backslashes.
        windows = PureWindowsPath(path)
        if not path.strip() or "\0" in path or path.startswith("~") or windows.anchor or ".." in windows.parts:
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
        raise ToolError(f"Cannot {action} {path!r}: it does not exist. list_directory shows the existing names.") from error
    except OSError as error:
        raise ToolError(f"Cannot {action} {path!r}: {error.strerror or 'the system refused'}.") from error


MAX_BYTES = 10_000_000
MAX_COPY_BYTES = 200_000_000
MAX_COPY_SECONDS = 30.0
_CHUNK = 1_000_000


class Writer:
    """Writes, copies and moves files, one at a time at the end, so that two calls cannot both see a free path.

    In each method, `name` is the path as the caller wrote it, for messages.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._changing = threading.Lock()

    def save(self, target: Path, name: str, content: str, overwrite: bool, create_folders: bool) -> tuple[int, bool]:
        """Write text to a file, in missing folders too if asked to; return its size in bytes and whether the file is new."""
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError("The content has characters that UTF-8 cannot hold (lone surrogates).") from error
        if len(data) > MAX_BYTES:
            raise ToolError(f"The content has {len(data)} bytes, and at most {MAX_BYTES} are written.")
        return self._put(target, name, overwrite, lambda file: file.write(data), create_folders)

    def copy(self, origin: Path, target: Path, name: str, overwrite: bool) -> int:
        """Copy a file; return its size in bytes."""
        with self._root.folder_at(origin.parent) as folder, folder.open(origin.name) as source:
            return self._put(target, name, overwrite, lambda file: _copy(source, file))[0]

    def move(self, origin: Path, destination: Path, name: str, overwrite: bool) -> None:
        """Move a file or folder."""
        with self._root.folder_at(origin.parent) as source, self._changing:
            source.stat(origin.name)
            with self._parent(destination, name) as target:
                _check_free(target, destination.name, name, overwrite)
                source.put(origin.name, target, destination.name)

    @contextmanager
    def _parent(self, target: Path, name: str, create: bool = False) -> Iterator[Folder]:
        """Open the folder of a path, or create it. The error for a missing one names the tool that creates it."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.folder_at(target.parent, create=create))
            except (FileNotFoundError, NotADirectoryError) as error:
                if create:
                    raise ToolError(f"The folder of {name!r} cannot be created: part of its path is not a folder.") from error
                raise ToolError(f"The folder of {name!r} does not exist. create_directory makes it.") from error
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
        raise ToolError(f"{name!r} is a folder. Name a file.")
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


MAX_FILES = 50_000
MAX_SEARCHED_BYTES = 5_000_000
_LINE_CHARACTERS = 200


def walk_files(root: Root, folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and below, in order of name, at most `MAX_FILES`."""
    waiting, count = [folder], 0
    while waiting:
        directory = waiting.pop()
        try:
            with root.folder_at(directory) as opened:
                entries = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in opened.scan()]
        except OSError:
            continue
        for name, mode in entries:
            if stat.S_ISREG(mode):
                count += 1
                if count > MAX_FILES:
                    return
                yield directory / name
        waiting += [directory / name for name, mode in reversed(entries) if stat.S_ISDIR(mode)]


def matches(relative: str, pattern: str) -> bool:
    """Check whether a path matches a glob pattern: the name alone, or the whole path if the pattern contains `/`."""
    if "/" not in pattern:
        return fnmatchcase(relative.rpartition("/")[2], pattern)
    return fnmatchcase(relative, pattern) or fnmatchcase(relative, pattern.replace("**/", ""))


def matching_lines(root: Root, file: Path, text: str, ignore_case: bool) -> Iterator[tuple[int, str]]:
    """Yield the number and beginning of each line that contains a string.

    Files that are not text or have more than `MAX_SEARCHED_BYTES` yield nothing.
    """
    wanted = text.casefold() if ignore_case else text
    for number, line in enumerate(_lines(root, file), start=1):
        if wanted in (line.casefold() if ignore_case else line):
            yield number, line.strip()[:_LINE_CHARACTERS]


def _lines(root: Root, file: Path) -> list[str]:
    try:
        with root.folder_at(file.parent) as folder, folder.open(file.name) as stream:
            data = stream.read(MAX_SEARCHED_BYTES + 1)
    except OSError:
        return []
    if len(data) > MAX_SEARCHED_BYTES:
        return []
    encoding = detect_encoding(data[:8192])
    return data.decode(encoding, errors="replace").splitlines() if encoding else []
