"""The file that a recording is written to, beside which an earlier cassette stays until the new one
takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from casual_mcp_nb.errors import CassetteError, shown

Signature = tuple[int, int, int] | None
"""What tells a file from one that was written since, or None for no file."""


class CassetteOutput:
    """Writes a recording, and never over a cassette that somebody else has written meanwhile.

    If the cassette exists when the recording begins, the recording goes to a file beside it, until
    `replace`.

    Attributes:
        path: The cassette.
        written: The file that has the recording now, or None before it is written.
        replaces: Whether there was a cassette before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: Path | None = None
        self._at_start = _signature(path)
        self.replaces = self._apart = self._at_start is not None
        self._last: Signature = None

    def write(self, save: Callable[[Path], None]) -> None:
        """Write the recording so far with `save`.

        Raises:
            CassetteError: Somebody else has written the cassette. The recording is in another file,
                which the error names.
        """
        if self._apart:
            self._write_apart(save)
            return
        if self.written is None:
            is_ours = _reserved(self.path)
        else:
            is_ours = self.is_there
        if not is_ours:
            self._apart, self.written = True, None
            self._write_apart(save)
            raise self._taken()
        self._save(save, self.path)

    @property
    def is_there(self) -> bool:
        """Whether the file has what was last written, so that nobody else has written it since."""
        return self.written is not None and _signature(self.written) == self._last

    def replace(self) -> None:
        """Put the recording in the cassette's place, if it is in another file.

        Raises:
            CassetteError: Somebody else has written the cassette.
        """
        if self.written is None or not self._apart:
            return
        if _signature(self.path) != self._at_start:
            raise self._taken()
        os.replace(self.written, self.path)
        self.written = self.path

    def discard(self) -> None:
        """Delete the recording. A cassette that was there before stays."""
        if self.written is not None and self.is_there:
            self.written.unlink(missing_ok=True)
        self.written = None

    def _write_apart(self, save: Callable[[Path], None]) -> None:
        if self.is_there:
            assert self.written is not None
            path = self.written
        else:
            path = next(path for path in self._free_names() if _reserved(path))
        self._save(save, path)

    def _save(self, save: Callable[[Path], None], path: Path) -> None:
        try:
            save(path)
        except BaseException:
            # Only the reserved name is there, if it is the first time.
            if self.written != path:
                path.unlink(missing_ok=True)
            raise
        self.written, self._last = path, _signature(path)

    def _free_names(self) -> Iterator[Path]:
        yield self.path.with_name(f"{self.path.stem}.new{self.path.suffix}")
        for number in count(2):
            yield self.path.with_name(f"{self.path.stem}.new-{number}{self.path.suffix}")

    def _taken(self) -> CassetteError:
        return CassetteError(
            f"{shown(self.path)} was written by somebody else while it was recorded here, and is"
            " left as it is.",
            hint=f"This recording is in {shown(self.written)}." if self.written else "",
        )


def _reserved(path: Path) -> bool:
    """Create a file, unless somebody else has created it before: two recorders may begin at once.

    Where no file can be created, the one who writes says why.
    """
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
