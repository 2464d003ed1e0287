"""Parse config files, JSON (with comments) or TOML, into plain objects and the position of each key."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from casual_mcp_nb.config.jsonc import plain_json
from casual_mcp_nb.config.problems import ConfigProblem, KeyPath, Position
from casual_mcp_nb.errors import ConfigError, MissingFileError, closest, did_you_mean

MAX_BYTES = 16_000_000
"""Maximum size of a file: far more than any config needs, and small enough to read in a second or two."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True)
class Document:
    """A parsed config file.

    Args:
        data: The config as plain objects.
        path: The file; None when it did not come from one.
        positions: Line and column of each key and list item.
        problems: Duplicate keys within one object.
    """

    data: dict[str, Any] = field(repr=False)
    path: Path | None = None
    positions: Mapping[KeyPath, Position] = field(default_factory=dict, repr=False)
    problems: tuple[ConfigProblem, ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder of the file, if there is one."""
        return self.path.parent if self.path else None

    def locate(self, path: KeyPath) -> Position | None:
        """Find the position of a key, or of its nearest enclosing key."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)


def read_document(path: Path) -> Document:
    """Read a file in UTF-8, with or without a byte order mark: TOML where its name says so, otherwise JSON.

    Raises:
        ConfigError: It cannot be read or is not an object; with line and column if known.
    """
    return _or_raised(_parsed(read_text(path), path))


def parse_document(text: str, path: Path) -> Document:
    """Parse the text of a file into objects.

    Args:
        text: The content of the file.
        path: The file that errors name; its suffix determines the format.

    Raises:
        ConfigError: It is not an object; with line and column if known.
    """
    parsed = _parsed(text, path)
    # A traceback that shows local variables would show the keys in the text.
    del text
    return _or_raised(parsed)


def _or_raised(parsed: Document | ConfigError) -> Document:
    if isinstance(parsed, ConfigError):
        raise parsed
    return parsed


def _parsed(text: str, path: Path) -> Document | ConfigError:
    """Parse a document, or describe its first error. Nothing is raised while a local variable holds the text."""
    if not text.strip():
        return ConfigError("the file is empty; it must contain a JSON object.", path=str(path))
    if path.suffix.casefold() == ".toml":
        return _parsed_toml(text, path)
    text = plain_json(text)
    data = _parsed_json(text, path)
    if isinstance(data, ConfigError):
        return data
    if not isinstance(data, dict):
        return ConfigError("the top level must be a JSON object.", path=str(path), line=1, column=1)
    positions, doubles = _scan(text)
    return Document(data, path, positions, tuple(ConfigProblem(key, "the same key twice in one object") for key in doubles))


def read_text(path: Path, error: type[ConfigError] = ConfigError) -> str:
    """Read a UTF-8 file, without its byte order mark.

    Args:
        path: The file.
        error: The exception class to raise.

    Raises:
        ConfigError: It is missing, not a regular file, not readable or not UTF-8. The error contains none of its content.
    """
    try:
        if not path.is_file():
            raise _not_a_file(path, error)
        if path.stat().st_size > MAX_BYTES:
            raise error(f"the file is larger than {MAX_BYTES // 1_000_000} MB.", path=str(path))
        content = path.read_bytes()
    except MissingFileError:
        raise
    except OSError as cause:
        raise error(f"cannot be read: {cause.strerror}.", path=str(path)) from cause
    # The codec's error carries the whole content, so ours is raised after both are gone.
    text, wrong = _decoded(content)
    del content
    if wrong is not None:
        line, column = wrong
        raise error("not UTF-8 text.", path=str(path), line=line, column=column, hint="Save the file as UTF-8.")
    return text


def _decoded(content: bytes) -> tuple[str, Position | None]:
    """Decode the text of a file, or return the position of the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        good = content[: error.start].decode("utf-8-sig")
        return "", _position(_line_starts(good), len(good))


def _not_a_file(path: Path, error: type[ConfigError]) -> ConfigError:
    if path.is_dir():
        return error("this is a folder, not a file.", path=str(path))
    if path.exists():
        return error("this is not a regular file.", path=str(path))
    near = closest(path.name, [other.name for other in path.parent.glob(f"*{path.suffix}")] if path.parent.is_dir() else [])
    missing = MissingFileError if error is ConfigError else error
    return missing("there is no such file.", path=str(path), hint=did_you_mean(near, near) if near else "")


def _parsed_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line, column, reason = error.lineno, error.colno, error.msg
    except RecursionError:
        line, column, reason = 1, 1, "nested too deeply"
    except ValueError:
        line, column, reason = 1, 1, "a number with too many digits"
    return ConfigError(f"not JSON: {reason}.", path=str(path), line=line, column=column)


def _parsed_toml(text: str, path: Path) -> Document | ConfigError:
    try:
        return Document(tomllib.loads(text), path)
    except tomllib.TOMLDecodeError as error:
        reason, _, where = str(error).partition(" (at line ")
        line, column = ([*map(int, re.findall(r"\d+", where)), 1, 1])[:2] if where else (1, 1)
    except (RecursionError, ValueError):
        reason, line, column = "nested too deeply, or a number with too many digits", 1, 1
    return ConfigError(f"not TOML: {reason.splitlines()[0][:200]}.", path=str(path), line=line, column=column)


def _scan(text: str) -> tuple[dict[KeyPath, Position], list[KeyPath]]:
    """Find the position of each key and list item in valid JSON, and any duplicate keys."""
    starts = _line_starts(text)
    positions: dict[KeyPath, Position] = {}
    doubles: dict[KeyPath, None] = {}
    for path, offset in _walk(text):
        if path in positions and not any(path[:size] in doubles for size in range(1, len(path) + 1)):
            doubles[path] = None
        positions[path] = _position(starts, offset)
    return positions, list(doubles)


def _walk(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield each key and list item with its offset, in order."""
    path: list[str | int] = []
    key_next = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        last = path[-1] if path else ""
        if isinstance(last, int) and token not in ",]":
            yield tuple(path), match.start()
        if token in "{[":
            path.append("" if token == "{" else 0)
            key_next = token == "{"
        elif token in "}]":
            path.pop()
            key_next = False
        elif token == "," and isinstance(last, int):
            path[-1] = last + 1
        elif token == ",":
            key_next = True
        elif key_next:
            path[-1], key_next = json.loads(token), False
            yield tuple(path), match.start()


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _position(starts: list[int], offset: int) -> Position:
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1
