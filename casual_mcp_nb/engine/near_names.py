"""Find the tools that an unknown name may mean, by its spelling and by its words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from casual_mcp_nb.base.tool import Risk, ToolSpec
from casual_mcp_nb.errors import did_you_mean, shown

_MAX_MATCHES = 12
_NEAREST = 3
_LEAST_LIKENESS = 0.5
_LEAST_SPELLING = 0.6
_SAME_VERB = 0.3
_MAX_NAME = 200
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


def suggestion(name: str, tools: Sequence[ToolSpec]) -> str:
    """Suggest tools that an unknown name may mean: those whose name differs only in case and
    separators, or else those with the closest names.

    Empty if no name is near.
    """
    folded = _folded(name)
    matches = [tool for tool in tools if folded in _folded_names(tool)]
    if len(matches) == 1:
        return f"Did you mean {shown(matches[0].wire_name)}? Call it by exactly this name."
    near = harmless_first(matches) or nearest(name, tools)
    if not near:
        return ""
    return did_you_mean([tool.wire_name for tool in near[:_MAX_MATCHES]], ())


def nearest(name: str, tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Find the few tools whose names have the most in common with a name: the same words, the first
    above all.

    Destructive ones come last, and otherwise the best ones first.
    """
    asked = _words(name)
    scores = {tool: _likeness(asked, tool) for tool in tools}
    found = [tool for tool, score in scores.items() if score >= _LEAST_LIKENESS]
    found.sort(key=scores.__getitem__, reverse=True)
    return harmless_first(found[:_NEAREST])


def _likeness(asked: Sequence[str], tool: ToolSpec) -> float:
    """Compare a name's words with a tool's, from 0. Words of the tool's server do not count."""
    server = set(_words(tool.server))
    own = _words(tool.name)
    wanted = [word for word in asked if word not in server or word in own] or asked
    shared = len({*wanted} & {*own}) / max(1, len({*wanted} | {*own}))
    spelling = difflib.SequenceMatcher(None, "_".join(wanted), "_".join(own)).ratio()
    if not shared and spelling < _LEAST_SPELLING:
        return 0.0
    verb = _SAME_VERB if own and wanted[:1] == own[:1] else 0.0
    # Two names can share many letters and mean different things.
    return max(spelling - 0.2, 0.0) + shared + verb


def harmless_first(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Order tools so that a model that takes the first suggestion destroys nothing."""
    return sorted(tools, key=lambda tool: tool.risk is Risk.DESTRUCTIVE)


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORDS.findall(name[:_MAX_NAME])]


def _folded_names(tool: ToolSpec) -> set[str]:
    return {_folded(name) for name in (*tool.aliases, tool.wire_name)}


def _folded(name: str) -> str:
    return _SEPARATORS.sub("_", name.casefold()).strip("_")
