"""Search a folder for names and text, without following links and within limits."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from casual_mcp_nb.bundled._documents import detect_encoding
from casual_mcp_nb.bundled._paths import Root

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
    """Yield the number and beginning of each line of a text file that contains a string.

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
