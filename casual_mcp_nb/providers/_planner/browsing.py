"""How the planner comes to tools where they are found by browsing: it opens likely categories and loads what fits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from casual_mcp_nb.discovery.synthetic import BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS
from casual_mcp_nb.providers._planner.history import Made
from casual_mcp_nb.providers._planner.needs import Need
from casual_mcp_nb.types.tool import ToolSpec

BROWSING = (BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS)
_MAX_PAGES = 5
_MAX_CATEGORIES = 5
_MAX_LOADED = 3
_LEAST = 0.5
"""Which part of the best tool's score another one of the category must have to be loaded with it."""
_LINE = re.compile(r"^- (?P<name>.+?)(?: \(\d+ tools?\))?(?P<loaded> \(loaded\))?(?:: (?P<said>.*))?$", re.M)
_PAGE = re.compile(r"^Page (\d+) of (\d+)\.$", re.M)
_FULL = re.compile(r"loaded before this call: (.+?)\.(?:\s|$)")

_CATEGORIES = re.compile(r": ([^:]*)\Z")
_CATEGORY = re.compile(r"(?:^|, )([^,]+?) \((\d+)\)")

Call = tuple[str, dict[str, Any]]


class Browsing:
    """What was browsed since the request, and what to look at next.

    Args:
        made: The calls since the request.
    """

    def __init__(self, made: Sequence[Made]) -> None:
        self._made = [one for one in made if one.name in BROWSING]

    def next_call(self, need: Need) -> Call | None:
        """The next call on the way to tools for a need: name and arguments; None where all likely ones are loaded."""
        categories: list[re.Match[str]] = []
        for page in range(1, _MAX_PAGES + 1):
            arguments = {"page": page} if page > 1 else {}
            text = self._read(arguments)
            if text is None:
                return BROWSE_TOOLKIT, arguments
            categories += _LINE.finditer(text)
            more = _PAGE.search(text)
            if more is None or more[1] == more[2] or _ranked(need, categories):
                break
        likely = dict.fromkeys([*_ranked(need, categories), *(line["name"] for line in categories)])
        for category in list(likely)[:_MAX_CATEGORIES]:
            text = self._read({"category": category})
            if text is None:
                return BROWSE_TOOLKIT, {"category": category}
            names = _ranked(need, [line for line in _LINE.finditer(text) if not line["loaded"]])[:_MAX_LOADED]
            step = self._load(names) if names else None
            if step is not None:
                return step
        return None

    def _read(self, arguments: Mapping[str, Any]) -> str | None:
        read = (one.result for one in self._made if one.name == BROWSE_TOOLKIT and one.arguments == arguments)
        return next(read, None)

    def _load(self, names: Sequence[str]) -> Call | None:
        """Load tools; where there is no room, unload those of before and try once more with the best one."""
        tried = [place for place, one in enumerate(self._made) if one.name == LOAD_TOOLS and names[0] in one.arguments["names"]]
        if not tried:
            return LOAD_TOOLS, {"names": list(names)}
        last = self._made[tried[-1]]
        full = _FULL.search(last.result) if last.failed and len(tried) == 1 else None
        if full is None or full[1] == "none":
            return None
        if any(one.name == UNLOAD_TOOLS for one in self._made[tried[-1] :]):
            return LOAD_TOOLS, {"names": [names[0]]}
        return UNLOAD_TOOLS, {"names": full[1].split(", ")}


def categories_in(description: str) -> list[tuple[str, str]]:
    """The categories that the browsing tool's description names, each with its number of tools."""
    listed = _CATEGORIES.search(description)
    return _CATEGORY.findall(listed[1]) if listed else []


def _ranked(need: Need, lines: Sequence[re.Match[str]]) -> list[str]:
    """The names in lines that fit a need, the best first, without those that fit far less."""
    from casual_mcp_nb.discovery.index import ToolSearchIndex

    hits = ToolSearchIndex(ToolSpec("", line["name"], line["said"] or "") for line in lines).search(need.query, 10)
    return [hit.tool.name for hit in hits if hit.score >= _LEAST * hits[0].score]
