"""What the model reads about tools that it cannot see yet."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.types.tool import ToolSpec

_ALL_NAMES = 10
_FIRST_NAMES = 4
_SUMMARY = 80
_PLAIN_NAME = re.compile(r"[\w./:-]+(?: [\w./:-]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
_NO_MARKUP = str.maketrans("<>", "\u2039\u203a")


def generate_manifest(deferred: Iterable[ToolSpec]) -> str:
    """The deferred servers with the names of their tools and a summary, two lines for each, in order of name.

    Args:
        deferred: The tools that are found by search.

    Returns:
        Lines such as `- time (2 tools): get_current_time, convert_time` and `  Get the current time.`; empty for no tools.
        Nothing in a tool's text can end the line that it stands in, nor a tag around the manifest.
    """
    owned: dict[str, list[ToolSpec]] = defaultdict(list)
    for tool in deferred:
        owned[tool.server].append(tool)
    lines = []
    for server in sorted(owned):
        tools = owned[server]
        count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
        lines.append(f"- {_plain(server, 200)} ({count}): {_names(tools)}")
        summary = _summary(tools)
        if summary:
            lines.append(f"  {summary}")
    return "\n".join(lines)


def _names(tools: Sequence[ToolSpec]) -> str:
    if len(tools) <= _ALL_NAMES:
        return ", ".join(map(_name, tools))
    return f"{', '.join(map(_name, tools[:_FIRST_NAMES]))}, ... and {len(tools) - _FIRST_NAMES} more"


def _name(tool: ToolSpec) -> str:
    """The bare name; the one on the wire where the bare one could be read as something else than one name."""
    return tool.name if len(tool.name) <= 64 and _PLAIN_NAME.fullmatch(tool.name) else tool.wire_name


def _summary(tools: Sequence[ToolSpec]) -> str:
    """The tools' first sentences, each once, as far as they fit into one short line."""
    sentences: dict[str, None] = {}
    for tool in tools:
        sentences[_first_sentence(tool.description)] = None
        if sum(map(len, sentences)) > _SUMMARY:
            break
    return _plain(" ".join(filter(None, sentences)), _SUMMARY)


def _first_sentence(description: str) -> str:
    return " ".join(_SENTENCE_END.split(description.strip()[:400], maxsplit=1)[0].split())


def _plain(text: str, limit: int) -> str:
    return one_line(text, limit).translate(_NO_MARKUP)
