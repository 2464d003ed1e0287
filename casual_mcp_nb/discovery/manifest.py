"""Generate the manifest: the summary of deferred tools that the model reads."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import ToolSpec

_PLAIN_NAME = re.compile(r"[\w./:-]+(?: [\w./:-]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
_NO_MARKUP = str.maketrans("<>", "\u2039\u203a")
_SERVER_LINE = re.compile(r"^- (.+?) \((\d+) tools?\): ", re.MULTILINE)
_SERVER_IN_A_LINE = re.compile(r"(?:^|, )(?!\.\.\. and )([^,]+?) \((\d+)\)(?=, |\Z)")
_EDGES = " \t*_-`>"
_SHORTEST_LINE = 6
"""Minimum tokens of a server's line: if even that is too much for all servers, no detail level fits."""
_SMALL = 250
_GROWTH = 5.0


class _Detail(NamedTuple):
    """A level of detail: only the first `names` tools if there are more than `all_names`; and the summary's length."""

    all_names: int
    names: int
    summary: int


_FULL = _Detail(10, 4, 80)
_STEPS = (_FULL, _Detail(6, 4, 80), _Detail(4, 3, 60), _Detail(3, 2, 40), _Detail(3, 2, 0), _Detail(1, 1, 0))


def generate_manifest(
    deferred: Iterable[ToolSpec], max_tokens: int | None = None, instructions: Mapping[str, str] | None = None
) -> str:
    """List the deferred servers with their tool names and a summary, two lines each, in order of name.

    Args:
        deferred: The deferred tools.
        max_tokens: Maximum size in estimated tokens; None for no limit. Over it, all servers' lines shrink in steps: fewer
            names, shorter summaries, no summaries, and finally one line of servers with their number of tools, which ends with
            how many more there are.
        instructions: By server, what it says about its use: its beginning is the summary; without it, that is the first
            sentences of its tools.

    Returns:
        Lines such as `- time (2 tools): get_current_time, convert_time` and `  Get the current time.`; empty for no tools.
        Nothing in a tool's text can break out of its line, or close a tag around the manifest.
    """
    servers = _servers(deferred, instructions or {})
    if max_tokens is None:
        return _lines(servers, _FULL)
    for detail in _STEPS if _SHORTEST_LINE * len(servers) <= max_tokens else ():
        text = _lines(servers, detail)
        if estimate_tokens(text) <= max_tokens:
            return text
    return _one_line_of(servers, max_tokens, ": search by query")


def list_servers(deferred: Iterable[ToolSpec], max_tokens: int) -> str:
    """List the deferred servers with their number of tools in one line; empty for no tools.

    If it would exceed `max_tokens`, the servers with the fewest tools are only counted.
    """
    return _one_line_of(_servers(deferred, {}), max_tokens, "")


def servers_in(text: str) -> dict[str, int]:
    """Parse the servers in a text from `generate_manifest` or `list_servers`, with their number of tools."""
    return {name: int(count) for name, count in _SERVER_LINE.findall(text) or _SERVER_IN_A_LINE.findall(text)}


def manifest_budget(definition_tokens: int, max_tokens: int) -> int:
    """Compute the token budget of a manifest.

    It is at most `max_tokens`. Beyond a few servers it grows with the square root of the tokens that the manifest replaces, so
    that deferring more saves relatively more.

    Args:
        definition_tokens: Tokens of the deferred tools' definitions.
        max_tokens: Upper limit of the budget.
    """
    return min(max_tokens, max(_SMALL, int(_GROWTH * math.sqrt(definition_tokens))))


def plain_name(tool: ToolSpec) -> str:
    """Choose the bare name, or the wire name if the bare one could be misread."""
    return tool.name if len(tool.name) <= 64 and _PLAIN_NAME.fullmatch(tool.name) else tool.wire_name


def plain(text: str, limit: int) -> str:
    """Reduce `text` to one line of at most `limit` characters that cannot close a tag around it."""
    return one_line(text, limit).translate(_NO_MARKUP)


def summary(tools: Iterable[ToolSpec], limit: int) -> str:
    """Join the distinct first sentences of the tools, as many as fit in one line of `limit` characters."""
    sentences: dict[str, None] = {}
    for tool in tools:
        sentences[_first_sentence(tool.description)] = None
        if sum(map(len, sentences)) > limit:
            break
    return plain(" ".join(filter(None, sentences)), limit)


def beginning(instructions: str, limit: int) -> str:
    """Cut a server's instructions to one line of `limit` characters, without headings and markup."""
    lines = instructions[: limit * 20].splitlines()
    return plain(" ".join(line.strip(_EDGES) for line in lines if not line.lstrip().startswith(("#", "<"))), limit).strip()


def counted(number: int, unit: str = "tool") -> str:
    """Format a count with its unit: `1 tool`, `2 tools`."""
    return f"{number} {unit}{'' if number == 1 else 's'}"


class _ServerSummary:
    """A server's tools and the texts shared by all levels of detail."""

    def __init__(self, name: str, tools: Sequence[ToolSpec], instructions: str) -> None:
        self.name = plain(name, 200)
        self.count = len(tools)
        self._tools = tools
        self._instructions = instructions

    def lines(self, detail: _Detail) -> str:
        """Write the server's one or two lines."""
        shown = detail.names if self.count > detail.all_names else self.count
        names = ", ".join(self._names[:shown]) + (f", ... and {self.count - shown} more" if self.count > shown else "")
        line = f"- {self.name} ({counted(self.count)}): {names}"
        summary = plain(self._summary, detail.summary) if detail.summary else ""
        return f"{line}\n  {summary}" if summary else line

    @cached_property
    def _names(self) -> list[str]:
        return [plain_name(tool) for tool in self._tools[: _FULL.all_names]]

    @cached_property
    def _summary(self) -> str:
        return beginning(self._instructions, _FULL.summary) or summary(self._tools, _FULL.summary)


def _servers(tools: Iterable[ToolSpec], instructions: Mapping[str, str]) -> list[_ServerSummary]:
    """Group the tools by server, in order of name."""
    owned: dict[str, list[ToolSpec]] = defaultdict(list)
    for tool in tools:
        owned[tool.server].append(tool)
    return [_ServerSummary(name, owned[name], instructions.get(name, "")) for name in sorted(owned)]


def _lines(servers: Iterable[_ServerSummary], detail: _Detail) -> str:
    return "\n".join(server.lines(detail) for server in servers)


def _one_line_of(servers: Sequence[_ServerSummary], max_tokens: int, hint: str) -> str:
    largest = sorted(servers, key=lambda server: -server.count)

    def text(shown: int) -> str:
        named = sorted(f"{server.name} ({server.count})" for server in largest[:shown])
        left = largest[shown:]
        if left:
            more = f"... and {counted(len(left), 'more server')}" if named else counted(len(left), "server")
            named.append(f"{more} ({counted(sum(server.count for server in left))}){hint}")
        return ", ".join(named)

    fitting = bisect_right(range(1, len(servers) + 1), max_tokens, key=lambda shown: estimate_tokens(text(shown)))
    return text(fitting)


def _first_sentence(description: str) -> str:
    return " ".join(_SENTENCE_END.split(description.strip()[:400], maxsplit=1)[0].split())
