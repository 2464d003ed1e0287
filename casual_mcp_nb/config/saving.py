"""Save a toolset to a config file, or delete it there, leaving every other byte of the file unchanged."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.base.files import part_file
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.config.document import parse_document, plain_json, read_text
from casual_mcp_nb.config.loader import check_config
from casual_mcp_nb.discovery.toolsets import check_tool_set
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError, shown
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r'\n([ \t]+)"')
_BOM = b"\xef\xbb\xbf"
_KEY = "tool_sets"
_DECODER = json.JSONDecoder()


def save_tool_set(path: Path, name: str, tool_set: ToolSetConfig, servers: Collection[str], *, overwrite: bool = False) -> Path:
    """Write a toolset to the config file, which is read again first so that changes by others are kept.

    The rest of the file stays byte for byte the same, including line endings, byte order mark and permissions.

    Args:
        path: The config file; a symbolic link is followed.
        name: The toolset's name.
        tool_set: The toolset.
        servers: The servers that it may name, besides `notebook`: those of the file, and those that the process adds.
        overwrite: Replace an existing toolset of that name.

    Returns:
        The path of the file, which is changed completely or not at all.

    Raises:
        UsageError: The name is empty or already used.
        ToolSetError: It names a server that does not exist.
        ConfigError: The file cannot be read or written, has changed in the meantime, or would become invalid.
    """
    if not name.strip():
        raise UsageError("A toolset needs a name.")
    # Which tools they have is not known here.
    check_tool_set(tool_set, {each: ServerStatus(each, "starting") for each in (*servers, NOTEBOOK)}, (), name=name)
    file = path.resolve()
    if path.suffix.casefold() == ".toml":
        raise ConfigError("a toolset cannot be saved to a TOML file.", path=str(path), hint="Use a JSON file.")
    before = _FileText(read_text(file))
    saved = _tool_sets(before, path)
    value = plain_tool_set(tool_set)
    if name in saved and saved[name] == value:
        return path
    if name in saved and not overwrite:
        raise UsageError(f"{shown(path.name)} already has a toolset {shown(name)}.", hint="To replace it: overwrite=True.")
    changed = _FileText(_with_tool_set(before.text, name, value))
    check_config(changed.text, path)
    _replace(file, before, changed)
    return path


def delete_tool_set(path: Path, name: str) -> Path:
    """Delete a toolset in the config file; comments outside it stay.

    Args:
        path: The config file; a symbolic link is followed.
        name: The toolset's name.

    Returns:
        The path of the file, which is changed completely or not at all.

    Raises:
        UnknownNameError: It has no toolset of that name.
        ConfigError: The file cannot be read or written, or has changed in the meantime.
    """
    file = path.resolve()
    if path.suffix.casefold() == ".toml":
        raise ConfigError("a toolset of a TOML file cannot be deleted.", path=str(path), hint="Delete it in an editor.")
    before = _FileText(read_text(file))
    saved = _tool_sets(before, path)
    if name not in saved:
        raise UnknownNameError("toolset", name, saved)
    changed = _FileText(_without_tool_set(before.text, name))
    check_config(changed.text, path)
    _replace(file, before, changed)
    return path


def saved_names(path: Path) -> frozenset[str]:
    """Read the names of the toolsets in a config file from disk.

    Raises:
        ConfigError: It cannot be read.
    """
    return frozenset(_tool_sets(_FileText(read_text(path)), path))


def _tool_sets(file: _FileText, path: Path) -> dict[str, Any]:
    saved = parse_document(file.text, path).data.get(_KEY, {})
    if not isinstance(saved, dict):
        raise ConfigError("must be an object of toolsets by name.", path=str(path), key=_KEY)
    return saved


def plain_tool_set(tool_set: ToolSetConfig) -> dict[str, Any]:
    """Convert a toolset to the file's format, without an empty description."""
    servers = {server: _plain_rule(rule) for server, rule in tool_set.servers.items()}
    value = {"description": tool_set.description} if tool_set.description else {}
    return {**value, "servers": servers}


def _plain_rule(rule: bool | tuple[str, ...] | ExcludeSpec) -> bool | list[str] | dict[str, list[str]]:
    if isinstance(rule, ExcludeSpec):
        return {"exclude": list(rule.exclude)}
    return rule if isinstance(rule, bool) else list(rule)


def _with_tool_set(text: str, name: str, value: dict[str, Any]) -> str:
    """Insert a toolset into the text of a file, or replace the one of that name."""
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


def _without_tool_set(text: str, name: str) -> str:
    """Remove a toolset from the text of a file, with one of the commas beside it."""
    plain = plain_json(text)
    tool_sets = _object(plain, _object(plain, plain.index("{")).values[_KEY][0])
    names = list(tool_sets.values)
    start, end = tool_sets.keys[name], tool_sets.values[name][1]
    comma = _skip(plain, end)
    # A trailing comma is a space in the plain text.
    if plain[comma] == "," or text[end : end + 1] == ",":
        end = comma + 1 if plain[comma] == "," else end + 1
    elif len(names) > 1:
        previous = tool_sets.values[names[names.index(name) - 1]][1]
        comma = _skip(plain, previous)
        text, start, end = f"{text[:comma]}{text[comma + 1 :]}", start - 1, end - 1
    head, tail = text[:start], text[end:]
    line = head.rpartition("\n")[2]
    if not line.strip() and (blank := re.match(r"[ \t]*\r?\n", tail)):
        head, tail = head[: len(head) - len(line)], tail[blank.end() :]
    return head + tail


class _Object(NamedTuple):
    """An object in JSON text: the offsets of its braces and keys, and the start and end of each value."""

    start: int
    values: dict[str, tuple[int, int]]
    end: int
    keys: dict[str, int]


def _object(text: str, start: int) -> _Object:
    """Locate the parts of the object that begins at `start` in valid JSON."""
    values: dict[str, tuple[int, int]] = {}
    keys: dict[str, int] = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        keys[key] = at
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        values[key] = value, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Object(start, values, at, keys)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


@dataclass(frozen=True)
class _FileText:
    """Text that contains keys and is hidden from tracebacks."""

    text: str = field(repr=False)


def replace_text(path: Path, before: str, text: str) -> None:
    """Replace a file's text atomically, keeping its byte order mark and permissions, even across a power cut.

    Raises:
        ConfigError: It cannot be written, or its text is no longer `before`; the file is unchanged.
    """
    old, new = _FileText(before), _FileText(text)
    del before, text
    _replace(path, old, new)


def _replace(path: Path, before: _FileText, text: _FileText) -> None:
    def put(part: Path) -> None:
        if read_text(path) != before.text:
            raise ConfigError("was changed by another program in the meantime.", path=str(path), hint="Save again.")
        os.replace(part, path)

    with _failing(path):
        mark = _BOM if path.read_bytes().startswith(_BOM) else b""
        with part_file(path, stat.S_IMODE(path.stat().st_mode), put) as file:
            file.write(mark + text.text.encode())


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(f"cannot be written: {cause.strerror}. The file is unchanged.", path=str(path)) from None
