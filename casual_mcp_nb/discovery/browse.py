"""Browsing: the model looks through the tools by category, loads those it needs, and unloads them
again.

Categories are the servers, and the tags that servers give their tools. The active tools have limits
on their number and size, so that a long conversation does not end up with all tools. As with
search, the active tools follow from the conversation: loads minus unloads, in order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from casual_mcp_nb.base.iterables import by_name
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import ToolName, ToolSpec, tool_names
from casual_mcp_nb.conversation.event import BROWSE_TOOLKIT, LOAD_TOOLS, UNLOAD_TOOLS, SearchRow
from casual_mcp_nb.discovery.manifest import (
    beginning,
    compose,
    counted,
    list_servers,
    marked,
    plain,
    plain_name,
    servers_in,
    summary,
)
from casual_mcp_nb.discovery.search_tools import Finder, SearchArguments, read_browsing, read_names
from casual_mcp_nb.discovery.synthetic import (
    IN_CARDS,
    SyntheticTool,
    SyntheticToolResult,
    called_through,
    synthetic_spec,
)
from casual_mcp_nb.discovery.text import one_line
from casual_mcp_nb.errors import UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

Item = TypeVar("Item")

_PAGE = 50
_MATCHES = 10
_MAX_MATCHES = 500
"""How many matches to look through for those with a tag."""
_LINE = 100
_MAX_NOTES = 2_000
_ALIKE = 5
_CATEGORIES = "Categories, with how many tools each has: "
_LINE_OF_A_PAGE = re.compile(
    r"^- (?P<name>.+?)(?: \(\d+ tools?\))?(?P<loaded> \(loaded\))?(?:: (?P<summary>.*))?$",
    re.MULTILINE,
)
_PAGE_NUMBER = re.compile(r"^Page (\d+) of (\d+)\.\Z", re.MULTILINE)
_FULL = re.compile(r"; loaded before this call: (.+)\.\Z")
_NAMES = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Exact names, from browse_toolkit",
}
_BROWSED = {
    "category": {"type": "string", "description": "One of the categories"},
    "query": {"type": "string", "description": "What to do"},
    "page": {"type": "integer", "description": "From 1"},
}


class ActiveTools:
    """State shared by one turn's tools: the available and the active tools.

    `always` are always loaded, and do not count against the limits. There is always room for one
    tool. The first query calls `index`.
    """

    def __init__(
        self,
        deferred: Sequence[ToolSpec],
        max_active: int,
        max_tokens: int,
        loaded: Iterable[ToolName],
        always: Iterable[ToolSpec],
        delivery: Delivery = "definitions",
        index: Callable[[], ToolSearchIndex] | None = None,
        presented: Iterable[ToolName] = (),
    ) -> None:
        always = tuple(always)
        self._deferred = deferred
        self.finder = Finder(deferred, always, index, _ALIKE)
        self.max_active = max_active
        self.max_tokens = max_tokens
        self.always = tool_names(always)
        self.active = {name: None for name in loaded if name not in self.always}
        self.delivery = delivery
        # Through the bridge, a schema is only in a card, and those of earlier turns may not be sent
        # any more.
        self.presented = self.always.union(presented) if delivery in IN_CARDS else self.usable

    @property
    def usable(self) -> set[ToolName]:
        """The tools that the model can call."""
        return self.always | self.active.keys()

    @cached_property
    def tagged(self) -> Mapping[str, Sequence[ToolSpec]]:
        """The deferred tools by tag, in alphabetical order, without tags that are a server's
        name.
        """
        groups: dict[str, list[ToolSpec]] = defaultdict(list)
        for tool in self._deferred:
            for tag in tool.tags:
                groups[tag].append(tool)
        servers = {server.casefold() for server in self.finder.by_server}
        return {tag: groups[tag] for tag in sorted(groups) if tag.casefold() not in servers}

    def room(self, tools: Iterable[ToolSpec]) -> list[ToolSpec]:
        """List the tools for which there is room, in order."""
        active = [tool for tool in self._deferred if tool.tool_name in self.active]
        count = len(self.active)
        tokens = total_tokens(active)
        fitting = []
        for tool in tools:
            if count < self.max_active and (tokens + tool.tokens <= self.max_tokens or not count):
                fitting.append(tool)
                count += 1
                tokens += tool.tokens
        return fitting

    def by_names(self, args: object) -> tuple[list[ToolSpec], list[str]]:
        """Find tools by name, and report names that do not exist.

        Raises UsageError for no names, or invalid ones.
        """
        names, dropped = read_names(args)
        result = self.finder.by_names(SearchArguments(names=names, dropped=dropped), None)
        return list(result.tools), result.notes


class BrowseToolkitTool:
    """Lists the categories, or one category's tools. See `browse_tools`."""

    name = BROWSE_TOOLKIT

    def __init__(
        self, shelf: ActiveTools, categories: str, instructions: Mapping[str, str]
    ) -> None:
        self._shelf = shelf
        self._categories = categories
        self._instructions = instructions

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` with the categories, and
        `parameters`.
        """
        text = (
            "See what tools you can load: of a category, for a query, or all categories in short."
            f" {_CATEGORIES}{self._categories}"
        )
        return synthetic_spec(self.name, text, _BROWSED).definition

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """List categories or tools for `category`, `query` and `page`, all optional: at most fifty
        lines.

        Loads nothing.
        """
        try:
            category, query, page = read_browsing(args)
            if query:
                text = self._matching(query, category)
            elif category:
                text = self._tools(category, page)
            else:
                text = self._all(page)
        except UsageError as error:
            text = f"Error: {error}"
        return SyntheticToolResult(text, [], None)

    def _all(self, page: int) -> str:
        categories = [*sorted(self._shelf.finder.by_server.items()), *self._shelf.tagged.items()]
        lines = [self._category_line(*category) for category in _on_page(categories, page)]
        head = f"{len(categories)} categories; give one of them as category to see its tools."
        return _page(head, lines, page, len(categories))

    def _category_line(self, name: str, tools: Sequence[ToolSpec]) -> str:
        about = beginning(self._instructions.get(name, ""), _LINE) or summary(tools, _LINE)
        return f"- {plain(name, 200)} ({counted(len(tools))}): {about}"

    def _tools(self, category: str, page: int) -> str:
        name, tools = self._category(category)
        head = (
            f"{counted(len(tools))} of {plain(name, 200)}; load those that you need with"
            f" {LOAD_TOOLS}."
        )
        # Tools of a tag can have the same name on several servers.
        is_tag = name in self._shelf.tagged
        lines: list[str] = []
        for tool in _on_page(tools, page):
            lines.append(self._line(tool, tool.wire_name if is_tag else plain_name(tool)))
        return _page(head, lines, page, len(tools))

    def _category(self, category: str) -> tuple[str, Sequence[ToolSpec]]:
        """Find a category's name and tools."""
        for tag, tools in self._shelf.tagged.items():
            if tag.casefold() == category.casefold():
                return tag, tools
        server = self._shelf.finder.server(category)
        return server, self._shelf.finder.of(server)

    def _matching(self, query: str, category: str) -> str:
        """Find the tools that fit a query, in a category or in all of them."""
        finder = self._shelf.finder
        name, within = self._category(category) if category else ("", ())
        if name in self._shelf.tagged:
            matches = [tool for tool in finder.matches(query, _MAX_MATCHES) if tool in within]
            del matches[_MATCHES:]
        else:
            matches = finder.matches(query, _MATCHES, name or None)
        if not matches:
            return (
                f"No tools match {shown(query)}. Try other words, in {finder.language}, or give"
                " only a category."
            )
        head = (
            f"{counted(len(matches))} for {shown(query)}; load those that you need with"
            f" {LOAD_TOOLS}."
        )
        head = " ".join([head, *finder.language_note(query)])
        return _page(head, [self._line(tool, tool.wire_name) for tool in matches])

    def _line(self, tool: ToolSpec, name: str) -> str:
        loaded = " (loaded)" if tool.tool_name in self._shelf.usable else ""
        return f"- {name}{loaded}: {summary([tool], _LINE)}"


class LoadToolsTool:
    """Loads tools by name, up to a limit. See `browse_tools`."""

    name = LOAD_TOOLS

    def __init__(self, shelf: ActiveTools) -> None:
        self._shelf = shelf

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`."""
        through = called_through(self._shelf.delivery)
        text = (
            f"Load tools, to call them{through} from your next step on; at most"
            f" {self._shelf.max_active} are loaded at a time."
        )
        return synthetic_spec(self.name, text, {"names": _NAMES}, "names").definition

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Load the tools in `names`, with a card for each.

        The text mentions tools beyond the limit, which stay unloaded.
        """
        shelf = self._shelf
        try:
            tools, notes = shelf.by_names(args)
        except UsageError as error:
            return SyntheticToolResult(f"Error: {error}", [])
        unloaded = [tool for tool in tools if tool.tool_name not in shelf.usable]
        fitting = shelf.room(unloaded)
        beyond = set(unloaded).difference(fitting)
        if beyond:
            notes.append(self._limit_note(len(beyond), len(shelf.active) + len(fitting)))
        wanted = [tool for tool in tools if tool not in beyond]
        if not wanted:
            return SyntheticToolResult(f"Error: {one_line(' '.join(notes), _MAX_NOTES)}", [])
        presented = shelf.presented & shelf.usable
        content, inside = compose(
            wanted, shelf.usable, notes, delivery=shelf.delivery, presented=presented
        )
        new = [tool for tool in inside if tool.tool_name not in shelf.usable]
        rows = tuple(SearchRow(tool.tool_name, None, tool in new) for tool in inside)
        shelf.active.update(dict.fromkeys(tool.tool_name for tool in new))
        shelf.presented.update(tool_names(inside))
        return SyntheticToolResult(content, new, rows)

    def _limit_note(self, count: int, active_then: int) -> str:
        """Tell the model that `count` tools have no room, when `active_then` are active."""
        shelf = self._shelf
        limit = f"{shelf.max_tokens:,} tokens of definitions"
        if active_then == shelf.max_active:
            limit = str(shelf.max_active)
        active = ", ".join(one_line(str(name), 80) for name in shelf.active)
        return (
            f"{counted(count)} not loaded: at most {limit} can be loaded at a time. "
            f"Unload others first with {UNLOAD_TOOLS}; loaded before this call: {active or 'none'}."
        )


class UnloadToolsTool:
    """Unloads tools by name. See `browse_tools`."""

    name = UNLOAD_TOOLS

    def __init__(self, shelf: ActiveTools) -> None:
        self._shelf = shelf

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`."""
        text = f"Unload tools of {LOAD_TOOLS} that you no longer need."
        return synthetic_spec(self.name, text, {"names": _NAMES}, "names").definition

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Unload the tools in `names`.

        Those that are always loaded stay, and the text mentions it.
        """
        shelf = self._shelf
        try:
            tools, notes = shelf.by_names(args)
        except UsageError as error:
            return SyntheticToolResult(f"Error: {error}", [], None)
        gone = [tool for tool in tools if tool.tool_name in shelf.active]
        others = [tool for tool in tools if tool.tool_name not in shelf.active]
        for tool in others[:_ALIKE]:
            why = "is always there" if tool.tool_name in shelf.always else "was not loaded"
            notes.append(f"{one_line(str(tool.tool_name), 80)} {why}.")
        note = one_line(" ".join(notes), _MAX_NOTES)
        if not gone:
            return SyntheticToolResult(f"Error: nothing was unloaded. {note}", [], None)
        for tool in gone:
            del shelf.active[tool.tool_name]
        content = marked(f"Unloaded {counted(len(gone))}. {note}".rstrip(), gone)
        return SyntheticToolResult(content, [], (), tuple(gone))


def browse_tools(
    deferred: Sequence[ToolSpec],
    *,
    categories: str | None = None,
    index: Callable[[], ToolSearchIndex] | None = None,
    max_active_tools: int = 20,
    max_active_tokens: int = 20_000,
    loaded: Iterable[ToolName] = (),
    always: Iterable[ToolSpec] = (),
    delivery: Delivery = "definitions",
    instructions: Mapping[str, str] | None = None,
    presented: Iterable[ToolName] = (),
) -> dict[str, SyntheticTool]:
    """Create `browse_toolkit`, `load_tools` and `unload_tools` for one turn, by name.

    They know only the tools they are given.

    `categories` is a line as from `list_servers`, and `index` returns the deferred tools' index. By
    default, both are built when needed. For the others see `ActiveTools`.
    """
    shelf = ActiveTools(
        deferred, max_active_tools, max_active_tokens, loaded, always, delivery, index, presented
    )
    line = list_servers(deferred, _LINE * 10) if categories is None else categories
    tools: list[SyntheticTool] = [
        BrowseToolkitTool(shelf, line, instructions or {}),
        LoadToolsTool(shelf),
        UnloadToolsTool(shelf),
    ]
    return by_name(tools)


class BrowseLine(NamedTuple):
    """One line in an answer by `browse_toolkit`: a category, or a tool that the model may already
    have loaded.
    """

    name: str
    summary: str
    loaded: bool


def lines_in(content: str) -> tuple[list[BrowseLine], bool]:
    """Parse an answer by `browse_toolkit`: its lines, and whether another page follows."""
    lines = []
    for line in _LINE_OF_A_PAGE.finditer(content):
        lines.append(BrowseLine(line["name"], line["summary"] or "", line["loaded"] is not None))
    number = _PAGE_NUMBER.search(content)
    return lines, number is not None and number[1] != number[2]


def categories_in(description: str) -> dict[str, int]:
    """Parse the categories in `browse_toolkit`'s description, with their tool counts."""
    return servers_in(description.partition(_CATEGORIES)[2])


def to_unload(content: str) -> list[str]:
    """Parse the tools that an answer by `load_tools` lists as loaded when there was no room, or
    empty if there was.
    """
    full = _FULL.search(content)
    if not full or full[1] == "none":
        return []
    return full[1].split(", ")


def _on_page(items: Sequence[Item], page: int) -> Sequence[Item]:
    """Take the items of a page, which is the nearest one if there is no such page."""
    page = min(max(page, 1), _pages(len(items)))
    return items[(page - 1) * _PAGE : page * _PAGE]


def _pages(count: int) -> int:
    return max(1, -(-count // _PAGE))


def _page(head: str, lines: Iterable[str], page: int = 1, count: int = 0) -> str:
    """Write a page of the lines for `count` items."""
    text = [head, *(line.rstrip(": ") for line in lines)]
    pages = _pages(count)
    if pages > 1:
        text.append(f"Page {min(max(page, 1), pages)} of {pages}.")
    return "\n".join(text)
