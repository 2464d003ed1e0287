"""Walk a folder for names and for text, without following links and within limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from casual_mcp_nb.bundled._documents import detect_encoding

MAX_FILES = 50_000
MAX_SEARCHED_BYTES = 5_000_000
_LINE_CHARACTERS = 200


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder in the order of their names, at most `MAX_FILES`."""
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(files):
            place = Path(parent, name)
            if place.is_symlink() or not place.is_file():
                continue
            count += 1
            if count > MAX_FILES:
                return
            yield place


def matches(relative: str, pattern: str) -> bool:
    """Say whether a path matches a glob pattern: on the name alone, or on the path when it has a `/`."""
    if "/" not in pattern:
        return fnmatchcase(relative.rpartition("/")[2], pattern)
    return fnmatchcase(relative, pattern) or fnmatchcase(relative, pattern.replace("**/", ""))


def matching_lines(place: Path, text: str, ignore_case: bool) -> Iterator[tuple[int, str]]:
    """Yield the number and the beginning of each line of a text file that contains a text.

    Files that are no text or have more than `MAX_SEARCHED_BYTES` yield nothing.
    """
    wanted = text.casefold() if ignore_case else text
    for number, line in enumerate(_lines(place), start=1):
        if wanted in (line.casefold() if ignore_case else line):
            yield number, line.strip()[:_LINE_CHARACTERS]


def _lines(place: Path) -> list[str]:
    try:
        if place.stat().st_size > MAX_SEARCHED_BYTES:
            return []
        data = place.read_bytes()
    except OSError:
        return []
    encoding = detect_encoding(data[:8192])
    return data.decode(encoding, errors="replace").splitlines() if encoding else []
