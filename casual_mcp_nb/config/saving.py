"""Save and delete toolsets in a config file, without changing any other byte in it."""

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

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.files import part_file
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.config.document import (
    OTHER_FORMATS,
    indent_of,
    parse_document,
    plain_json,
    read_text,
)
from casual_mcp_nb.config.loader import check_config
from casual_mcp_nb.discovery.toolsets import check_tool_set
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError, shown
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK

_SPACE = re.compile(r"[ \t\r\n]*")
_BOM = b"\xef\xbb\xbf"
_KEY = "tool_sets"
_DECODER = json.JSONDecoder()


def save_tool_set(
    path: Path,
    name: str,
    tool_set: ToolSetConfig,
    servers: Collection[str],
    *,
    overwrite: bool = False,
) -> Path:
    """Write a toolset to the config file, which is read again first to keep others' changes.

    Everything else stays byte for byte the same, including line endings, byte order mark and
    permissions. The file is changed completely or not at all. The toolset may name `servers`: the
    file's, those that the process adds, and `notebook`. A ConfigError if the file cannot be read or
    written, has changed meanwhile, or would become invalid.
    """
    if not name.strip():
        raise UsageError("A toolset needs a name.")
    # Which tools they have is not known here.
    check_tool_set(
        tool_set,
        {each: ServerStatus(each, "starting") for each in (*servers, NOTEBOOK)},
        (),
        name=name,
    )
    before = _opened(path)
    saved = _tool_sets(before, path)
    value = plain_tool_set(tool_set)
    if name in saved and saved[name] == value:
        return path
    if name in saved and not overwrite:
        raise UsageError(
            f"{shown(path.name)} already has a toolset {shown(name)}.",
            hint="To replace it: overwrite=True.",
        )
    return _changed(path, before, _FileText(_with_tool_set(before.text, name, value)))


def delete_tool_set(path: Path, name: str) -> Path:
    """Delete a toolset in the config file, completely or not at all. Comments outside it stay."""
    before = _opened(path)
    saved = _tool_sets(before, path)
    if name not in saved:
        raise UnknownNameError("toolset", name, saved)
    return _changed(path, before, _FileText(_without_tool_set(before.text, name)))


def _changed(path: Path, before: _FileText, text: _FileText) -> Path:
    check_config(text.text, path)
    _replace(path.resolve(), before, text)
    return path


def _opened(path: Path) -> _FileText:
    format = OTHER_FORMATS.get(path.suffix.casefold())
    if format is not None:
        raise ConfigError(
            f"toolsets in a {format} file cannot be changed from here.",
            path=str(path),
            hint="Use an editor, or a JSON file.",
        )
    return _FileText(read_text(path.resolve()))


def saved_names(path: Path) -> frozenset[str]:
    """Read a config file's toolset names from disk."""
    return frozenset(_tool_sets(_FileText(read_text(path)), path))


def _tool_sets(file: _FileText, path: Path) -> dict[str, Any]:
    saved = parse_document(file.text, path).data.get(_KEY, {})
    if not isinstance(saved, dict):
        raise ConfigError("must be an object of toolsets by name.", path=str(path), key=_KEY)
    return saved


def plain_tool_set(tool_set: ToolSetConfig) -> dict[str, Any]:
    """Convert a toolset to the file's format, without an empty description."""
    hidden = set() if tool_set.description else {"description"}
    return tool_set.model_dump(mode="json", exclude=hidden)


def _with_tool_set(text: str, name: str, value: dict[str, Any]) -> str:
    plain = plain_json(text)
    indent = indent_of(plain)
    newline = "\r\n" if "\r\n" in plain else "\n"

    def written(value: Any, depth: int) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent).replace(
            "\n", newline + indent * depth
        )

    def with_member(target: _Object, key: str, value: Any, depth: int) -> str:
        member = (
            f"{newline}{indent * depth}{json.dumps(key, ensure_ascii=False)}:"
            f" {written(value, depth)}"
        )
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
    """An object in JSON text: offsets of its braces, keys and values."""

    start: int
    values: dict[str, tuple[int, int]]
    end: int
    keys: dict[str, int]


def _object(text: str, start: int) -> _Object:
    """Locate the parts in the object that begins at `start` in valid JSON."""
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
    """Replace a file's text atomically, keeping its byte order mark and permissions, even across a
    power cut.

    A ConfigError if it cannot be written, or its text differs from `before`.
    """
    old, new = _FileText(before), _FileText(text)
    del before, text
    _replace(path, old, new)


def _replace(path: Path, before: _FileText, text: _FileText) -> None:
    def put(part: Path) -> None:
        if read_text(path) != before.text:
            raise ConfigError(
                "was changed by another program in the meantime.",
                path=str(path),
                hint="Save again.",
            )
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
        raise ConfigError(
            f"cannot be written: {cause.strerror}. The file is unchanged.", path=str(path)
        ) from None
