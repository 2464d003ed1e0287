"""What is public, as text, and what of it breaks from one version to the next.

`public_surface.py` lists it. `docs/stability.md` says what is promised, which is what `breaks`
checks: a name stays, what can be given keeps being taken, and what comes back keeps coming, unless
the last release said that it would go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Surface = Mapping[str, Mapping[str, str]]
"""Each area with its names, and what is said about each: a signature, a type, a version."""

GIVEN = ("Commands", "Config keys", "HTTP requests")
"""The areas in which the package takes values: their types may become wider."""
RETURNED = ("HTTP responses", "JSON of commands")
"""The areas in which it returns them: their types may become narrower."""

_REQUIRED = " (required)"
_DEPRECATED = re.compile(r" \[deprecated since (\d+)\.(\d+)\]$")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def written(surface: Surface, head: str) -> str:
    """Write what is public: a line for each name, sorted in each area."""
    parts = [f"# {head}\n"]
    for area, names in surface.items():
        lines = [f"{name}{names[name]}\n" for name in sorted(names)]
        parts.append(f"\n## {area}\n\n{''.join(lines)}")
    return "".join(parts)


def read(text: str) -> dict[str, dict[str, str]]:
    """Read what `written` wrote."""
    surface: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            names = surface[line.removeprefix("## ")] = {}
        elif line and not line.startswith("# "):
            name, said = _split(line)
            names[name] = said
    return surface


def _split(line: str) -> tuple[str, str]:
    """Split a line into the name and what is said about it."""
    found = re.search(r"(?<=\w)\(|: | = | \(required\)| \[deprecated ", line)
    place = found.start() if found else len(line)
    return line[:place], line[place:]


def last_release(folder: Path) -> tuple[str, dict[str, dict[str, str]]] | None:
    """Read what was public in the last release. None before 1.0, with which promises begin."""
    releases = [path.stem for path in folder.glob("*.txt") if _VERSION.fullmatch(path.stem)]
    versions = sorted(tuple(map(int, name.split("."))) for name in releases)
    if not versions or versions[-1] < (1, 0, 0):
        return None
    last = ".".join(map(str, versions[-1]))
    return last, read((folder / f"{last}.txt").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Break:
    """Something that worked in the last release and does not now.

    Args:
        area: The area.
        name: The name in it.
        what: What has changed.
    """

    area: str
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.area}: {self.name} {self.what}"


def breaks(before: Surface, now: Surface, version: str) -> list[Break]:
    """Compare what was public with what is, and list what breaks without having been announced.

    Types in Python are not compared: they may become more exact.

    A name may go, or change, once a minor release had it marked as deprecated and the next minor
    release is being made.

    Args:
        before: What the last release had.
        now: What there is.
        version: The version that is being made.
    """
    found = []
    for area, names in before.items():
        there = now.get(area, {})
        for name, said in names.items():
            if _was_announced(said, version):
                continue
            if name not in there:
                found.append(Break(area, name, "is gone"))
                continue
            found += [
                Break(area, name, what)
                for what in _changes(area, _plain(said), _plain(there[name]))
            ]
        found += [
            Break(area, name, "is new and required")
            for name, said in there.items()
            if area in GIVEN and name not in names and _is_new_duty(name, said, names)
        ]
    return found


def _was_announced(said: str, version: str) -> bool:
    """Whether a release of an earlier minor version marked this name as deprecated."""
    match = _DEPRECATED.search(said)
    if match is None:
        return False
    major, minor, *_ = version.split(".")
    return (int(match[1]), int(match[2])) < (int(major), int(minor))


def _plain(said: str) -> str:
    return _DEPRECATED.sub("", said)


def _is_new_duty(name: str, said: str, names: Collection[str]) -> bool:
    """Whether something must be given now within what could be given without it before."""
    holder = re.sub(r"[. ]?[^. ]*$", "", name)
    holder = re.sub(r"(\.\*|\[\]|<\w+>)+$", "", holder)
    return _plain(said).endswith(_REQUIRED) and (not holder or holder in names)


def _changes(area: str, before: str, now: str) -> Iterator[str]:
    if before.startswith("("):
        if now.startswith("("):
            yield from _changes_of_call(_arguments(before), _arguments(now))
        else:
            yield "cannot be called any more"
    elif area in GIVEN:
        if lost := _alternatives(before) - _alternatives(now):
            yield f"does not take {' | '.join(sorted(lost))} any more"
        if now.endswith(_REQUIRED) and not before.endswith(_REQUIRED):
            yield "is required now"
    elif area in RETURNED and (more := _alternatives(now) - _alternatives(before)):
        yield f"can be {' | '.join(sorted(more))} now"


def _alternatives(said: str) -> set[str]:
    """Split a type into its alternatives."""
    return set(said.removeprefix(": ").removesuffix(_REQUIRED).split(" | "))


def _arguments(signature: str) -> ast.arguments:
    """Parse a signature as it stands in the list."""
    (function,) = ast.parse(f"def _{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


def _changes_of_call(before: ast.arguments, now: ast.arguments) -> Iterator[str]:
    """List what a call that worked cannot say any more, or has to say in addition."""
    positions, now_positions = _by_position(before), _by_position(now)
    for place, name in enumerate(positions):
        if now.vararg is not None and place >= len(now_positions):
            break
        # What can be given by position only may have another name.
        same = place < len(before.posonlyargs) or now_positions[place : place + 1] == [name]
        if place >= len(now_positions) or not same:
            yield f"does not take {name} by position any more"
    names, now_names = _by_name(before), _by_name(now)
    for name in names:
        if name not in now_names and now.kwarg is None:
            yield f"does not take {name} by name any more"
    optional = _optional(before)
    # A name that can be given by position only says nothing.
    for name in sorted({*now_positions[len(before.posonlyargs) :], *now_names} - _optional(now)):
        if name in optional:
            yield f"needs {name} now"
        elif name not in {*positions, *names}:
            yield f"needs {name}, which is new"
    if before.vararg is not None and now.vararg is None:
        yield f"does not take *{before.vararg.arg} any more"
    if before.kwarg is not None and now.kwarg is None:
        yield f"does not take **{before.kwarg.arg} any more"


def _by_position(arguments: ast.arguments) -> list[str]:
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]


def _by_name(arguments: ast.arguments) -> list[str]:
    return [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]


def _optional(arguments: ast.arguments) -> set[str]:
    by_position = _by_position(arguments)
    with_default = by_position[len(by_position) - len(arguments.defaults) :]
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {*with_default, *(each.arg for each, default in by_name if default is not None)}
