"""Paths from a stranger, kept inside one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath

from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.bundled._folder import Folder

# One text for every refusal: it must not tell whether anything exists outside.
REFUSED = "Path refused. Valid: a relative path inside the root folder, such as 'notes/today.txt'."


class Root:
    """A folder that no path leads out of.

    Args:
        folder: An existing folder.

    Raises:
        ValueError: The folder does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        if not self.folder.is_dir():
            raise ValueError(f"the root is not an existing folder: {folder}")

    def relative(self, place: Path) -> str:
        """Name a place inside the folder as a tool's caller would, with `/` between the parts."""
        return place.relative_to(self.folder).as_posix()

    def resolve(self, path: str) -> Path:
        """Return the real place of a path, links followed; it need not exist.

        Raises:
            ToolError: The path is not relative, is empty, or leads out of the folder.
        """
        real = self._real(self._inside(path))
        if not real.is_relative_to(self.folder):
            raise ToolError(REFUSED)
        return real

    def entry(self, path: str) -> Path:
        """Return the place of a directory entry itself: a link is not followed, the folders before it are.

        Raises:
            ToolError: As `resolve`; also for the root folder itself and for a link that leads out.
        """
        if self.resolve(path) == self.folder:
            raise ToolError("The root folder itself cannot be changed; name something inside it.")
        place = self._inside(path)
        return self._real(place.parent) / place.name

    @contextmanager
    def folder_at(self, place: Path, *, create: bool = False) -> Iterator[Folder]:
        """Open a folder that `resolve` returned. It is reached without following links, which may have been put there since.

        Args:
            place: The folder.
            create: Make it and those above it where they are missing.

        Raises:
            ToolError: It is not inside the root folder.
            OSError: It is not there, or not a folder any more.
        """
        if not place.is_relative_to(self.folder):
            # A link was put there since its path was checked.
            raise ToolError(REFUSED)
        with Folder.opened(self.folder, place.relative_to(self.folder).parts, create=create) as folder:
            yield folder

    def _inside(self, path: str) -> Path:
        # Windows' rules are the wider ones: they also know drives and backslashes.
        windows = PureWindowsPath(path)
        if not path.strip() or "\0" in path or path.startswith("~") or windows.anchor or ".." in windows.parts:
            raise ToolError(REFUSED)
        return self.folder / path

    @staticmethod
    def _real(place: Path) -> Path:
        try:
            return Path(os.path.realpath(place))
        except (OSError, ValueError) as error:
            raise ToolError(REFUSED) from error


@contextmanager
def short_errors(action: str, path: str) -> Iterator[None]:
    """Turn an OSError into one short text that names the path as the caller wrote it."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"Cannot {action} {path!r}: it does not exist. list_directory shows what does.") from error
    except OSError as error:
        raise ToolError(f"Cannot {action} {path!r}: {error.strerror or 'the system refused'}.") from error
