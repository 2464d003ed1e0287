"""The search, by words and, with an embedding model, by meaning; and the tool with which the model
searches and loads.
"""

from __future__ import annotations

import copy
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.mcp import Skill
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.search import Explanation, RankedBy, SearchHit, SearchResults
from casual_mcp_nb.base.tool import (
    Catalog,
    ToolCatalog,
    ToolName,
    ToolSpec,
    by_server,
    by_wire_name,
    full_names,
    of_server,
    tool_names,
)
from casual_mcp_nb.conversation.event import SEARCH_TOOLS, SearchRow
from casual_mcp_nb.discovery.languages import is_foreign, languages
from casual_mcp_nb.discovery.manifest import SIBLINGS_EACH, Siblings, compose, generate_manifest
from casual_mcp_nb.discovery.synthetic import (
    IN_CARDS,
    SyntheticToolResult,
    called_through,
    find_skills,
    skill_cards,
    skill_spec,
    synthetic_spec,
)
from casual_mcp_nb.discovery.text import one_line, words_found
from casual_mcp_nb.errors import UnknownNameError, UsageError, closest, did_you_mean, shown

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.past_questions import PastQuestion
    from casual_mcp_nb.discovery._engine import Engine
    from casual_mcp_nb.discovery.meaning import Meaning


MAX_NAMES = 100
_MAX_QUERY = 1_000
_MAX_NAME = 200
_MAX_ITEMS = 10_000
_NO_SERVER = ("null", "none")
_WANTED = {
    "query": "a text",
    "server_name": "the name of one server",
    "tool_names": "a list of tool names",
    "names": "a list of tool names",
    "category": "the name of one category",
    "page": "a number",
}
_QUOTES = " \t\r\n`'\""


@dataclass(frozen=True)
class SearchArguments:
    """One search's arguments, empty if not given. `dropped` counts the names beyond the limit."""

    query: str = ""
    server: str = ""
    names: tuple[str, ...] = ()
    dropped: int = 0


def read_arguments(args: object) -> SearchArguments:
    """Parse a search's arguments, whatever the model sent.

    A UsageError explains the mistake, or that all are missing.
    """
    given = args if isinstance(args, Mapping) else {}
    names = _names(given.get("tool_names"))
    arguments = SearchArguments(
        _query(given.get("query")),
        _server(given.get("server_name")),
        tuple(names[:MAX_NAMES]),
        len(names[MAX_NAMES:]),
    )
    if arguments == SearchArguments():
        text = "Give at least one of query, server_name and tool_names."
        known = ("query", "server_name", "tool_names")
        if unknown := [shown(str(key)) for key in given if key not in known]:
            text += f" There is no argument {' or '.join(unknown[:5])}."
        raise UsageError(text, hint='For example: {"query": "convert a time between time zones"}.')
    return arguments


def query_in(args: Mapping[str, Any]) -> str:
    """Parse the query in arguments for searching or browsing, empty if there is none, or an
    unreadable one.
    """
    try:
        return _query(args.get("query"))
    except UsageError:
        return ""


def read_names(args: object) -> tuple[tuple[str, ...], int]:
    """Parse the names for a tool that takes only names, and count those beyond the limit.

    A UsageError tells the model.
    """
    names = _names(_first_given(args, "names", "tool_names", "tools", "name"), "names")
    if not names:
        raise UsageError("Give names.", hint='For example: {"names": ["get_current_time"]}.')
    return tuple(names[:MAX_NAMES]), len(names[MAX_NAMES:])


def read_browsing(args: object) -> tuple[str, str, int]:
    """Parse the category, the query and the page to show. A UsageError tells the model.

    They default to empty strings and 1.
    """
    category = _server(_first_given(args, "category", "server_name", "server"), "category")
    page = _text("page", _first_given(args, "page")) or "1"
    if not page.isdecimal():
        raise UsageError("page must be a whole number.")
    return category, _query(_first_given(args, "query")), int(page[:9])


def _first_given(args: object, *keys: str) -> Any:
    if isinstance(args, Mapping):
        for key in keys:
            if args.get(key):
                return args[key]
    return None


def _query(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = " ".join(_text("query", item) for item in value[:50])
    return _text("query", value)[:_MAX_QUERY]


def _server(value: Any, key: str = "server_name") -> str:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    name = _text(key, value).strip(_QUOTES)[:_MAX_NAME]
    if name.casefold() in _NO_SERVER:
        return ""
    return name


def _names(value: Any, key: str = "tool_names") -> list[str]:
    """Parse names, each once."""
    items = _listed(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        items = [items]
    names: dict[str, None] = {}
    for item in items[:_MAX_ITEMS]:
        if name := _text(key, item).strip(_QUOTES)[:_MAX_NAME]:
            names[name] = None
    return list(names)


def _listed(text: str) -> list[Any]:
    """Parse names sent as a string instead of a list: JSON, or separated by commas."""
    text = text.strip()[: MAX_NAMES * _MAX_NAME]
    if text.startswith("["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, list):
            return items
    return text.strip("[]").replace("\n", ",").split(",")


def _text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return str(value)
    raise UsageError(f"{key} must be {_WANTED[key]}, not {_kind(value)}.")


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return {bool: "true or false", list: "a list", tuple: "a list"}.get(type(value), "such a value")


_MAX_UNKNOWN = 3


@dataclass
class FoundTools:
    """A search's result.

    `filled` tools did not match and belong to the best match's server. `siblings` are the other
    tools of the matches' servers that are not loaded. Other tools replace the `stepped_back`
    matches, which the model saw before and did not use. `skills` are best first.
    """

    tools: dict[ToolSpec, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    filled: Set[ToolSpec] = frozenset()
    siblings: Mapping[str, Siblings] = field(default_factory=dict)
    stepped_back: Mapping[ToolSpec, float] = field(default_factory=dict)
    skills: Sequence[Skill] = ()


class Finder:
    """Looks up tools, only those passed to it. Builds nothing until needed.

    Those that are `always` loaded are found by name and by server, not by query. `limit` is for one
    query, and for one name. The `skills` are in the index with the tools.
    """

    def __init__(
        self,
        deferred: ToolCatalog | Sequence[ToolSpec],
        always: Sequence[ToolSpec],
        index: Callable[[], ToolSearchIndex] | None,
        limit: int,
        skills: Sequence[Skill] = (),
    ) -> None:
        self._skills = {skill_spec(skill).tool_name: skill for skill in skills}
        self._deferred = deferred
        self._always = always
        self._given_index = index
        self._limit = limit

    def find(
        self,
        request: SearchArguments,
        loaded: Set[ToolName] = frozenset(),
        unused: Set[ToolName] = frozenset(),
    ) -> FoundTools:
        """Find the tools for a model's request, and report names that do not exist.

        A search can find those already `loaded`, but does not suggest them. `unused` ones, which
        the model has not called, step back behind others, unless the query has their name.
        """
        server = self.server(request.server) if request.server else None
        result = self.by_names(request, server) if request.names else FoundTools()
        if result.tools or result.skills:
            return result
        if request.names and not request.query:
            return FoundTools(notes=[*result.notes, "You can search with a query instead."])
        if server is not None and (not request.query or server not in self._servers):
            skills = of_server(self._skills.values(), server)
            return FoundTools(dict.fromkeys(self.of(server)), result.notes, skills=skills)
        by_query = self._by_query(request.query, server, loaded, unused)
        by_query.notes = result.notes + by_query.notes
        return by_query

    @cached_property
    def _index(self) -> ToolSearchIndex:
        if self._given_index is not None:
            return self._given_index()
        if not self._skills:
            return ToolSearchIndex(self._deferred)
        return ToolSearchIndex((*self._deferred, *map(skill_spec, self._skills.values())))

    @cached_property
    def _names(self) -> ToolNames:
        return ToolNames((*self._deferred, *self._always))

    @cached_property
    def _servers(self) -> list[str]:
        return sorted({*self.by_server, *(name.server for name in self._skills)})

    @cached_property
    def by_server(self) -> Mapping[str, Sequence[ToolSpec]]:
        """The deferred tools by server."""
        return by_server(self._deferred)

    def _by_query(
        self, query: str, server: str | None, loaded: Set[ToolName], unused: Set[ToolName]
    ) -> FoundTools:
        hits = self._index.search(query, self._limit + len(unused), server)
        if not hits:
            return FoundTools(notes=[self._nothing_found(query, server)])
        skills: list[Skill] = []
        for hit in hits[: self._limit]:
            if hit.tool.tool_name in self._skills:
                skills.append(self._skills[hit.tool.tool_name])
        if skills:
            hits = [hit for hit in hits if hit.tool.tool_name not in self._skills]
            if not hits:
                return FoundTools(notes=self.language_note(query), skills=skills)
        if self._skills:
            # None of them is a tool that could be loaded.
            loaded = loaded | self._skills.keys()
        called = self._index.called(query) if unused else ()
        room = max(1, self._limit - len(skills))
        tools: dict[ToolSpec, float | None] = {}
        stepped_back: dict[ToolSpec, float] = {}
        for place, hit in enumerate(hits):
            if hit.tool.tool_name not in unused or hit.tool in called:
                if len(tools) < room:
                    tools[hit.tool] = hit.score
            elif place < self._limit:
                stepped_back[hit.tool] = hit.score
        others = self._other_tools(hits[0].tool.server, tools, loaded)
        filled = tuple(islice(others, max(0, room - len(tools))))
        tools.update(dict.fromkeys(filled))
        if not tools:
            tools, stepped_back = {**stepped_back}, {}
        siblings: dict[str, Siblings] = {}
        for tool in (*tools, *stepped_back):
            name = tool.server
            if name not in siblings:
                siblings[name] = self._siblings(query, server, name, tools, loaded)
        notes = [*_loaded_note(stepped_back), *self.language_note(query)]
        return FoundTools(tools, notes, frozenset(filled), siblings, stepped_back, skills)

    def _nothing_found(self, query: str, server: str | None) -> str:
        where = f" on server {shown(server)}" if server is not None else ""
        hint = (
            f"Try other words, in {self.language}, or give server_name alone to load all tools of a"
            " server:"
        )
        return f"No tools found matching {shown(query)}{where}. {hint} {self._server_list()}."

    @property
    def language(self) -> str:
        """The language to search in, in words."""
        return " or ".join(self._index.languages) or "the language of the descriptions"

    def matches(self, query: str, count: int, server: str | None = None) -> list[ToolSpec]:
        """Find the tools that match a query, best first."""
        return [hit.tool for hit in self._index.search(query, count, server)]

    def ranked_by(self, query: str) -> RankedBy:
        """Find out what the search for a query ranks by."""
        return self._index.ranked_by(query) if query else "words"

    def language_note(self, query: str) -> list[str]:
        """Suggest the language to search in, if the query seems to be in another one."""
        if not self._index.other_language(query):
            return []
        languages = " and ".join(self._index.languages) or "another language"
        return [
            f"The descriptions are in {languages}, your query is not: search again in their"
            " language for better matches."
        ]

    def _other_tools(
        self, server: str, tools: Mapping[ToolSpec, object], loaded: Set[ToolName]
    ) -> Iterator[ToolSpec]:
        """Yield a server's tools that are neither among `tools` nor loaded, in order."""
        for tool in self._index.by_server.get(server, ()):
            if tool not in tools and tool.tool_name not in loaded:
                yield tool

    def _siblings(
        self,
        query: str,
        searched: str | None,
        server: str,
        tools: Mapping[ToolSpec, object],
        loaded: Set[ToolName],
    ) -> Siblings:
        """List a server's other tools.

        If there are too many to name, those closest to the query.
        """
        gone = {tool.tool_name for tool in tools if tool.server == server}
        gone.update(name for name in loaded if name.server == server and name in self._index)
        count = len(self._index.by_server[server]) - len(gone)
        if count > SIBLINGS_EACH:
            near = self._index.nearest(query, server, len(gone) + SIBLINGS_EACH, searched)
            named = [tool for tool in near if tool.tool_name not in gone]
            more = self._other_tools(server, dict.fromkeys((*tools, *named)), loaded)
            return Siblings(tuple(islice(chain(named, more), SIBLINGS_EACH)), count)
        return Siblings(tuple(self._other_tools(server, tools, loaded)), count)

    def by_names(self, request: SearchArguments, server: str | None) -> FoundTools:
        """Find tools by name, on one server or on all.

        A name shared by too many tools finds none.
        """
        result = FoundTools()
        unknown = []
        skills: list[Skill] = []
        for name in request.names:
            if self._skills and (named := find_skills(self._skills.values(), name)):
                for skill in named:
                    if skill not in skills and server in (None, skill.server):
                        skills.append(skill)
                continue
            tools = self._names.find(name, server)
            if not tools:
                unknown.append(name)
            if len(tools) > 1:
                result.notes.append(self._shared_name(name, tools))
            if len(tools) <= self._limit:
                result.tools.update(dict.fromkeys(tools))
        for name in unknown[:_MAX_UNKNOWN]:
            result.notes.append(self._unknown_name(name, server))
        if len(unknown) > _MAX_UNKNOWN:
            result.notes.append(f"{len(unknown) - _MAX_UNKNOWN} more of the names are unknown.")
        if request.dropped:
            result.notes.append(
                f"Only the first {len(request.names)} names were looked up, {request.dropped} were"
                " not."
            )
        result.skills = skills[: self._limit]
        return result

    def _shared_name(self, name: str, tools: Sequence[ToolSpec]) -> str:
        listed = _listing(full_names(tools))
        text = f"{shown(name)} can mean several tools: {listed}."
        if len(tools) > self._limit:
            return f"{text} Give server_name too."
        return f"{text} All of them were looked up; choose by server."

    def _unknown_name(self, name: str, server: str | None) -> str:
        text = f"Unknown tool {shown(name)}"
        if server is not None:
            text += f" on server {shown(server)}"
            elsewhere = dict.fromkeys(tool.server for tool in self._names.find(name))
            if elsewhere:
                return f"{text}; it is a tool of server {_listing(elsewhere)}."
        matches = self._names.like(name, server)
        if matches:
            return f"{text}. {did_you_mean(matches, ())}"
        return f"{text}."

    def server(self, name: str) -> str:
        """Resolve the server that the model named. A UsageError lists the valid ones."""
        servers = dict.fromkeys([*self._servers, *(tool.server for tool in self._always)])
        if name in servers:
            return name
        folded: list[str] = []
        for server in servers:
            if name.casefold() in (server.casefold(), one_line(server, 200).casefold()):
                folded.append(server)
        if len(folded) == 1:
            return folded[0]
        matches = closest(name, self._servers)
        hint = f"{did_you_mean(matches, ())} " if matches else ""
        raise UsageError(
            f"Unknown server {shown(name)}. {hint}The servers are: {self._server_list()}."
        )

    def _server_list(self) -> str:
        return _listing(self._servers) or "none"

    def of(self, server: str) -> list[ToolSpec]:
        """List all tools on a server, deferred ones first."""
        return [*self.by_server.get(server, ()), *of_server(self._always, server)]


def _loaded_note(tools: Iterable[ToolSpec]) -> list[str]:
    names = _listing(tool.wire_name for tool in tools)
    if not names:
        return []
    return [f"Loaded before and matching too: {names}."]


def _listing(names: Iterable[str], limit: int = 30) -> str:
    names = list(names)
    texts = [one_line(name, 80) for name in names[:limit]]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(texts)}{more}"


class ToolNames:
    """Tools by each of their names. The server comes from the tool, never from parsing a name."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        self._by_wire_name = by_wire_name(tools)
        self._by_folded: dict[str, list[ToolSpec]] = defaultdict(list)
        for tool in tools:
            for name in {alias.casefold() for alias in (*tool.aliases, tool.wire_name)}:
                self._by_folded[name].append(tool)

    def find(self, name: str, server: str | None = None) -> list[ToolSpec]:
        """Find all tools that a name can mean, on one server or on all.

        A wire name takes precedence. Otherwise every server with a tool by that name counts, with
        an exact match first within a server. Case matters only where it makes a difference.
        """
        tool = self._by_wire_name.get(name)
        if tool is not None and server in (None, tool.server):
            return [tool]
        matches = self._by_folded.get(name.casefold(), [])
        if server is not None:
            matches = of_server(matches, server)
        matches = [tool for tool in matches if name in tool.aliases] or matches
        bare = {tool.server for tool in matches if tool.name == name}
        return [tool for tool in matches if tool.name == name or tool.server not in bare]

    def like(self, name: str, server: str | None = None) -> list[str]:
        """Find the names closest to one that does not exist, on one server or on all."""
        tools = [tool for tool in self._tools if server in (None, tool.server)]
        names = [tool.name for tool in tools]
        return closest(name, names) or closest(name, [tool.wire_name for tool in tools])


_DESCRIPTION = """\
Load tools that you do not have yet, to call them{through} from your next step on. Give at least one parameter.
<manifest>
{manifest}
</manifest>"""

_MANIFEST = re.compile(r"<manifest>\n(.*)\n</manifest>\Z", re.DOTALL)

_PROPERTIES: Mapping[str, Mapping[str, Any]] = {
    "query": {"type": "string", "description": "What to do, in the language of the manifest"},
    "server_name": {"type": "string", "description": "All its tools; with query, those that fit"},
    "tool_names": {"type": "array", "items": {"type": "string"}, "description": "Exact names"},
}


def manifest_in(description: str) -> str | None:
    """Extract the manifest from a search tool's description, or None if it is not one."""
    manifest = _MANIFEST.search(description)
    if manifest is None:
        return None
    return manifest[1]


class SearchToolsTool:
    """Finds deferred tools for one turn, only among those passed to it, and records the loaded
    ones.

    The first query calls `index`. If not given, the index and the manifest are built. There is
    always room for one tool, whatever its size. Loaded tools that are not among the `used` ones,
    which may grow, step back in later searches. With `bridge`, the model can still read the schemas
    of those `presented`. It finds `skills` too, which are not loaded but read.
    """

    name = SEARCH_TOOLS

    def __init__(
        self,
        deferred: ToolCatalog | Sequence[ToolSpec],
        *,
        index: Callable[[], ToolSearchIndex] | None = None,
        manifest: str | None = None,
        max_search_results: int = 5,
        max_search_tokens: int = 20_000,
        loaded: Iterable[ToolName] = (),
        used: Set[ToolName] = frozenset(),
        always: Iterable[ToolSpec] = (),
        delivery: Delivery = "definitions",
        presented: Iterable[ToolName] = (),
        skills: Sequence[Skill] = (),
    ) -> None:
        self._deferred = deferred
        self._given_manifest = manifest
        always = tuple(always)
        self._finder = Finder(deferred, always, index, max_search_results, skills)
        self._always = always
        self._loaded = set(loaded)
        self._max_tokens = max_search_tokens
        self._used = used
        self._delivery = delivery
        # Through the bridge, a schema is only in a card, and those of earlier turns may not be sent
        # any more.
        self._presented = set(presented) if delivery in IN_CARDS else self._loaded

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` with the manifest between its
        tags, and `parameters`.
        """
        through = called_through(self._delivery)
        text = _DESCRIPTION.format(manifest=self._manifest, through=through)
        return synthetic_spec(self.name, text, _PROPERTIES).definition

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Search the deferred tools by `query`, `server_name` and `tool_names`, as the model sent
        them.

        The text has at most 12,000 characters. For invalid arguments, it explains the mistake.
        """
        # Built only now: most turns do not search, and there can be thousands of tools.
        always = tool_names(self._always)
        self._loaded |= always
        self._presented |= always
        unused = (self._loaded & self._presented) - always - self._used
        try:
            wanted = read_arguments(args)
            result = self._finder.find(wanted, self._loaded, unused)
        except UsageError as error:
            return SyntheticToolResult(f"Error: {error}", [])
        skills = skill_cards(result.skills)
        named = tuple(ToolName(skill.server, skill.name) for skill in result.skills)
        if not result.tools:
            notes = one_line(" ".join(result.notes), 2_000)
            return SyntheticToolResult("\n\n".join(filter(None, [notes, skills])), [], skills=named)
        content, inside = compose(
            tuple(result.tools),
            self._loaded,
            result.notes,
            filled=result.filled,
            siblings=result.siblings,
            delivery=self._delivery,
            presented=self._presented,
            max_tokens=self._max_tokens,
        )
        new = [tool for tool in inside if tool.tool_name not in self._loaded]
        scores = {**result.tools, **result.stepped_back}
        returned = (*inside, *result.stepped_back)
        ranked = [tool for tool in returned if scores[tool]]
        words = dict(zip(ranked, words_found(wanted.query, ranked), strict=True))
        rows: list[SearchRow] = []
        for tool in returned:
            is_new, is_filled = tool.tool_name not in self._loaded, tool in result.filled
            found_words = words.get(tool, ())
            rows.append(SearchRow(tool.tool_name, scores[tool], is_new, is_filled, found_words))
        # With most deliveries, `_presented` is the same set.
        self._loaded.update(tool_names(new))
        self._presented.update(tool_names(inside))
        if skills:
            content = f"{content}\n\n{skills}"
        ranked_by = self._finder.ranked_by(wanted.query)
        return SyntheticToolResult(content, new, tuple(rows), ranked_by=ranked_by, skills=named)

    @cached_property
    def _manifest(self) -> str:
        if self._given_manifest is None:
            return generate_manifest(self._deferred)
        return self._given_manifest


_MAX_SHARE = 0.5
"""A query that looks like another language counts as one only if tools have at most this share of
its words.
"""
_SAMPLE = 100
"""How many descriptions to check for their language."""


class ToolSearchIndex:
    """Ranks tools by a query's words: BM25 over their names, servers, descriptions and parameters.

    Tools that the query mentions by name come first. If a request has several clauses, each counts
    separately. A tool gains if its server is about the request, and loses if it duplicates a better
    one. Ties are ordered by wire name. A tool without any query term or synonym is not returned.
    Results are deterministic.

    Args:
        tools: The tools. The first counts if two have the same server and name. The index has only
            the beginning of long texts.
        embed: Returns an array with one row for each text, such as a provider's embeddings.
            Similarity adds to the score: the closest tool gets three tenths of the best score by
            words, a tool with average similarity or less gets nothing. Called for all tools here,
            in batches, and once per search. If it fails, only words count, with a warning in the
            log. Or a session's `Meaning`, which works in the background: `prepare` a query before
            searching.
    """

    def __init__(
        self,
        tools: Iterable[ToolSpec],
        *,
        embed: Callable[[list[str]], Any] | Meaning | None = None,
    ) -> None:
        unique: dict[tuple[str, str], ToolSpec] = {}
        for tool in tools:
            unique.setdefault((tool.server, tool.name), tool)
        self.tools: tuple[ToolSpec, ...] = tuple(unique.values())
        self._engine = _engine(self.tools, embed) if self.tools else None
        self._past: tuple[Sequence[PastQuestion], ToolSearchIndex] | None = None

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        return self._engine is not None and self._engine.has(name)

    def __repr__(self) -> str:
        return f"<ToolSearchIndex: {len(self)} tools>"

    def search(
        self, query: str, max_results: int = 5, server: str | None = None
    ) -> list[SearchHit]:
        """Find the best tools for a query.

        Args:
            query: The search, in words or as a name. Only its first 8,000 characters count.
            max_results: Maximum number of tools.
            server: Return only this server's tools.

        Returns:
            The hits, best first, all with a score above 0. Possibly fewer than `max_results`, or
            none.
        """
        if self._engine is None or max_results < 1:
            return []
        hits: list[SearchHit] = []
        for tool, score in self._engine.ranked(query, server, max_results):
            explain = partial(self.explain, query, tool, max_results, server)
            hits.append(SearchHit(tool, score, len(hits) + 1, explain))
        return hits

    def with_past(self, questions: Sequence[PastQuestion]) -> ToolSearchIndex:
        """Copy the index, so that tools gain by past questions after which they were called.

        Args:
            questions: The questions. If empty, returns this index. For the same sequence, returns
                the same copy.
        """
        if self._engine is None or not questions:
            return self
        if self._past is None or self._past[0] is not questions:
            other = copy.copy(self)
            other._past = None
            other._engine = self._engine.learned(questions)
            self._past = questions, other
        return self._past[1]

    async def prepare(self, query: str) -> None:
        """Get ready to search by meaning too.

        Waits for a session's embedding model, but not long.
        """
        meaning = self._engine.meaning if self._engine else None
        prepare = getattr(meaning.vectors, "prepare", None) if meaning else None
        if prepare is not None:
            await prepare(query)

    def nearest_in_meaning(self, query: str) -> dict[str, float]:
        """Find the tools that a search ranks higher by their meaning: how much, from 0 to 1, by
        wire name.

        Empty where searches rank by words.
        """
        if self._engine is None:
            return {}
        return self._engine.nearest(query)

    def recall(self, query: str, nearest: Mapping[str, float]) -> None:
        """Search for a query with these recorded results from `nearest_in_meaning`.

        Embeds nothing.
        """
        if self._engine:
            self._engine.recall(query, nearest)

    def ranked_by(self, query: str) -> RankedBy:
        """Find out whether a search ranks by words only, or by meaning and past questions too."""
        learned = self._engine is not None and self._engine.has_learned(query)
        if self.nearest_in_meaning(query):
            return "words, meaning and past questions" if learned else "words and meaning"
        return "words and past questions" if learned else "words"

    def other_language(self, query: str) -> bool:
        """Check whether a query seems to be in another language than the descriptions.

        Then tools have at most half its words, and its script or its common words belong to another
        language.
        """
        if self._engine is None or self._engine.known_share(query) > _MAX_SHARE:
            return False
        return is_foreign(query, self.languages)

    def called(self, query: str) -> list[ToolSpec]:
        """Find the tools that a query mentions by name, which come first in its results, ordered by
        wire name.
        """
        if self._engine is None:
            return []
        return self._engine.called(query)

    def nearest(
        self, query: str, server: str, count: int, searched: str | None = None
    ) -> list[ToolSpec]:
        """Find a server's tools closest to a query, by their scores in a search, limited to
        `searched` if given.
        """
        if self._engine is None:
            return []
        return [tool for tool, _ in self._engine.ranked(query, searched, count, only=server)]

    def explain(
        self, query: str, tool: ToolSpec, max_results: int = 5, server: str | None = None
    ) -> Explanation:
        """Explain why a tool in this index ranks where it does in a search, or does not appear.

        The search returns at most `max_results` tools, on one server if given. The explanation's
        parts add up to the score.
        """
        if self._engine is None or not self._engine.has(tool.tool_name):
            known = full_names(self.tools)
            raise UnknownNameError("tool", str(tool.tool_name), known)
        return self._engine.explain(query, tool, max_results, server)

    def find(self, query: str, max_results: int = 5, server: str | None = None) -> SearchResults:
        """Find the best tools for a query as a displayable value.

        Takes the same arguments as `search`.

        Its `why_not(name)` accepts a name in any form that `Catalog.resolve` does, and raises the
        same errors.
        """
        hits = tuple(self.search(query, max_results, server))
        searched = len(self)
        if server is not None:
            searched = sum(tool.server == server for tool in self.tools)

        def why_not(name: str) -> Explanation:
            return self.explain(query, self._catalog.resolve(name), max_results, server)

        return SearchResults(query, hits, max_results, searched, why_not, self.ranked_by(query))

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The descriptions' languages, the most frequent first, or empty where they do not show."""
        step = -(-len(self.tools) // _SAMPLE) or 1
        return languages(tool.description for tool in self.tools[::step])

    @cached_property
    def by_server(self) -> Mapping[str, Sequence[ToolSpec]]:
        """The tools by server, in the order given."""
        return by_server(self.tools)

    @cached_property
    def _catalog(self) -> Catalog:
        return Catalog(self.tools)


def _engine(
    tools: Sequence[ToolSpec], embed: Callable[[list[str]], Any] | Meaning | None
) -> Engine:
    from casual_mcp_nb.discovery._embeddings import EmbeddedTexts
    from casual_mcp_nb.discovery._engine import Engine
    from casual_mcp_nb.discovery.meaning import Meaning

    if embed is None:
        return Engine(tools, None)
    if isinstance(embed, Meaning):
        return Engine(tools, embed.over)
    return Engine(tools, partial(EmbeddedTexts, embed))
