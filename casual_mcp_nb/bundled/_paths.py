"""Keep untrusted paths inside one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath

from mcp.server.mcpserver.exceptions import ToolError

from casual_mcp_nb.bundled._folder import Folder

# The same message for every refusal: it must not reveal whether anything exists outside.
REFUSED = "Path refused. Valid: a relative path inside the root folder, such as 'notes/today.txt'."


class Root:
    """A folder that no path can escape.

    Args:
        folder: An existing folder.

    Raises:
        ValueError: The folder does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        if not self.folder.is_dir():
            raise ValueError(f"the root is not an existing folder: {folder}")

    def relative(self, path: Path) -> str:
        """Convert a path to one relative to the folder, with `/` between the parts."""
        return path.relative_to(self.folder).as_posix()

    def resolve(self, path: str) -> Path:
        """Resolve a path, following links; it need not exist.

        Raises:
            ToolError: The path is not relative, is empty, or leads outside the folder.
        """
        real = self._real(self._inside(path))
        if not real.is_relative_to(self.folder):
            raise ToolError(REFUSED)
        return real

    def entry(self, path: str) -> Path:
        """Resolve the folders of a path, but not its last component, which may be a link.

        Raises:
            ToolError: As in `resolve`; also for the root folder itself and for a link that leads outside.
        """
        if self.resolve(path) == self.folder:
            raise ToolError("The root folder itself cannot be changed; name something inside it.")
        target = self._inside(path)
        return self._real(target.parent) / target.name

    @contextmanager
    def folder_at(self, path: Path, *, create: bool = False) -> Iterator[Folder]:
        """Open a folder that `resolve` returned, without following links that may have been created since.

        Args:
            path: The folder.
            create: Create it and its parents if they are missing.

        Raises:
            ToolError: It is not inside the root folder.
            OSError: It does not exist, or is no longer a folder.
        """
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
        raise ToolError(f"Cannot {action} {path!r}: it does not exist. list_directory shows what does.") from error
    except OSError as error:
        raise ToolError(f"Cannot {action} {path!r}: {error.strerror or 'the system refused'}.") from error
