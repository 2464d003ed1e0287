"""Synthetic tools, which no server runs: their interface and their traces in a conversation;
`read_skill` and what it reads.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.mcp import SKILL_FILE, Skill, SkillContents
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.search import RankedBy
from casual_mcp_nb.base.selection import Mode
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, full_names
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    FINDING,
    LOAD_TOOLS,
    PACKAGE_TOOLS,
    READ_RESULT,
    READ_SKILL,
    RUN_CODE,
    SEARCH_TOOLS,
    SYNTHETIC,
    UNLOAD_TOOLS,
    SearchRow,
)
from casual_mcp_nb.conversation.step import loaded_in, read_call, unmarked
from casual_mcp_nb.discovery.manifest import compose, plain, presents_schema
from casual_mcp_nb.errors import UnknownNameError, UsageError, closest, did_you_mean, shown

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

IN_CARDS: tuple[Delivery, ...] = ("bridge", "code")
"""The deliveries with which only the cards of a search tell how to call what it found."""

HARMLESS_TOOLS = FINDING | {READ_RESULT, READ_SKILL}
"""Those of this package's tools that run no tool of a server, so that a plan runs them."""


def ways_to_shorten(definitions: Iterable[Mapping[str, Any]]) -> str:
    """Advise how a conversation becomes shorter, by the definitions that a request offers.

    The package's own tools cannot be deferred.
    """
    names = {str(definition.get("name")) for definition in definitions}
    if names <= PACKAGE_TOOLS:
        return "Start a new conversation"
    return "Start a new conversation, defer tools"


def synthetic_spec(
    name: str, description: str, properties: Mapping[str, Mapping[str, Any]], *required: str
) -> ToolSpec:
    """Describe a synthetic tool like other tools: its `definition` goes to the model, and belongs
    to the caller.
    """
    copies = {each: {**fields} for each, fields in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": copies}
    if required:
        schema["required"] = list(required)
    return ToolSpec(SYNTHETIC, name, description, schema, wire_name=name)


def called_through(delivery: Delivery) -> str:
    """Write how the tools are called that a search loads, to follow `call them`."""
    if delivery == "bridge":
        return f" through {CALL_TOOL}"
    if delivery == "code":
        return f" in programs of {RUN_CODE}"
    return ""


class _Result(NamedTuple):
    content: str
    newly_loaded_tools: list[ToolSpec]


class SyntheticToolResult(_Result):
    """A synthetic tool's result. As a tuple, the content and the tools to load.

    Args:
        content: The result as the model reads it.
        newly_loaded_tools: Tools to offer from the next step on.
        rows: The hits, best first, or None if there was no search.
        unloaded: Tools to stop offering from the next step on.
        ranked_by: Whether meaning and past questions counted in the search, or only words.
        skills: The skills that the search found.
    """

    rows: tuple[SearchRow, ...] | None
    unloaded: tuple[ToolSpec, ...]
    ranked_by: RankedBy
    skills: tuple[ToolName, ...]

    def __new__(
        cls,
        content: str,
        newly_loaded_tools: list[ToolSpec],
        rows: tuple[SearchRow, ...] | None = (),
        unloaded: tuple[ToolSpec, ...] = (),
        ranked_by: RankedBy = "words",
        skills: tuple[ToolName, ...] = (),
    ) -> Self:
        """Create a result."""
        result = super().__new__(cls, content, newly_loaded_tools)
        result.rows, result.unloaded = rows, unloaded
        result.ranked_by, result.skills = ranked_by, skills
        return result

    @property
    def is_error(self) -> bool:
        """Whether the content is an error, which begins with `Error:`."""
        return self.content.startswith("Error:")


class SyntheticTool(Protocol):
    """A tool that no server runs: one from this package, or a person's own, see
    `session.tools.add_synthetic`.
    """

    @property
    def name(self) -> str:
        """The wire name."""

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters` (a JSON
        schema).
        """

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Run the tool on the arguments as the model wrote them.

        This package's own tools never raise.
        """


def with_loaded(
    content: str, tools: Sequence[ToolSpec], delivery: Delivery = "definitions"
) -> tuple[str, tuple[ToolSpec, ...]]:
    """Mark a result's text with the tools that it loads: `discovered_in` finds those for which
    there is room, and no others.
    """
    content = unmarked(content)
    if not tools:
        return content, ()
    cards, inside = compose(tools, frozenset(), delivery=delivery)
    return f"{content}\n\n{cards}", inside


def discovered_in(
    messages: Iterable[ChatMessage], catalog: Catalog, custom: Collection[str] = ()
) -> list[ToolSpec]:
    """Find the tools that a conversation has loaded and not unloaded since, in that order, each
    once.

    `custom` names a person's own synthetic tools, which load tools too. Leaves out tools that are
    not available now.
    """
    names: dict[str, None] = {}
    for message in messages:
        if message.role != "tool" or not isinstance(message.content, str):
            continue
        if message.name in (SEARCH_TOOLS, LOAD_TOOLS, *custom):
            names.update(dict.fromkeys(loaded_in(message.content)))
        elif message.name == UNLOAD_TOOLS:
            for name in loaded_in(message.content):
                names.pop(name, None)
    tools = list(map(catalog.by_wire_name.get, names))
    return present(tools)


def first_presented(
    messages: Iterable[ChatMessage], custom: Collection[str] = ()
) -> dict[str, tuple[int, bool]]:
    """Find where a conversation first presents each loaded tool, even if it unloaded it since.

    Maps the wire name to the message's index, and whether the message is a result from one of this
    package's tools rather than the person's `custom` ones.
    """
    places: dict[str, tuple[int, bool]] = {}
    for index, message in enumerate(messages):
        if message.role != "tool" or not isinstance(message.content, str):
            continue
        if message.name in (SEARCH_TOOLS, LOAD_TOOLS, *custom):
            for name in loaded_in(message.content):
                places.setdefault(name, (index, message.name not in custom))
    return places


def schemas_presented(
    messages: Iterable[ChatMessage],
    tools: Iterable[ToolSpec],
    custom: Collection[str] = (),
    delivery: Delivery = "bridge",
) -> set[ToolName]:
    """Find the tools whose current schemas, or functions with `code`, are readable in the search
    results.
    """
    texts = []
    for message in messages:
        if message.role != "tool" or not isinstance(message.content, str):
            continue
        if message.name in (SEARCH_TOOLS, LOAD_TOOLS, *custom):
            texts.append(message.content)
    presented = set()
    for tool in tools:
        if any(presents_schema(text, tool, delivery) for text in texts):
            presented.add(tool.tool_name)
    return presented


def used_in(messages: Iterable[ChatMessage], catalog: Catalog) -> set[ToolName]:
    """Find the available tools that a conversation has called."""
    used: set[ToolName] = set()
    for message in messages:
        if message.role != "assistant":
            continue
        for call in message.tool_calls or ():
            name = call.function.name
            if name == CALL_TOOL:
                tool = catalog.get(read_call(name, call.function.arguments).name)
            else:
                tool = catalog.by_wire_name.get(name)
            if tool is not None:
                used.add(tool.tool_name)
    return used


def not_loaded_error(name: str, loader: str = SEARCH_TOOLS) -> str:
    """Write the message for a model that calls a tool it has not loaded."""
    way = "discover and load it first" if loader == SEARCH_TOOLS else "load it first"
    return (
        f"Error: Tool '{name}' is not yet loaded. Use the '{loader}' tool to {way}, then call it"
        " again."
    )


_SKILL_PREFIX = "skill:"
"""The beginning of a skill's name among the names of tools."""
_MAX_CARD = 500
_MAX_SUMMARY = 120
_MAX_NAME = 300
_MAX_OTHERS = 30
_OTHERS = "\n\nOther files of it, to read with `file`: "
_FITS, _FIT = "This skill fits.", "These skills fit."
_LIST = "Skills, which are instructions for tasks"
_BEGINNING = re.compile(rf"^(?:{_FITS}|{_FIT}|{_LIST})", re.M)
_CARD = re.compile(
    r"^  (?P<server>\S.*?):(?P<name>[a-z0-9-]{1,64})(?: \((?:≈ [\d,]+ tokens|size unknown)\))?:"
    r" (?P<description>.*)$",
    re.M,
)


def permitted_skills(
    skills: Iterable[Skill], modes: Mapping[str, Mode], tool_set: ToolSetConfig | None
) -> tuple[Skill, ...]:
    """Choose the skills of servers that are not off and of which a toolset includes any tool."""
    permitted = [skill for skill in skills if modes.get(skill.server) != "off"]
    if tool_set is not None:
        servers = {name for name, spec in tool_set.servers.items() if spec not in (False, ())}
        permitted = [skill for skill in permitted if skill.server in servers]
    return tuple(permitted)


def skill_spec(skill: Skill) -> ToolSpec:
    """Describe a skill as a tool, to be ranked among tools. It is never offered or called."""
    name = f"{_SKILL_PREFIX}{skill.name}"
    return ToolSpec(skill.server, name, skill.description, wire_name=f"{skill.server}:{name}")


def _price(skill: Skill) -> str:
    """Write how many tokens reading a skill takes."""
    if skill.tokens is None:
        return "size unknown"
    return f"≈ {skill.tokens:,} tokens"


def skill_cards(skills: Sequence[Skill]) -> str:
    """Present skills that a search found, indented so that no line can look like a tool's."""
    if not skills:
        return ""
    which = f"{_FITS} Read it" if len(skills) == 1 else f"{_FIT} Read the one you need"
    lines = [f"{which} with {READ_SKILL} before you do such a task:"]
    for skill in skills:
        about = plain(skill.description, _MAX_CARD)
        lines.append(f"  {_full_name(skill)} ({_price(skill)}): {about}")
    return "\n".join(lines)


def list_skills(skills: Iterable[Skill], max_tokens: int, *, summaries: bool = False) -> str:
    """List skills by server within a limit of estimated tokens, with how many more there are.

    Empty for none.

    Args:
        skills: The skills.
        max_tokens: The limit.
        summaries: Whether each has a line with the beginning of its description, for a model that
            cannot search.
    """
    owned: dict[str, list[Skill]] = defaultdict(list)
    for skill in skills:
        owned[skill.server].append(skill)
    lines: list[str] = []
    left = 0
    for server in sorted(owned):
        parts = [skill.name for skill in owned[server]]
        if summaries:
            parts = list(map(_summarized, owned[server]))
        fitting = len(parts)
        while fitting and estimate_tokens("\n".join([*lines, *parts[:fitting]])) > max_tokens:
            fitting -= max(1, fitting // 4)
        left += len(parts) - fitting
        if fitting and summaries:
            lines += parts[:fitting]
        elif fitting:
            lines.append(f"  {plain(server, 200)}: {', '.join(parts[:fitting])}")
    if not owned:
        return ""
    if left:
        lines.append(f"  ... and {left} more")
    return "\n".join([f"{_LIST} (read with {READ_SKILL}):", *lines])


def _summarized(skill: Skill) -> str:
    return f"  {_full_name(skill)}: {plain(skill.description, _MAX_SUMMARY)}"


def skills_in(text: str) -> tuple[Skill, ...]:
    """Parse the skills in a search's answer or in the description of `read_skill`, with their
    descriptions as shown there.
    """
    cards = _CARD.finditer("".join(_BEGINNING.split(text)[1:]))
    return tuple(Skill(card["server"], card["name"], card["description"]) for card in cards)


def _full_name(skill: Skill) -> str:
    return f"{plain(skill.server, 200)}:{skill.name}"


class ReadSkillTool:
    """Offers `read_skill`. Its calls are run by the dispatcher, which reaches the servers."""

    name = READ_SKILL

    def __init__(self, skills: Sequence[Skill], listing: str = "") -> None:
        self.skills = skills
        self._listing = listing

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model.

        With a listing, which a model needs that cannot search, it contains that.
        """
        text = (
            "Read a skill, which is a server's instructions for one kind of task, or a file of it."
        )
        if self._listing:
            text = f"{text}\n{self._listing}"
        file = {"type": "string", "description": f"One of its other files; default {SKILL_FILE}"}
        skill = {"type": "string", "description": "Its name, as server:skill"}
        properties = {"skill": skill, "file": file}
        return synthetic_spec(self.name, text, properties, "skill").definition

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Build an error that explains how to use the tool."""
        return SyntheticToolResult(
            f'Error: {READ_SKILL} takes the name of a skill: {{"skill": "server:name"}}.', [], None
        )

    def find(self, args: Mapping[str, Any]) -> tuple[Skill, str]:
        """Find the skill and the file that a model names.

        A UsageError or an UnknownNameError tells the model.
        """
        name, path = args.get("skill", args.get("name")), args.get("file") or SKILL_FILE
        if not isinstance(name, str) or not isinstance(path, str) or not name.strip():
            raise UsageError(
                f"{READ_SKILL} takes the name of a skill.",
                hint='For example: {"skill": "server:name"}.',
            )
        name = name.strip()[:_MAX_NAME]
        matches = find_skills(self.skills, name)
        if len(matches) > 1:
            owners = ", ".join(map(_full_name, matches[:10]))
            raise UsageError(
                f"Several servers have a skill {shown(name)}: {owners}.", hint="Write server:name."
            )
        if not matches:
            names = full_names(self.skills)
            hint = did_you_mean(closest(name, names), names)
            raise UnknownNameError("skill", name, names, hint=hint)
        return matches[0], path[:1_000]


def find_skills(skills: Iterable[Skill], name: str) -> list[Skill]:
    """Find the skills that a name means, with or without the server's."""
    bare = name.replace(f":{_SKILL_PREFIX}", ":").removeprefix(_SKILL_PREFIX)
    return [skill for skill in skills if bare in (skill.name, f"{skill.server}:{skill.name}")]


def contents_text(contents: SkillContents) -> str:
    """Format a file of a skill for a model: where it comes from, its text, and the names of the
    other files.
    """
    checked = "the server lists no digest, so it was not checked"
    if contents.changed:
        checked = "the server has changed it, with its digest, since it was first listed"
    elif contents.checked:
        checked = "its digest was checked"
    head = (
        f"{shown(contents.path)} of skill {contents.name}, from server {shown(contents.server)}"
        f" ({checked}):"
    )
    text = contents.text
    if contents.data is not None:
        text = f"[a binary file of {contents.size:,} bytes]"
    text = f"{head}\n\n{text}"
    if not contents.others:
        return text
    names = [plain(path, 200) for path in contents.others[:_MAX_OTHERS]]
    left = len(contents.others) - len(names)
    if left:
        names.append(f"... and {left} more")
    return f"{text}{_OTHERS}{', '.join(names)}"


def instructions_in(result: str) -> str:
    """Parse a skill's text in the format of `contents_text`, without its frontmatter."""
    text = result.partition("\n\n")[2].rpartition(_OTHERS)
    return re.sub(r"\A---\n.*?\n---\n", "", text[0] or text[2], count=1, flags=re.S).strip()
