"""A toolset put into a config file, of which everything else stays as it stands there, to the byte."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from casual_mcp_nb.config.document import parse_document, read_text
from casual_mcp_nb.config.jsonc import plain_json
from casual_mcp_nb.config.loader import check_config
from casual_mcp_nb.errors import ConfigError, UsageError, shown
from casual_mcp_nb.types.config import ExcludeSpec, ToolSetConfig

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r'\n([ \t]+)"')
_BOM = b"\xef\xbb\xbf"
_KEY = "tool_sets"
_DECODER = json.JSONDecoder()


def save_tool_set(path: Path, name: str, tool_set: ToolSetConfig, *, overwrite: bool = False) -> Path:
    """Write a toolset into the config file, which is read anew: what others changed in it meanwhile stays.

    The rest of the file stays as it is to the byte, and so do its line ends, its byte order mark and its permissions.

    Args:
        path: The config file; where it is a link, the file that it leads to.
        name: The toolset's name.
        tool_set: What it lets through; each server that it names must stand in the file.
        overwrite: Replace another toolset of that name.

    Returns:
        The file, changed whole or not at all.

    Raises:
        UsageError: The name is empty, or there is another toolset of that name.
        ConfigError: The file cannot be read or written, was changed meanwhile, or with this toolset it would not be right.
    """
    if not name.strip():
        raise UsageError("A toolset needs a name.")
    place = path.resolve()
    if path.suffix.casefold() == ".toml":
        raise ConfigError("a toolset cannot be written into a TOML file.", path=str(path), hint="Use a JSON file for it.")
    before = _FileText(read_text(place))
    saved = _tool_sets(before, path)
    value = plain_tool_set(tool_set)
    if name in saved and saved[name] == value:
        return path
    if name in saved and not overwrite:
        raise UsageError(
            f"There is already a toolset {shown(name)} in {shown(path.name)}.", hint="To replace it: overwrite=True."
        )
    changed = _FileText(_with_tool_set(before.text, name, value))
    check_config(changed.text, path)
    _replace(place, before, changed)
    return path


def saved_names(path: Path) -> frozenset[str]:
    """Read the names of the toolsets in a config file as it is now.

    Raises:
        ConfigError: It cannot be read.
    """
    return frozenset(_tool_sets(_FileText(read_text(path)), path))


def _tool_sets(file: _FileText, path: Path) -> dict[str, Any]:
    saved = parse_document(file.text, path).data.get(_KEY, {})
    if not isinstance(saved, dict):
        raise ConfigError("must be an object with a toolset by each name.", path=str(path), key=_KEY)
    return saved


def plain_tool_set(tool_set: ToolSetConfig) -> dict[str, Any]:
    """Return a toolset as a file has it; an empty description is left out."""
    servers = {server: _plain_rule(rule) for server, rule in tool_set.servers.items()}
    said = {"description": tool_set.description} if tool_set.description else {}
    return {**said, "servers": servers}


def _plain_rule(rule: bool | tuple[str, ...] | ExcludeSpec) -> bool | list[str] | dict[str, list[str]]:
    if isinstance(rule, ExcludeSpec):
        return {"exclude": list(rule.exclude)}
    return rule if isinstance(rule, bool) else list(rule)


def _with_tool_set(text: str, name: str, value: dict[str, Any]) -> str:
    """Put a toolset into the text of a file, in place of the one of that name if there is one."""
    plain = plain_json(text)
    indent = match[1] if (match := _INDENT.search(plain)) else "  "
    newline = "\r\n" if "\r\n" in plain else "\n"

    def written(value: Any, depth: int) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", newline + indent * depth)

    def with_member(target: _Object, key: str, value: Any, depth: int) -> str:
        member = f"{newline}{indent * depth}{json.dumps(key, ensure_ascii=False)}: {written(value, depth)}"
        if target.values:
            _, last = list(target.values.values())[-1]
            return f"{text[:last]},{member}{text[last:]}"
        inside = text[target.start + 1 : target.end]
        return f"{text[: target.start + 1]}{member}{inside.rstrip()}{newline}{indent * (depth - 1)}{text[target.end :]}"

    top = _object(plain, plain.index("{"))
    if _KEY not in top.values:
        return with_member(top, _KEY, {name: value}, 1)
    tool_sets = _object(plain, top.values[_KEY][0])
    if name not in tool_sets.values:
        return with_member(tool_sets, name, value, 2)
    start, end = tool_sets.values[name]
    return f"{text[:start]}{written(value, 2)}{text[end:]}"


class _Object(NamedTuple):
    """An object in a text of JSON: where its braces stand, and from where to where each of its values does."""

    start: int
    values: dict[str, tuple[int, int]]
    end: int


def _object(text: str, start: int) -> _Object:
    """Find the parts of the object that begins at `start` of a text that is known to be JSON."""
    values: dict[str, tuple[int, int]] = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        values[key] = value, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Object(start, values, at)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


@dataclass(frozen=True)
class _FileText:
    """A text with keys in it, which no traceback shows."""

    text: str = field(repr=False)


def replace_text(path: Path, before: str, text: str) -> None:
    """Put a text in the place of a file's: as a whole, with its byte order mark and permissions, also after a power cut.

    Args:
        path: The file.
        before: What it holds now.
        text: What it is to hold.

    Raises:
        ConfigError: It cannot be written, or holds something else by now; it is as it was.
    """
    old, new = _FileText(before), _FileText(text)
    del before, text
    _replace(path, old, new)


def _replace(path: Path, before: _FileText, text: _FileText) -> None:
    def put(part: Path) -> None:
        if read_text(path) != before.text:
            raise ConfigError("was changed by somebody else at this moment.", path=str(path), hint="Save again.")
        os.replace(part, path)

    with _failing(path):
        mark = _BOM if path.read_bytes().startswith(_BOM) else b""
        with part_file(path, stat.S_IMODE(path.stat().st_mode), put) as file:
            file.write(mark + text.text.encode())


@contextlib.contextmanager
def part_file(path: Path, mode: int, put: Callable[[Path], None]) -> Iterator[BinaryIO]:
    """Open a file beside `path` to write what is to be in it, and put it there when all of it is on the disk.

    Args:
        path: The file that is to be whole, or as it was.
        mode: Its permissions.
        put: Moves the written file to `path`.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        put(Path(name))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(f"cannot be written: {cause.strerror}. The file is as it was.", path=str(path)) from None
