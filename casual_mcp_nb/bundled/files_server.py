"""The `files` server: read, write and search files inside one folder."""

from __future__ import annotations

import argparse
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.bundled._confined import Folder, Root, short_errors
from casual_mcp_nb.bundled._documents import detect_encoding, media_type, read_document
from casual_mcp_nb.bundled._server import FunctionServer, adds, destroys, reads

MAX_BYTES = 10_000_000
MAX_COPY_BYTES = 200_000_000
MAX_COPY_SECONDS = 30.0
_CHUNK = 1_000_000


class Writer:
    """Writes, copies and moves files, one at a time at the end, so that two calls cannot both see a
    free path.

    In each method, `name` is the path as the caller wrote it, for messages.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._changing = threading.Lock()

    def save(
        self, target: Path, name: str, content: str, overwrite: bool, create_folders: bool
    ) -> tuple[int, bool]:
        """Write text to a file, in missing folders too if asked to; return its size in bytes and
        whether the file is new.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                "The content has characters that UTF-8 cannot hold (lone surrogates)."
            ) from error
        if len(data) > MAX_BYTES:
            raise ToolError(
                f"The content has {len(data)} bytes, and at most {MAX_BYTES} are written."
            )
        return self._put(target, name, overwrite, lambda file: file.write(data), create_folders)

    def copy(self, origin: Path, target: Path, name: str, overwrite: bool) -> int:
        """Copy a file; return its size in bytes."""
        with self._root.folder_at(origin.parent) as folder, folder.open(origin.name) as source:
            return self._put(target, name, overwrite, partial(_copy, source))[0]

    def move(self, origin: Path, destination: Path, name: str, overwrite: bool) -> None:
        """Move a file or folder."""
        with self._root.folder_at(origin.parent) as source, self._changing:
            source.stat(origin.name)
            with self._parent(destination, name) as target:
                _check_free(target, destination.name, name, overwrite)
                source.put(origin.name, target, destination.name)

    @contextmanager
    def _parent(self, target: Path, name: str, create: bool = False) -> Iterator[Folder]:
        """Open a path's folder, or create it.

        The error for a missing one names the tool that creates it.
        """
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.folder_at(target.parent, create=create))
            except (FileNotFoundError, NotADirectoryError) as error:
                if create:
                    raise ToolError(
                        f"The folder of {name!r} cannot be created: part of its path is not a"
                        " folder."
                    ) from error
                raise ToolError(
                    f"The folder of {name!r} does not exist. create_directory makes it."
                ) from error
            yield folder

    def _put(
        self,
        target: Path,
        name: str,
        overwrite: bool,
        fill: Callable[[BinaryIO], int],
        create_folders: bool = False,
    ) -> tuple[int, bool]:
        """Fill a temporary file beside the path and move it there; return its size and whether the
        path was free.
        """
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
            raise ToolError(
                f"The file is larger than {MAX_COPY_BYTES:,} bytes, the most that is copied."
            )
        if time.monotonic() > end:
            raise ToolError(f"The copy took longer than {MAX_COPY_SECONDS:g} s and was given up.")
        target.write(chunk)
    return size


MAX_FILES = 50_000
MAX_SEARCHED_BYTES = 5_000_000
_LINE_CHARACTERS = 200


def walk_files(root: Root, folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and below, by name, at most `MAX_FILES`."""
    waiting, count = [folder], 0
    while waiting:
        directory = waiting.pop()
        files, folders = [], []
        try:
            with root.folder_at(directory) as opened:
                for entry in opened.scan():
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISREG(mode):
                        files.append(directory / entry.name)
                    elif stat.S_ISDIR(mode):
                        folders.append(directory / entry.name)
        except OSError:
            continue
        for file in files:
            count += 1
            if count > MAX_FILES:
                return
            yield file
        waiting += reversed(folders)


def matches(relative: str, pattern: str) -> bool:
    """Check whether a path matches a glob pattern: the name alone, or the whole path if the pattern
    contains `/`.

    In a path `*` stays in one folder, and `**` is any number of folders, or none.
    """
    parts = relative.split("/")
    if "/" not in pattern:
        return fnmatchcase(parts[-1], pattern)
    # How many parts of the path what was read of the pattern can be.
    reached = {0}
    for each in pattern.split("/"):
        if each in ("", "."):
            continue
        if each == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            possible = {number for number in reached if number < len(parts)}
            reached = {number + 1 for number in possible if fnmatchcase(parts[number], each)}
        if not reached:
            return False
    return len(parts) in reached


def matching_lines(
    root: Root, file: Path, text: str, ignore_case: bool
) -> Iterator[tuple[int, str]]:
    """Yield the number and first part of each line that contains a string.

    Files that are not text or have more than `MAX_SEARCHED_BYTES` yield nothing.
    """
    if ignore_case:
        text = text.casefold()
    for number, line in enumerate(_lines(root, file), start=1):
        searched = line.casefold() if ignore_case else line
        if text in searched:
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
    if encoding is None:
        return []
    return data.decode(encoding, errors="replace").splitlines()


MAX_READ = 100_000
_MAX_ENTRIES = 500

FilePath = Annotated[str, Field(description="Path of the file, relative to the root folder")]
FolderPath = Annotated[
    str, Field(description="Path of the folder, relative to the root folder; '.' is the root")
]
Source = Annotated[str, Field(description="Path of what is there, relative to the root folder")]
Destination = Annotated[str, Field(description="The new path, relative to the root folder")]
Overwrite = Annotated[
    bool, Field(description="true replaces a file that exists; without it that is an error")
]
Limit = Annotated[int, Field(description="The most results to return", ge=1, le=_MAX_ENTRIES)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the server's command line options."""
    parser.add_argument(
        "--root", default=".", metavar="DIR", help="the folder (default: the current one)"
    )


def build(root: str = ".") -> FunctionServer:
    """Build the server; every tool is confined to the root folder."""
    files = Files(Root(root))
    tools = [
        *reads(
            files.read_file,
            files.list_directory,
            files.search_files,
            files.search_text,
            files.file_info,
        ),
        *adds(files.create_directory, idempotent=True),
        *destroys(files.write_file, files.copy_file, files.move_file, files.delete_file),
    ]
    return FunctionServer(
        "files", "Files inside one root folder; every path is relative to it.", tools
    )


class Files:
    """The tools for one root folder."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._writer = Writer(root)

    def read_file(
        self,
        path: FilePath,
        offset: Annotated[
            int, Field(description="Where to begin: 0, or the next_offset of a part", ge=0)
        ] = 0,
        limit: Annotated[
            int, Field(description="The most bytes to read at once", ge=1, le=MAX_READ)
        ] = 20_000,
    ) -> dict[str, Any]:
        """Read the text of a file, also of a Word document (.docx).

        A large file comes in parts: next_offset tells where the next one begins. A binary file is
        only named.
        """
        file = self._regular_file(path)
        with (
            short_errors("read", path),
            self._root.folder_at(file.parent) as folder,
            folder.open(file.name) as stream,
        ):
            return {
                "path": path,
                "type": media_type(file.name),
                **read_document(stream, file.name, offset, limit),
            }

    def write_file(
        self,
        path: FilePath,
        content: Annotated[str, Field(description="The whole new text of the file")],
        overwrite: Overwrite = False,
        create_folders: Annotated[
            bool, Field(description="false refuses if its folder is missing")
        ] = True,
    ) -> dict[str, Any]:
        """Write a text file, in one piece or not at all; missing folders are created.

        Returns the size in bytes.
        """
        size, created = self._writer.save(
            self._root.resolve(path), path, content, overwrite, create_folders
        )
        return {"path": path, "size": size, "created": created}

    def list_directory(self, path: FolderPath = ".") -> dict[str, Any]:
        """List the files and folders in a folder. Returns name, kind and size of each."""
        directory = self._root.resolve(path)
        with short_errors("list", path), self._root.folder_at(directory) as folder:
            entries = folder.scan()
            listed = list(map(_entry, entries[:_MAX_ENTRIES]))
        return {
            "path": path,
            "total": len(entries),
            "truncated": len(entries) > len(listed),
            "entries": listed,
        }

    def search_files(
        self,
        pattern: Annotated[
            str,
            Field(
                description="A glob: '*.csv' in any folder, 'src/*.py' in src alone, 'src/**/*.py'"
                " also deeper",
                max_length=200,
            ),
        ],
        path: FolderPath = ".",
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Find files by name in a folder and all folders below it. Returns their paths."""
        folder = self._folder(path)
        found = islice(self._matching(folder, pattern), limit + 1)
        paths = list(map(self._root.relative, found))
        return {"pattern": pattern, "files": paths[:limit], "truncated": len(paths) > limit}

    def search_text(
        self,
        text: Annotated[
            str, Field(description="The words to find, literally", min_length=1, max_length=500)
        ],
        path: FolderPath = ".",
        pattern: Annotated[
            str, Field(description="Only in files whose name matches this glob")
        ] = "*",
        ignore_case: Annotated[
            bool, Field(description="true ignores upper and lower case")
        ] = False,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Find lines that mention or contain a text in any file of a folder and below, like grep.

        Returns path, line number and line of each. Binary files and files over 5 MB are left out.
        """
        folder = self._folder(path)
        found: list[dict[str, Any]] = []
        for file in self._matching(folder, pattern):
            path = self._root.relative(file)
            lines = matching_lines(self._root, file, text, ignore_case)
            for number, line in islice(lines, limit + 1 - len(found)):
                found.append({"path": path, "line": number, "text": line})
            if len(found) > limit:
                break
        return {"text": text, "matches": found[:limit], "truncated": len(found) > limit}

    def file_info(self, path: FilePath) -> dict[str, Any]:
        """Show the details of a file or folder: kind, size in bytes, type and time of the last
        change.
        """
        target = self._root.resolve(path)
        status = self._status(path, target, "inspect")
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
        details = {
            "path": path,
            "kind": _kind(status.st_mode),
            "size": status.st_size,
            "modified": modified.isoformat(timespec="seconds"),
            "type": None,
        }
        if stat.S_ISREG(status.st_mode):
            details["type"] = media_type(target.name)
        return details

    def create_directory(self, path: FolderPath) -> dict[str, Any]:
        """Create a folder, and the folders above it where they are missing."""
        folder = self._root.resolve(path)
        created = not folder.exists()
        with short_errors("create", path), self._root.folder_at(folder, create=True):
            pass
        return {"path": path, "created": created}

    def copy_file(
        self, source: Source, destination: Destination, overwrite: Overwrite = False
    ) -> dict[str, Any]:
        """Copy a file to a new path, whole or not at all."""
        origin = self._regular_file(source)
        target = self._root.resolve(destination)
        if origin == target:
            raise ToolError("Source and destination are the same file.")
        size = self._writer.copy(origin, target, destination, overwrite)
        return {"source": source, "destination": destination, "size": size}

    def move_file(
        self, source: Source, destination: Destination, overwrite: Overwrite = False
    ) -> dict[str, Any]:
        """Move or rename a file or folder."""
        origin, target = self._root.entry(source), self._root.entry(destination)
        with short_errors("move", source):
            self._writer.move(origin, target, destination, overwrite)
        return {"source": source, "destination": destination}

    def delete_file(self, path: FilePath) -> dict[str, Any]:
        """Delete a file or an empty folder, for good."""
        target = self._root.entry(path)
        with short_errors("delete", path), self._root.folder_at(target.parent) as folder:
            folder.remove(target.name)
        return {"path": path, "deleted": True}

    def _regular_file(self, path: str) -> Path:
        target = self._root.resolve(path)
        mode = self._status(path, target, "read").st_mode
        if not stat.S_ISREG(mode):
            raise ToolError(f"{path!r} is a {_kind(mode)}, not a file.")
        return target

    def _folder(self, path: str) -> Path:
        target = self._root.resolve(path)
        if not stat.S_ISDIR(self._status(path, target, "search").st_mode):
            raise ToolError(f"{path!r} is not a folder. list_directory shows the existing names.")
        return target

    def _status(self, path: str, target: Path, action: str) -> os.stat_result:
        if target == self._root.folder:
            return target.stat()
        with short_errors(action, path), self._root.folder_at(target.parent) as folder:
            return folder.stat(target.name)

    def _matching(self, folder: Path, pattern: str) -> Iterator[Path]:
        for file in walk_files(self._root, folder):
            if matches(file.relative_to(folder).as_posix(), pattern):
                yield file


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": entry.name, "kind": "unreadable", "size": None}
    return {"name": entry.name, "kind": _kind(status.st_mode), "size": status.st_size}


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    return "special file"
