"""The `files` server: files inside one folder."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.bundled._documents import media_type, read_document
from casual_mcp_nb.bundled._files import Root, Writer, matches, matching_lines, short_errors, walk_files
from casual_mcp_nb.bundled._server import FunctionServer, adds, destroys, reads

MAX_READ = 100_000
_MAX_ENTRIES = 500

FilePath = Annotated[str, Field(description="Path of the file, relative to the root folder")]
FolderPath = Annotated[str, Field(description="Path of the folder, relative to the root folder; '.' is the root")]
Source = Annotated[str, Field(description="Path of what is there, relative to the root folder")]
Destination = Annotated[str, Field(description="The new path, relative to the root folder")]
Overwrite = Annotated[bool, Field(description="true replaces a file that exists; without it that is an error")]
Limit = Annotated[int, Field(description="The most results to return", ge=1, le=_MAX_ENTRIES)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the server's command line options."""
    parser.add_argument("--root", default=".", metavar="DIR", help="the folder (default: the current one)")


def build(root: str = ".") -> FunctionServer:
    """Build the server; every tool is confined to the root folder."""
    files = Files(Root(root))
    tools = [
        *reads(files.read_file, files.list_directory, files.search_files, files.search_text, files.file_info),
        *adds(files.create_directory, idempotent=True),
        *destroys(files.write_file, files.copy_file, files.move_file, files.delete_file),
    ]
    return FunctionServer("files", "Files inside one root folder; every path is relative to it.", tools)


class Files:
    """The tools of one root folder."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._writer = Writer(root)

    def read_file(
        self,
        path: FilePath,
        offset: Annotated[int, Field(description="Where to begin: 0, or the next_offset of a part", ge=0)] = 0,
        limit: Annotated[int, Field(description="The most bytes to read at once", ge=1, le=MAX_READ)] = 20_000,
    ) -> dict[str, Any]:
        """Read the text of a file, also of a Word document (.docx).

        A large file comes in parts: next_offset tells where the next one begins. A binary file is only named.
        """
        file = self._regular_file(path)
        with short_errors("read", path), self._root.folder_at(file.parent) as folder, folder.open(file.name) as stream:
            return {"path": path, "type": media_type(file.name), **read_document(stream, file.name, offset, limit)}

    def write_file(
        self,
        path: FilePath,
        content: Annotated[str, Field(description="The whole new text of the file")],
        overwrite: Overwrite = False,
        create_folders: Annotated[bool, Field(description="false refuses if its folder is missing")] = True,
    ) -> dict[str, Any]:
        """Write a text file, in one piece or not at all; missing folders are created. Returns the size in bytes."""
        size, created = self._writer.save(self._root.resolve(path), path, content, overwrite, create_folders)
        return {"path": path, "size": size, "created": created}

    def list_directory(self, path: FolderPath = ".") -> dict[str, Any]:
        """List the files and folders in a folder. Returns name, kind and size of each."""
        directory = self._root.resolve(path)
        with short_errors("list", path), self._root.folder_at(directory) as folder:
            entries = folder.scan()
            listed = [_entry(entry) for entry in entries[:_MAX_ENTRIES]]
        return {
            "path": path,
            "total": len(entries),
            "truncated": len(entries) > len(listed),
            "entries": listed,
        }

    def search_files(
        self,
        pattern: Annotated[str, Field(description="A glob such as '*.csv' or 'src/**/*.py'", max_length=200)],
        path: FolderPath = ".",
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Find files by name in a folder and all folders below it. Returns their paths."""
        folder = self._folder(path)
        places = (self._root.relative(file) for file in self._matching(folder, pattern))
        matches = list(islice(places, limit + 1))
        return {"pattern": pattern, "files": matches[:limit], "truncated": len(matches) > limit}

    def search_text(
        self,
        text: Annotated[str, Field(description="The words to find, literally", min_length=1, max_length=500)],
        path: FolderPath = ".",
        pattern: Annotated[str, Field(description="Only in files whose name matches this glob")] = "*",
        ignore_case: Annotated[bool, Field(description="true ignores upper and lower case")] = False,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Find lines that mention or contain a text in any file of a folder and below, like grep.

        Returns path, line number and line of each. Binary files and files over 5 MB are left out.
        """
        folder = self._folder(path)
        lines = (
            {"path": self._root.relative(file), "line": number, "text": line}
            for file in self._matching(folder, pattern)
            for number, line in matching_lines(self._root, file, text, ignore_case)
        )
        matches = list(islice(lines, limit + 1))
        return {"text": text, "matches": matches[:limit], "truncated": len(matches) > limit}

    def file_info(self, path: FilePath) -> dict[str, Any]:
        """Show the details of a file or folder: kind, size in bytes, type and time of the last change."""
        target = self._root.resolve(path)
        status = self._status(path, target, "inspect")
        modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
        details = {"path": path, "kind": _kind(status.st_mode), "size": status.st_size, "modified": modified}
        return {**details, "type": media_type(target.name) if stat.S_ISREG(status.st_mode) else None}

    def create_directory(self, path: FolderPath) -> dict[str, Any]:
        """Create a folder, and the folders above it where they are missing."""
        folder = self._root.resolve(path)
        created = not folder.exists()
        with short_errors("create", path), self._root.folder_at(folder, create=True):
            pass
        return {"path": path, "created": created}

    def copy_file(self, source: Source, destination: Destination, overwrite: Overwrite = False) -> dict[str, Any]:
        """Copy a file to a new path, whole or not at all."""
        origin = self._regular_file(source)
        target = self._root.resolve(destination)
        if origin == target:
            raise ToolError("Source and destination are the same file.")
        size = self._writer.copy(origin, target, destination, overwrite)
        return {"source": source, "destination": destination, "size": size}

    def move_file(self, source: Source, destination: Destination, overwrite: Overwrite = False) -> dict[str, Any]:
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
        places = walk_files(self._root, folder)
        return (file for file in places if matches(file.relative_to(folder).as_posix(), pattern))


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return {"name": entry.name, "kind": "unreadable", "size": None}
    return {"name": entry.name, "kind": _kind(status.st_mode), "size": status.st_size}


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    return next((name for test, name in kinds if test(mode)), "special file")
