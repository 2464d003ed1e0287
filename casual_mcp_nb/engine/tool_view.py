"""The model's view of the tools: the catalog under a selection, with the synthetic tools."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.mcp import Skill
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import definition_tokens, estimate_tokens, total_tokens
from casual_mcp_nb.base.tool import (
    MAX_TOOLS_ON_LOOP,
    Catalog,
    ToolName,
    ToolSpec,
    by_tool_name,
    by_wire_name,
    tool_names,
)
from casual_mcp_nb.base.wire_names import is_wire_name
from casual_mcp_nb.conversation.event import CALL_TOOL, LOAD_TOOLS, PACKAGE_TOOLS, SYNTHETIC, Notice
from casual_mcp_nb.discovery.browse import browse_tools
from casual_mcp_nb.discovery.manifest import (
    generate_manifest,
    list_servers,
    manifest_budget,
    partition_tools,
)
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.discovery.synthetic import (
    IN_CARDS,
    ReadSkillTool,
    SyntheticTool,
    SyntheticToolResult,
    list_skills,
    permitted_skills,
    skill_spec,
    synthetic_spec,
    with_loaded,
)
from casual_mcp_nb.discovery.toolsets import filter_tools, resolve_tool_set
from casual_mcp_nb.engine.loose_arguments import example_of, taken
from casual_mcp_nb.engine.programs import CodeTool, functions_of
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.own_tools.toolbox import checked_schema, error_text, short_traceback

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.past_questions import PastQuestion
    from casual_mcp_nb.discovery.meaning import Meaning
    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex


MAX_CONTENT = 12_000
"""How many characters a model reads from its result."""


OnLog = Callable[[str, str, str], None]


@dataclass(frozen=True, eq=False)
class CustomTool:
    """A person's own synthetic tool.

    Args:
        on_log: Called with the tool's name, a level and a text that the person should know.
    """

    tool: SyntheticTool
    on_log: OnLog
    spec: ToolSpec = field(init=False)

    def __post_init__(self) -> None:
        name = getattr(self.tool, "name", None)
        definition = _plain(getattr(self.tool, "definition", None))
        if not isinstance(definition, Mapping) or not callable(getattr(self.tool, "execute", None)):
            raise UsageError(
                f"A {type(self.tool).__name__} is not a synthetic tool.",
                hint=(
                    "It needs a name, a definition (name, description, parameters) and an async"
                    " execute(args)."
                ),
            )
        is_valid = isinstance(name, str) and is_wire_name(name)
        if not is_valid or definition.get("name", name) != name:
            raise UsageError(
                f"{shown(str(name))} cannot be the name of a tool.",
                hint="Use up to 64 letters, digits, _ and -.",
            )
        if name in PACKAGE_TOOLS:
            raise UsageError(f"{shown(name)} is a built-in tool.", hint="Give yours another name.")
        parameters = definition.get("parameters") or {"type": "object", "properties": {}}
        schema = checked_schema(parameters, name)
        spec = ToolSpec(
            SYNTHETIC, name, str(definition.get("description", "")), schema, wire_name=name
        )
        object.__setattr__(self, "spec", spec)

    def check(self, catalog: Catalog) -> None:
        """Raise an error if a server has a tool with this name."""
        if clashing := catalog.by_wire_name.get(self.spec.name):
            raise UsageError(
                f"The synthetic tool {shown(self.spec.name)} has the name by which a model calls"
                f" {clashing.tool_name}.",
                hint="Give it another name.",
            )


def _plain(definition: Any) -> Any:
    """Convert a definition to a mapping, where it is casual-llm's `Tool`."""
    if isinstance(getattr(definition, "input_schema", None), dict):
        return {
            "name": definition.name,
            "description": definition.description,
            "parameters": definition.input_schema,
        }
    return definition


@dataclass(eq=False, repr=False)
class GuardedTool:
    """A person's own synthetic tool in one turn: if it raises, only its call fails, and it loads
    only tools that the turn defers.

    Args:
        custom: The tool.
        deferred: The deferred tools of the turn.
        loaded: The names of those that are loaded already. Grows.
        delivery: How the model receives the tools that it loads.
    """

    custom: CustomTool
    deferred: Collection[ToolSpec]
    loaded: set[ToolName]
    delivery: Delivery = "definitions"

    @property
    def name(self) -> str:
        """Its name."""
        return self.custom.spec.name

    @property
    def definition(self) -> dict[str, Any]:
        """The definition that the model reads."""
        return dict(self.custom.spec.definition)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run the tool, and load the tools that it returns."""
        try:
            result = await self.custom.tool.execute(args)
            content = str(result.content)
            names = list(map(self._tool_name, result.newly_loaded_tools))
        except Exception as error:
            self._log("error", short_traceback(error))
            return SyntheticToolResult(f"Error: {error_text(error)}", [], None)
        if len(content) > MAX_CONTENT:
            content = (
                f"{content[:MAX_CONTENT]}\n[… cut: {MAX_CONTENT:,} of {len(content):,}"
                " characters …]"
            )
        # Only the results of the built-in tools tell a provider what was found.
        delivery: Delivery = self.delivery if self.delivery in IN_CARDS else "definitions"
        content, inside = with_loaded(content, self._to_load(names), delivery)
        self.loaded.update(tool_names(inside))
        return SyntheticToolResult(content, list(inside), None)

    def _to_load(self, names: Iterable[ToolName]) -> list[ToolSpec]:
        """Find the tools that are deferred and not loaded yet, and warn the person of others that
        are not deferred.
        """
        permitted = by_tool_name(self.deferred)
        new, outside = [], []
        for name in dict.fromkeys(names):
            if name not in permitted:
                outside.append(str(name))
            elif name not in self.loaded:
                new.append(permitted[name])
        if outside:
            listed = ", ".join(map(shown, outside[:5]))
            self._log(
                "warning",
                f"Not loaded, because they are not deferred tools of this turn: {listed}.",
            )
        return new

    def _tool_name(self, tool: Any) -> ToolName:
        """Identify a tool: one from this package, or the MCP SDK's, which knows only its name."""
        if isinstance(tool, ToolSpec):
            return tool.tool_name
        for each in self.deferred:
            if tool.name == each.wire_name or tool.name in each.aliases:
                return each.tool_name
        return ToolName("", tool.name)

    def _log(self, level: str, text: str) -> None:
        self.custom.on_log(self.name, level, text)


_USAGE = (
    f'{CALL_TOOL} takes the name of a tool that was found, and its arguments: {{"name": "…",'
    ' "arguments": {…}}'
)
_MAX_PROBLEM = 500


class CallTool:
    """Offers `call_tool`. Its calls run as calls to the tools that they name.

    `execute` answers those that name none.

    Args:
        loader: The wire name of the tool that loads others.
    """

    name = CALL_TOOL

    def __init__(self, loader: str) -> None:
        self._definition = synthetic_spec(
            CALL_TOOL,
            f"Call a tool that {loader} has found. Use {loader} first.",
            {
                "name": {"type": "string", "description": "The tool"},
                "arguments": {"type": "object", "description": "By its schema"},
            },
            "name",
            "arguments",
        ).definition

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`.

        It never changes.
        """
        return dict(self._definition)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Build an error that explains how to use the tool."""
        return SyntheticToolResult(f"Error: {_USAGE}.", [], None)


def mismatch(tool: ToolSpec, arguments: Mapping[str, Any], problems: Sequence[str]) -> str:
    """Format the error for arguments that do not match a tool's schema, with the schema."""
    lines = [f"- {' '.join(problem.split())[:_MAX_PROBLEM]}" for problem in problems]
    if not SchemaReader(tool.input_schema).properties or example_of(tool):
        lines.append(taken(tool, arguments))
    schema = json.dumps(
        tool.definition["parameters"], ensure_ascii=False, separators=(",", ":"), default=str
    )
    head = (
        f"Error: the arguments do not match the schema of {shown(tool.wire_name)}, so it was not"
        " called:"
    )
    return "\n".join([head, *lines, f"Schema of arguments: {schema}"])


ASSUMED_WINDOW = 128_000
"""The context window, in tokens, to assume for a model whose own is unknown, for deciding whether
to defer.
"""
MAX_NOTICES = 20
_MAX_VIEWS = 8


@dataclass(frozen=True)
class ToolView:
    """A catalog's tools under a selection.

    Args:
        selection: The person's choices when the view was compiled, with `auto` decided. Do not edit
            it.
        loaded: The tools whose definitions go with every request.
        deferred: The tools that a search can find.
        blocked: Tools that the view omits because their definitions changed and nobody accepted the
            change.
        problem: Why the view has no tools: the selection's toolset does not exist any more.
            Otherwise, empty.
        excluded: Tools that the config leaves out.
        meaning: The embedding model with which searches compare meanings too, or None.
        skills: The skills that the model can read. It finds them by searching, or its tool to read
            them lists them.
        listed_skills: Those and the skills that the selection leaves out.
    """

    catalog: Catalog
    selection: Selection
    loaded: tuple[ToolSpec, ...]
    deferred: tuple[ToolSpec, ...]
    blocked: frozenset[ToolName] = frozenset()
    problem: str = ""
    excluded: frozenset[ToolName] = frozenset()
    custom: tuple[CustomTool, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict, repr=False)
    meaning: Meaning | None = field(default=None, repr=False)
    skills: tuple[Skill, ...] = ()
    listed_skills: tuple[Skill, ...] = ()

    async def measure(self) -> None:
        """Count all tokens, on another thread if there are many tools."""
        if len(self.catalog) > MAX_TOOLS_ON_LOOP and "undeferred_tokens" not in self.__dict__:
            await asyncio.to_thread(self._compute_sizes)

    def _compute_sizes(self) -> object:
        """Compute the cached properties that read all definitions."""
        return self.undeferred_tokens, self.search_tool_tokens, self.notices

    async def searchable(
        self, whole: bool = False, query: str = "", past: Sequence[PastQuestion] = ()
    ) -> ToolSearchIndex:
        """Build the search index on another thread, so that the event loop keeps running. Later
        calls return the same index.

        Args:
            whole: Whether to index the loaded tools too.
            query: The text to search for next. For it, this waits for the embedding model, but not
                long.
            past: The questions from which the search learns.
        """
        name = "whole_index" if whole else "index"
        if name not in self.__dict__:
            await asyncio.to_thread(getattr, self, name)
        index: ToolSearchIndex = getattr(self, name)
        if past:
            index = await asyncio.to_thread(index.with_past, past)
        if query:
            await index.prepare(query)
        return index

    def embed_tools(self) -> None:
        """Embed the tools in the background, if any are deferred, so that the first search has the
        vectors.
        """
        if self.meaning is not None and self.deferred and not self.__dict__.get("_embeds"):
            self.__dict__["_embeds"] = True
            self.meaning.start_with(self.included)

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """The notices on loaded tools whose definitions are too long for a model."""
        return cut_notices(self.loaded)

    @cached_property
    def selection_key(self) -> str:
        """The selection's key, which is equal for equal selections."""
        return self.selection.key()

    @cached_property
    def definitions(self) -> tuple[Mapping[str, Any], ...]:
        """The definitions that a conversation starts with: the loaded tools, and the search or
        browsing tools.

        With `code`, the functions of the loaded tools are in the description of `run_code` instead.
        """
        defined = (tool.definition for tool in self._defined)
        synthetic = (tool.definition for tool in self.synthetic_tools().values())
        return (*defined, *synthetic)

    @property
    def included(self) -> tuple[ToolSpec, ...]:
        """The tools that the selection includes: the loaded ones, then the deferred ones."""
        return (*self.loaded, *self.deferred)

    @property
    def _defined(self) -> tuple[ToolSpec, ...]:
        """The loaded tools whose definitions are sent: none with `code`."""
        return () if self.coded else self.loaded

    @cached_property
    def loaded_by_name(self) -> Mapping[str, ToolSpec]:
        """The loaded tools by wire name."""
        return by_wire_name(self.loaded)

    @cached_property
    def deferred_by_name(self) -> Mapping[str, ToolSpec]:
        """The deferred tools by wire name."""
        return by_wire_name(self.deferred)

    def includes(self, tool: ToolSpec) -> bool:
        """Check whether the model may call a tool, loaded or deferred."""
        return tool.wire_name in self.loaded_by_name or tool.wire_name in self.deferred_by_name

    @cached_property
    def manifest(self) -> str:
        """The manifest for the deferred tools, or empty if there are none."""
        budget = manifest_budget(self.deferred_tokens, self.selection.manifest_max_tokens)
        if self.selection.strategy == "browse":
            return list_servers(self.deferred, budget)
        tools = generate_manifest(self.deferred, budget, self.instructions)
        return "\n".join(filter(None, (tools, self._skill_list if self.searches_skills else "")))

    @property
    def searches_skills(self) -> bool:
        """Whether the search finds skills too."""
        return (
            bool(self.skills)
            and self.selection.discovery is True
            and self.selection.strategy == "search"
        )

    @cached_property
    def _skill_list(self) -> str:
        return list_skills(
            self.skills, self.selection.manifest_max_tokens // 2, summaries=not self.searches_skills
        )

    @cached_property
    def _skill_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(map(skill_spec, self.skills)) if self.searches_skills else ()

    @cached_property
    def index(self) -> ToolSearchIndex:
        """The search index over the deferred tools, built on first use."""
        from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

        return ToolSearchIndex((*self.deferred, *self._skill_specs), embed=self.meaning)

    @cached_property
    def whole_index(self) -> ToolSearchIndex:
        """The search index over all tools that the selection includes."""
        from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

        tools = (*self.included, *self._skill_specs)
        return ToolSearchIndex(tools, embed=self.meaning) if self.loaded else self.index

    @cached_property
    def loaded_tokens(self) -> int:
        """Estimated tokens in the loaded tools' definitions, as far as they are sent, including the
        person's own.
        """
        return total_tokens((*self._defined, *self.custom_specs))

    @cached_property
    def deferred_tokens(self) -> int:
        """Estimated tokens in the deferred tools' definitions."""
        return total_tokens(self.deferred)

    @cached_property
    def manifest_tokens(self) -> int:
        """The manifest's estimated tokens."""
        return estimate_tokens(self.manifest)

    @cached_property
    def search_tool_tokens(self) -> int:
        """Estimated tokens in the search or browsing tools and in `run_code`, without the manifest,
        or 0 without such tools.
        """
        return max(total_tokens(self.synthetic_specs) - self.manifest_tokens, 0)

    @cached_property
    def custom_specs(self) -> tuple[ToolSpec, ...]:
        """The person's own synthetic tools' definitions, as the model reads them."""
        return tuple(custom.spec for custom in self.custom)

    @cached_property
    def custom_names(self) -> frozenset[str]:
        """The names of the person's own synthetic tools."""
        return frozenset(spec.name for spec in self.custom_specs)

    @cached_property
    def synthetic_specs(self) -> tuple[ToolSpec, ...]:
        """The search or browsing tools, and `run_code`, as specs.

        No search tools if nothing is deferred.
        """
        specs = []
        for name, tool in self.synthetic_tools().items():
            if name in self.custom_names:
                continue
            sent = tool.definition
            specs.append(
                ToolSpec(SYNTHETIC, name, sent["description"], sent["parameters"], wire_name=name)
            )
        return tuple(specs)

    @cached_property
    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools that a conversation starts with: those loaded tools whose definitions are sent,
        and the synthetic ones.
        """
        return (*self._defined, *self.custom_specs, *self.synthetic_specs)

    @cached_property
    def undeferred_tokens(self) -> int:
        """Estimated tokens in all definitions if every tool were loaded.

        The tool that reads skills would list them.
        """
        tokens = total_tokens((*self.loaded, *self.custom_specs))
        tokens += self.deferred_tokens
        if self.skills:
            budget = self.selection.manifest_max_tokens // 2
            listed = list_skills(self.skills, budget, summaries=True)
            tokens += definition_tokens(ReadSkillTool(self.skills, listed).definition)
        return tokens

    @property
    def first_call_tokens(self) -> int:
        """Estimated tokens with which a conversation starts: definitions, search tool and
        manifest.
        """
        return self.loaded_tokens + self.search_tool_tokens + self.manifest_tokens

    @property
    def bridged(self) -> bool:
        """Whether the model calls the tools that it finds through `call_tool`."""
        return self.selection.delivery == "bridge" and bool(self.deferred)

    @property
    def coded(self) -> bool:
        """Whether the model calls the tools as functions in programs."""
        return self.selection.delivery == "code" and bool(self.loaded or self.deferred)

    @cached_property
    def functions(self) -> Mapping[str, ToolSpec]:
        """The tools that a program can call, by the names of their functions."""
        return functions_of(self.included)

    @property
    def _delivery(self) -> Delivery:
        """The delivery that the view itself decides."""
        if self.bridged:
            return "bridge"
        return "code" if self.coded else "definitions"

    def synthetic_tools(
        self,
        discovered: Iterable[ToolName] = (),
        delivery: Delivery | None = None,
        used: Set[ToolName] = frozenset(),
        presented: Iterable[ToolName] = (),
        index: Callable[[], ToolSearchIndex] | None = None,
    ) -> dict[str, SyntheticTool]:
        """Create the synthetic tools for one turn, by name, in the order in which they are sent: the
        person's own, `run_code`, `read_skill`, those for search or browsing, and `call_tool`, each
        where it is needed.

        Args:
            discovered: The deferred tools that were found before.
            delivery: How the model receives what it finds, or None for the view's own delivery.
            used: The tools that were called before.
            presented: The tools whose schemas the model can still read in the conversation.
            index: Returns the index to search, or None for the view's own.
        """
        discovered = tuple(discovered)
        if delivery is None:
            delivery = self._delivery
        tools: dict[str, SyntheticTool] = {}
        for each in self.custom:
            tools[each.spec.name] = GuardedTool(each, self.deferred, {*discovered}, delivery)
        if delivery == "code":
            tools[CodeTool.name] = CodeTool(self.loaded)
        if self.skills:
            tools[ReadSkillTool.name] = ReadSkillTool(
                self.skills, "" if self.searches_skills else self._skill_list
            )
        if not self.deferred and not self.searches_skills:
            return tools
        if self.selection.strategy == "browse":
            tools |= browse_tools(
                self.deferred,
                categories=self.manifest,
                index=index or self._get_index,
                max_active_tools=self.selection.max_active_tools,
                max_active_tokens=self.selection.max_active_tokens,
                loaded=discovered,
                always=self.loaded,
                delivery=delivery,
                instructions=self.instructions,
                presented=presented,
            )
        else:
            tools[SearchToolsTool.name] = SearchToolsTool(
                self.deferred,
                index=index or self._get_index,
                manifest=self.manifest,
                max_search_results=self.selection.max_search_results,
                max_search_tokens=self.selection.max_search_tokens,
                loaded=discovered,
                used=used,
                always=self.loaded,
                delivery=delivery,
                presented=presented,
                skills=self.skills,
            )
        if delivery == "bridge" and self.deferred:
            # It comes last: a model that reads about calling first calls what it has not found.
            tools[CallTool.name] = CallTool(self.loader)
        return tools

    def _get_index(self) -> ToolSearchIndex:
        return self.index

    @property
    def loader(self) -> str:
        """The wire name of the tool that loads deferred tools."""
        return LOAD_TOOLS if self.selection.strategy == "browse" else SearchToolsTool.name


def cut_notices(tools: Iterable[ToolSpec]) -> tuple[Notice, ...]:
    """Build a notice for each tool whose definition is too long for a model.

    The last one counts the tools beyond a limit.
    """
    cut = [tool for tool in tools if tool.cuts]
    notices = []
    for tool in cut[:MAX_NOTICES]:
        text = (
            f"Tool {shown(tool.name)} is too long for a model, so these parts were cut:"
            f" {', '.join(tool.cuts)}."
        )
        notices.append(Notice(text, server=tool.server))
    more = len(cut) - MAX_NOTICES
    if more > 0:
        notices.append(Notice(f"{more:,} more tools are too long for a model and were cut."))
    return tuple(notices)


@dataclass(frozen=True, eq=False)
class ViewSources:
    """What a view is compiled from, besides a selection.

    Args:
        catalog: The tools.
        tool_sets: The toolsets that a selection can name.
        blocked: Tools whose definitions changed, and nobody accepted the change.
        excluded: Tools that the config leaves out.
        custom: The person's own synthetic tools.
        instructions: The servers' instructions. Another text needs another catalog.
        window: The model's context window in tokens, or None if it is unknown.
        meaning: The embedding model with which searches compare meanings too, or None.
        skills: The skills of all servers.
    """

    catalog: Catalog
    tool_sets: Mapping[str, ToolSetConfig] = field(default_factory=dict)
    blocked: frozenset[ToolName] = frozenset()
    excluded: frozenset[ToolName] = frozenset()
    custom: tuple[CustomTool, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict)
    window: int | None = None
    meaning: Meaning | None = None
    skills: tuple[Skill, ...] = ()


def compile_view(sources: ViewSources, selection: Selection) -> ToolView:
    """Apply a selection to a catalog: toolset first, then single tools, then loaded or deferred.

    A toolset that no longer exists includes nothing. A turn refuses it, and displays show the
    problem.
    """
    selection = selection.snapshot()
    catalog, problem = sources.catalog, ""
    try:
        tool_set = resolve_tool_set(selection.tool_set, sources.tool_sets)
    except UnknownNameError as error:
        tool_set, problem = ToolSetConfig(), str(error)
    off = {*sources.blocked, *sources.excluded}
    for name in selection.tools_off:
        if (tool := catalog.get(name)) is not None:
            off.add(tool.tool_name)
    permitted = [tool for tool in filter_tools(catalog, tool_set) if tool.tool_name not in off]
    if selection.discovery == "auto":
        _decide(selection, permitted, sources.window or ASSUMED_WINDOW)
    loaded, deferred = partition_tools(
        permitted,
        selection.servers,
        discovery=selection.discovery is True,
        defer_all=selection.defer_all,
        always_loaded=selection.always_loaded,
    )
    # A toolset without servers is one without tools, the person's own included.
    custom = () if tool_set is not None and not tool_set.servers else sources.custom
    if any(each.spec.name in catalog.by_wire_name for each in custom):
        # The tuple stays the same as a rule: views are compared by it.
        custom = tuple(each for each in custom if each.spec.name not in catalog.by_wire_name)
    readable: tuple[Skill, ...] = ()
    if not problem:
        readable = permitted_skills(sources.skills, selection.servers, tool_set)
    return ToolView(
        catalog=catalog,
        selection=selection,
        loaded=loaded,
        deferred=deferred,
        blocked=sources.blocked,
        problem=problem,
        excluded=sources.excluded,
        custom=custom,
        instructions=sources.instructions if selection.instructions else {},
        meaning=sources.meaning,
        skills=readable,
        listed_skills=sources.skills,
    )


def _decide(selection: Selection, tools: Iterable[ToolSpec], window: int) -> None:
    """Decide whether a selection with `auto` discovery defers tools. It does if all definitions
    together exceed their share of the window.
    """
    tokens, modes = 0, set()
    for tool in tools:
        mode = selection.servers.get(tool.server)
        if tool.restriction is None and mode != "off":
            tokens += tool.tokens
            modes.add(mode)
    selection.discovery = tokens > window * selection.auto_threshold / 100
    if selection.discovery and "deferred" not in modes:
        selection.defer_all = True


class ViewCache:
    """Caches the last compiled views: those for the chat's selection and for single turns that
    differ from it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources = ViewSources(Catalog())
        self._views: dict[str, ToolView] = {}

    def get(self, sources: ViewSources, selection: Selection) -> ToolView:
        """Compile the view for these, or reuse it if they have not changed. For any thread."""
        with self._lock:
            before = self._sources
            if (
                sources.catalog is not before.catalog
                or sources.blocked != before.blocked
                or sources.custom is not before.custom
                or sources.skills is not before.skills
            ):
                self._sources, self._views = sources, {}
            # A toolset can be given another content under the same name, and only the decision to
            # defer depends on the window.
            named, window = None, None
            if isinstance(selection.tool_set, str):
                named = sources.tool_sets.get(selection.tool_set)
            if selection.discovery == "auto":
                window = sources.window
            view = self._views.get(f"{selection.key()} {named!r} {window}")
            if view is None:
                # A copy: the selection can be edited meanwhile.
                selection = selection.snapshot()
                view = compile_view(sources, selection)
                if len(self._views) >= _MAX_VIEWS:
                    self._views.pop(next(iter(self._views)))
                self._views[f"{selection.key()} {named!r} {window}"] = view
            return view
