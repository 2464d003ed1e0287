"""A toolset put into a config file, of which everything else stays as it stands there, to the byte."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from casual_mcp_nb.config.document import parse_document, read_text
from casual_mcp_nb.config.jsonc import plain_json
from casual_mcp_nb.config.loader import check_config
from casual_mcp_nb.errors import ConfigError, UsageError, shown
from casual_mcp_nb.types.config import ExcludeSpec, ToolSetConfig

_SPACE = re.compile(r"[ \t\r\n]*")
_BOM = b"\xef\xbb\xbf"
_KEY = "tool_sets"
_MAX_LINE = 100
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
    """The names of the toolsets in a config file as it is now.

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
    """A toolset as a file has it; an empty description is left out."""
    servers = {server: _plain_rule(rule) for server, rule in tool_set.servers.items()}
    said = {"description": tool_set.description} if tool_set.description else {}
    return {**said, "servers": servers}


def _plain_rule(rule: bool | tuple[str, ...] | ExcludeSpec) -> bool | list[str] | dict[str, list[str]]:
    if isinstance(rule, ExcludeSpec):
        return {"exclude": list(rule.exclude)}
    return rule if isinstance(rule, bool) else list(rule)


class _Member(NamedTuple):
    """A key of an object, and from where to where its value stands."""

    key: str
    start: int
    end: int


@dataclass(frozen=True)
class _Object:
    """An object in a text of JSON: where it begins, its members, and where its closing brace stands."""

    start: int
    members: tuple[_Member, ...]
    close: int

    def get(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)


@dataclass(frozen=True)
class _Style:
    """How a file is written: the indentation of one level (None: all in one line), its line end, whether it is pure ASCII."""

    indent: str | None
    newline: str
    ascii: bool

    def written(self, value: Any, depth: int) -> str:
        """`value` as JSON; what is short, and not the toolset itself, in one line."""
        flat = json.dumps(value, ensure_ascii=self.ascii)
        fits = not isinstance(value, dict) or not any(isinstance(part, dict | list) for part in value.values())
        if self.indent is None or not value or not isinstance(value, dict | list) or (fits and len(flat) <= _MAX_LINE):
            return flat
        inner = self.line(depth + 1)
        if isinstance(value, list):
            return f"[{','.join(inner + self.written(item, depth + 1) for item in value)}{self.line(depth)}]"
        return f"{{{','.join(inner + self.member(key, part, depth + 1) for key, part in value.items())}{self.line(depth)}}}"

    def member(self, key: str, value: Any, depth: int) -> str:
        """A key with its value."""
        return f"{json.dumps(key, ensure_ascii=self.ascii)}: {self.written(value, depth)}"

    def line(self, depth: int) -> str:
        """What stands before a key at this depth."""
        return "" if self.indent is None else self.newline + self.indent * depth


def _with_tool_set(text: str, name: str, value: dict[str, Any]) -> str:
    start, end, written = _edit(plain_json(text), name, value)
    # Between the two there is nothing, the old toolset, or space in which comments may stand.
    kept = text[start:end] if plain_json(text)[start:end].isspace() and not text[start:end].isspace() else ""
    return f"{text[:start]}{written}{kept}{text[end:]}"


def _edit(text: str, name: str, value: dict[str, Any]) -> tuple[int, int, str]:
    """From where to where a file's text is replaced, and by what; in the text there are no comments."""
    top = _object(text, _skip(text, 0))
    style = _style(text, top)
    group = top.get(_KEY)
    if group is None:
        return _added(top, style, _KEY, {name: value}, 1)
    inner = _object(text, group.start)
    if inner.members and "\n" not in _before_members(text, inner):
        style = replace(style, indent=None)
    present = inner.get(name)
    if present is None:
        return _added(inner, style, name, value, 2)
    return present.start, present.end, style.written(value, 2)


def _added(target: _Object, style: _Style, key: str, value: Any, depth: int) -> tuple[int, int, str]:
    """One more member at the end of an object."""
    member = style.line(depth) + style.member(key, value, depth)
    if target.members:
        end = target.members[-1].end
        return end, end, f",{member if style.indent is not None else ' ' + member}"
    return target.start + 1, target.close, f"{member}{style.line(depth - 1)}"


def _style(text: str, top: _Object) -> _Style:
    newline = "\r\n" if "\r\n" in text else "\n"
    before = _before_members(text, top)
    many_lines = "\n" in before or not top.members
    indent = before.rpartition("\n")[2] or "  " if many_lines else None
    return _Style(indent, newline, text.isascii() and "\\u" in text)


def _before_members(text: str, target: _Object) -> str:
    return text[target.start + 1 : _skip(text, target.start + 1)]


def _object(text: str, start: int) -> _Object:
    """The object that begins at `start` of a text that is known to be JSON."""
    members: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(key, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Object(start, tuple(members), at)


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
    with _failing(path):
        mark = _BOM if path.read_bytes().startswith(_BOM) else b""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(mark + text.text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, stat.S_IMODE(path.stat().st_mode))
            if read_text(path) != before.text:
                raise ConfigError("was changed by somebody else at this moment.", path=str(path), hint="Save again.")
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


@contextlib.contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(f"cannot be written: {cause.strerror}. The file is as it was.", path=str(path)) from None
