"""Parsing of toolsets on the command line: rules by server, and choices from a numbered list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

Rules = dict[str, Any]
"""What a toolset includes of each server: `True`, a list of tools, or `{"exclude": [tools]}`, as in the file."""
_RANGE = re.compile(r"(\d{1,6})\s*(?:-\s*(\d{1,6}))?")


def change(rules: Rules, *, include: Sequence[str] = (), exclude: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    """Change the rules of a toolset.

    Args:
        rules: The rules by server.
        include: Servers, or tools as `server:tool`, to add.
        exclude: Tools to leave out.
        remove: Servers to leave out.

    Raises:
        UsageError: A server to leave out is not in it, or what is excluded is not a tool.
    """
    for server in remove:
        if server not in rules:
            raise UnknownNameError("server of this toolset", server, rules)
        del rules[server]
    for text in include:
        server, _, tool = text.partition(":")
        match rules.get(server):
            case _ if not tool:
                rules[server] = True
            case {"exclude": excluded}:
                rules[server] = {"exclude": [name for name in excluded if name != tool]}
            case list(names):
                rules[server] = [*names, *([] if tool in names else [tool])]
            case True:
                pass
            case _:
                rules[server] = [tool]
    for text in exclude:
        server, _, tool = text.partition(":")
        if not tool:
            raise UsageError(f"{shown(text)} is not a tool.", hint="Name one as server:tool, or leave out a server: --remove.")
        match rules.get(server):
            case {"exclude": excluded}:
                rules[server] = {"exclude": [*excluded, *([] if tool in excluded else [tool])]}
            case list(names):
                rules[server] = [name for name in names if name != tool]
            case _:
                rules[server] = {"exclude": [tool]}


def chosen(text: str, names: Sequence[str]) -> list[str]:
    """Parse the names that a person has typed, by number, by range or by name.

    Args:
        text: Such as `1, 3-5, add`.
        names: All names; the first one has number 1.

    Raises:
        UsageError: A number or a name does not exist.
    """
    result: dict[str, None] = {}
    for word in filter(None, re.split(r"[,\s]+", re.sub(r"\s*-\s*(?=\d)", "-", text))):
        if (match := _RANGE.fullmatch(word)) and word not in names:
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= len(names):
                raise UsageError(f"There are numbers 1 to {len(names)}.")
            result.update(dict.fromkeys(names[first - 1 : last]))
        elif word in names:
            result[word] = None
        else:
            raise UnknownNameError("tool", word, names)
    return list(result)
