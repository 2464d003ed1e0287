"""The model's information about deferred tools: which they are, the manifest, and the cards for
those that it found.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.arguments import parse_arguments
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.schema import SchemaReader, brief_schema
from casual_mcp_nb.base.selection import Mode
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import ToolName, ToolSpec, by_server
from casual_mcp_nb.conversation.event import CALL_TOOL, RUN_CODE
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.discovery.signatures import described_parameters, function_text
from casual_mcp_nb.discovery.text import one_line

MAX_MARKED = 10
"""How many tools a server can keep loaded by marking them: it does not pay for them."""


def partition_tools(
    tools: Iterable[ToolSpec],
    modes: Mapping[str, Mode],
    *,
    discovery: bool,
    defer_all: bool = False,
    always_loaded: Collection[str] = (),
) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Split tools into loaded ones, sent with every request, and deferred ones, found by search.

    Args:
        tools: The tools that the toolset includes.
        modes: `loaded`, `deferred` or `off` for each server. The default is loaded.
        discovery: Whether deferring is enabled.
        defer_all: Defer the loaded servers too.
        always_loaded: Servers that `defer_all` leaves loaded, and tools (`server:tool`) that are
            always loaded. So are the first few that a server marks so itself.

    Returns:
        Loaded and deferred tools, each in the order given. Neither has tools whose server is off,
        or tools with a `restriction`.
    """
    loaded: list[ToolSpec] = []
    deferred: list[ToolSpec] = []
    marked = Counter[str]()
    for tool in tools:
        mode = modes.get(tool.server, "loaded")
        if mode == "off" or tool.restriction is not None:
            continue
        is_deferred = mode == "deferred" or (defer_all and tool.server not in always_loaded)
        if not discovery or not is_deferred:
            loaded.append(tool)
            continue
        if tool.always_load:
            marked[tool.server] += 1
            is_deferred = marked[tool.server] > MAX_MARKED
        if is_deferred and str(tool.tool_name) not in always_loaded:
            deferred.append(tool)
        else:
            loaded.append(tool)
    return tuple(loaded), tuple(deferred)


_PLAIN_NAME = re.compile(r"[\w./:-]+(?: [\w./:-]+)*")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?![a-z])|(?<=[\u3002\uff01\uff1f])|\n\s*\n"
)
_NO_MARKUP = str.maketrans("<>", "\u2039\u203a")
_SERVER_LINE = re.compile(r"^- (.+?) \((\d+) tools?\): ", re.MULTILINE)
_SERVER_IN_A_LINE = re.compile(r"(?:^|, )(?!\.\.\. and )([^,]+?) \((\d+)\)(?=, |\Z)")
_EDGES = " \t*_-`>"
_SHORTEST_LINE = 6
"""A server line's minimum tokens: if that is too much for all servers, no detail level fits."""
_SMALL = 250
_GROWTH = 5.0


class _Detail(NamedTuple):
    """A detail level: only the first `names` tools if there are more than `all_names`, and the
    summary's length.
    """

    all_names: int
    names: int
    summary: int


_FULL = _Detail(10, 4, 80)
_STEPS = (
    _FULL,
    _Detail(6, 4, 80),
    _Detail(4, 3, 60),
    _Detail(3, 2, 40),
    _Detail(3, 2, 0),
    _Detail(1, 1, 0),
)


def generate_manifest(
    deferred: Iterable[ToolSpec],
    max_tokens: int | None = None,
    instructions: Mapping[str, str] | None = None,
) -> str:
    """List the deferred servers with their tool names and a summary, two lines each, ordered by
    name.

    Args:
        deferred: The deferred tools.
        max_tokens: Maximum size in estimated tokens, or None for no limit. Over it, all servers'
            lines shrink in steps: fewer names, shorter summaries, no summaries, and finally one
            line with servers and their tool counts, which ends with how many more there are.
        instructions: Each server's instructions: their beginning is the summary. Without it, that
            is its tools' first sentences.

    Returns:
        Lines such as `- time (2 tools): get_current_time, convert_time` and `  Get the current
        time.`, or empty for no tools. No tool's text can escape its line, or close a tag around the
        manifest.
    """
    servers = _servers(deferred, instructions or {})
    if max_tokens is None:
        return _lines(servers, _FULL)
    if _SHORTEST_LINE * len(servers) <= max_tokens:
        for detail in _STEPS:
            text = _lines(servers, detail)
            if estimate_tokens(text) <= max_tokens:
                return text
    return _one_line_of(servers, max_tokens, ": search by query")


def list_servers(deferred: Iterable[ToolSpec], max_tokens: int) -> str:
    """List the deferred servers with their tool counts in one line, or empty for no tools.

    If it would exceed `max_tokens`, it only counts the servers with the fewest tools.
    """
    return _one_line_of(_servers(deferred, {}), max_tokens, "")


def servers_in(text: str) -> dict[str, int]:
    """Parse the servers in a text from `generate_manifest` or `list_servers`, with their tool
    counts.
    """
    rows = _SERVER_LINE.findall(text) or _SERVER_IN_A_LINE.findall(text)
    return {name: int(count) for name, count in rows}


def manifest_budget(definition_tokens: int, max_tokens: int) -> int:
    """Compute a manifest's token budget.

    It is at most `max_tokens`. Beyond a few servers it grows with the square root of the replaced
    tokens, so that deferring more saves relatively more.
    """
    return min(max_tokens, max(_SMALL, int(_GROWTH * math.sqrt(definition_tokens))))


def plain_name(tool: ToolSpec) -> str:
    """Choose the bare name, or the wire name if the bare one could be misread."""
    if len(tool.name) <= 64 and _PLAIN_NAME.fullmatch(tool.name):
        return tool.name
    return tool.wire_name


def plain(text: str, limit: int) -> str:
    """Reduce `text` to one line, with at most `limit` characters, that cannot close a tag around
    it.
    """
    return one_line(text, limit).translate(_NO_MARKUP)


def summary(tools: Iterable[ToolSpec], limit: int) -> str:
    """Join the tools' distinct first sentences, as many as fit in one line with `limit`
    characters.
    """
    sentences: dict[str, None] = {}
    for tool in tools:
        sentence = _SENTENCE_END.split(tool.description.strip()[:400], maxsplit=1)[0]
        sentences[" ".join(sentence.split())] = None
        if sum(map(len, sentences)) > limit:
            break
    return plain(" ".join(filter(None, sentences)), limit)


def beginning(instructions: str, limit: int) -> str:
    """Cut a server's instructions to one line with `limit` characters, without headings and
    markup.
    """
    lines = instructions[: limit * 20].splitlines()
    texts = [line.strip(_EDGES) for line in lines if not line.lstrip().startswith(("#", "<"))]
    return plain(" ".join(texts), limit).strip()


def counted(number: int, unit: str = "tool") -> str:
    """Format a count with its unit: `1 tool`, `2 tools`."""
    if number == 1:
        return f"1 {unit}"
    return f"{number} {unit}s"


class _ServerSummary:
    """A server's tools and the texts shared by all detail levels."""

    def __init__(self, name: str, tools: Sequence[ToolSpec], instructions: str) -> None:
        self.name = plain(name, 200)
        self.count = len(tools)
        self._tools = tools
        self._instructions = instructions

    def lines(self, detail: _Detail) -> str:
        names = ", ".join(self._names)
        if self.count > detail.all_names:
            left = self.count - detail.names
            names = f"{', '.join(self._names[: detail.names])}, ... and {left} more"
        lines = f"- {self.name} ({counted(self.count)}): {names}"
        if detail.summary and self._summary:
            lines += f"\n  {plain(self._summary, detail.summary)}"
        return lines

    @cached_property
    def _names(self) -> list[str]:
        return list(map(plain_name, self._tools[: _FULL.all_names]))

    @cached_property
    def _summary(self) -> str:
        return beginning(self._instructions, _FULL.summary) or summary(self._tools, _FULL.summary)


def _servers(tools: Iterable[ToolSpec], instructions: Mapping[str, str]) -> list[_ServerSummary]:
    owned = by_server(tools)
    return [_ServerSummary(name, owned[name], instructions.get(name, "")) for name in sorted(owned)]


def _lines(servers: Iterable[_ServerSummary], detail: _Detail) -> str:
    return "\n".join(server.lines(detail) for server in servers)


def _one_line_of(servers: Sequence[_ServerSummary], max_tokens: int, hint: str) -> str:
    largest = sorted(servers, key=attrgetter("count"), reverse=True)

    def text(shown: int) -> str:
        named = sorted(f"{server.name} ({server.count})" for server in largest[:shown])
        left = largest[shown:]
        if left:
            more = counted(len(left), "server")
            if named:
                more = f"... and {counted(len(left), 'more server')}"
            tools = sum(server.count for server in left)
            named.append(f"{more} ({counted(tools)}){hint}")
        return ", ".join(named)

    def tokens(shown: int) -> int:
        return estimate_tokens(text(shown))

    return text(bisect_right(range(1, len(servers) + 1), max_tokens, key=tokens))


MAX_ANSWER = 12_000
_MAX_CARDS = 8_000
_MAX_SCHEMA = 6_000
_SCHEMA = "Schema of arguments: "
_MAX_NOTES = 2_000
_MAX_LINES = 8
_MAX_DESCRIPTION = 500
_MAX_WHOLE_DESCRIPTION = 2_000
_MAX_PARAMETERS = 20
_MAX_PARAMETER = 300
_MAX_SIBLINGS = 500
_MAX_TOO_LARGE = 12
"""How many tools to name that a search found and did not load."""
SIBLINGS_EACH = 12
"""How many of a server's other tools to name."""
_SIBLING_SERVERS = 3


class Siblings(NamedTuple):
    """A server's tools that are not loaded: some of them, and how many there are in all."""

    tools: Sequence[ToolSpec]
    total: int


def compose(
    tools: Sequence[ToolSpec],
    loaded: Set[ToolName],
    notes: Iterable[str] = (),
    *,
    filled: Set[ToolSpec] = frozenset(),
    siblings: Mapping[str, Siblings] | None = None,
    delivery: Delivery = "definitions",
    presented: Set[ToolName] | None = None,
    max_tokens: int | None = None,
) -> tuple[str, tuple[ToolSpec, ...]]:
    """Format the answer that presents tools: a text with at most 12,000 characters, and the tools
    in it that are loaded.

    The best one comes first. The text names or counts others: `siblings` at the end, by server, and
    tools whose definitions exceed `max_tokens`, a limit under which one tool always fits. `filled`
    tools did not match: they only share the best match's server. With `native` delivery the
    provider adds the definitions, so cards are only names. With `bridge` nothing else has their
    schemas, and with `code` nothing else has the signatures of their functions. The model has read
    everything about `presented` tools, by default all loaded ones.
    """
    note = one_line(" ".join(notes), _MAX_NOTES)
    others = _sibling_lines(siblings or {})
    blocks: list[str] = []
    used = len(note) + len(others)
    if presented is None:
        presented = loaded
    inside: list[ToolSpec] = []
    too_large: list[ToolSpec] = []
    tokens = 0
    for tool in tools:
        size = 0
        if max_tokens is not None and tool.tool_name not in loaded:
            size = tool.tokens
        if max_tokens is not None and tokens and size and tokens + size > max_tokens:
            too_large.append(tool)
            used += len(tool.wire_name) + 2
            if len(too_large) == _MAX_TOO_LARGE:
                break
            continue
        block = _card(tool, tool.tool_name in presented, tool in filled, delivery)
        # A name is enough where the definition comes another way.
        if used + len(block) > _MAX_CARDS and delivery not in ("bridge", "code"):
            block = _marker(tool)
        if blocks and used + len(block) > MAX_ANSWER - 500:
            break
        blocks.append(block)
        inside.append(tool)
        used += len(block) + 2
        tokens += size
    left_out = len(tools) - len(inside) - len(too_large)
    more = ""
    if left_out:
        more = (
            f"{left_out} more are not loaded. Search with a query or with tool_names for those you"
            " need."
        )
    head = _header(inside, loaded, delivery)
    parts = [head, note, *blocks, _too_large(too_large, max_tokens), more, others]
    return "\n\n".join(filter(None, parts)), tuple(inside)


def _too_large(tools: Sequence[ToolSpec], max_tokens: int | None) -> str:
    """Name the tools that a search found and did not load, indented so that none can look like a
    marker.
    """
    if not tools:
        return ""
    head = (
        f"Found but not loaded, since one search loads at most {max_tokens:,} tokens (load with"
        " tool_names those you need):"
    )
    return f"{head}\n  {', '.join(tool.wire_name for tool in tools)}"


def marked(head: str, tools: Iterable[ToolSpec]) -> str:
    """Format a line of tool names, marked so that they can be parsed again."""
    return "\n\n".join([head, *map(_marker, tools)])


def _sibling_lines(siblings: Mapping[str, Siblings]) -> str:
    """List tool names by server, indented so that none can look like a marker.

    The rest are counted.
    """
    servers = [(server, others) for server, others in siblings.items() if others.total]
    if not servers:
        return ""
    share = _MAX_SIBLINGS // min(len(servers), _SIBLING_SERVERS)
    lines = ["Not loaded, on the same servers (load with tool_names):"]
    for server, others in servers[:_SIBLING_SERVERS]:
        lines.append(f"  {plain(server, 60)}: {_sibling_names(others, share)}")
    unnamed = sum(others.total for _, others in servers[_SIBLING_SERVERS:])
    if unnamed:
        lines.append(f"  ... and {unnamed} more of other servers")
    return "\n".join(lines)


def _sibling_names(siblings: Siblings, room: int) -> str:
    names: list[str] = []
    for tool in siblings.tools[:SIBLINGS_EACH]:
        name = plain_name(tool)
        room -= len(name) + 2
        if room < 0:
            break
        names.append(name)
    left = siblings.total - len(names)
    if left:
        names.append(f"... and {left} more" if names else f"{left} more")
    return ", ".join(names)


def _marker(tool: ToolSpec) -> str:
    return f"## {tool.wire_name}"


def _header(tools: Sequence[ToolSpec], loaded: Set[ToolName], delivery: Delivery) -> str:
    count = counted(len(tools))
    them, call = "them", "call them by their names."
    if len(tools) == 1:
        them, call = "it", "call it by its name."
    if delivery == "bridge":
        call = f"call {them} through {CALL_TOOL}, in your next answer."
    if delivery == "code":
        call = f"call {them} in programs of {RUN_CODE}."
    old = sum(tool.tool_name in loaded for tool in tools)
    new = len(tools) - old
    if not old:
        return f"Found {count}. {'It is' if new == 1 else 'They are'} loaded now; {call}"
    if not new:
        return f"Found {count}, already loaded; {call}"
    now = "is" if new == 1 else "are"
    before = "was" if old == 1 else "were"
    return f"Found {count}: {new} {now} loaded now, {old} {before} already loaded; {call}"


def _card(tool: ToolSpec, already_loaded: bool, filled: bool, delivery: Delivery) -> str:
    if delivery == "native":
        return _marker(tool)
    if already_loaded:
        return f"{_marker(tool)}\nAlready loaded."
    server = one_line(tool.server, 200)
    schema = ""
    if delivery == "bridge":
        schema = _schema_line(tool)
    elif delivery == "code":
        schema = _function_lines(tool)
    lines = [_marker(tool)]
    if filled:
        lines.append(
            f"Server: {server} (the best match's server; this tool does not match by itself)"
        )
    elif not schema or not tool.wire_name.startswith(server):
        # With its schema, a card has all that a call needs, and the name tells the server already.
        lines.append(f"Server: {server}")
    if schema:
        lines += [*_description(tool.description, _MAX_WHOLE_DESCRIPTION), schema]
    else:
        lines += _description(tool.description, _MAX_DESCRIPTION)
        lines.append(f"Parameters: {_parameters(tool.input_schema)}")
    return "\n".join(lines)


@lru_cache(maxsize=1_024)
def brief_spec(tool: ToolSpec) -> ToolSpec:
    """Shorten a tool's definition for a model that has searched: cut a long description, but keep
    the schema's content.
    """
    lines = [line.strip() for line in _description(tool.description, _MAX_WHOLE_DESCRIPTION)]
    return replace(
        tool, description="\n".join(lines), input_schema=brief_schema(tool.definition["parameters"])
    )


@lru_cache(maxsize=1_024)
def _schema_line(tool: ToolSpec) -> str:
    """Format a tool's argument schema in one line, or empty if it is too long for a card."""
    parameters = brief_spec(tool).definition["parameters"]
    text = json.dumps(parameters, ensure_ascii=False, separators=(",", ":"), default=str)
    if len(text) > _MAX_SCHEMA:
        return ""
    return f"{_SCHEMA}{text}"


def presents_schema(content: str, tool: ToolSpec, delivery: Delivery = "bridge") -> bool:
    """Check whether an answer has a tool's card with its schema, or its function with `code`, in
    its current form.
    """
    schema = _function_lines(tool) if delivery == "code" else _schema_line(tool)
    card = content.partition(f"\n\n{_marker(tool)}\n")[2].partition("\n\n")[0]
    return schema != "" and f"\n{card}".endswith(f"\n{schema}")


@lru_cache(maxsize=1_024)
def _function_lines(tool: ToolSpec) -> str:
    """Format a tool's function for a card, below what its parameters mean.

    Empty if it is too long for a card.
    """
    text = function_text(tool)
    if not text:
        return ""
    described = described_parameters(tool)[:_MAX_PARAMETERS]
    lines = [f"  {one_line(each, _MAX_PARAMETER)}" for each in described]
    return "\n".join([*lines, text])


def function_card(tool: ToolSpec) -> str:
    """Format a tool for a model that calls it as a function from the beginning: its description and
    its function.
    """
    lines = [f"# {tool.wire_name}", *_description(tool.description, _MAX_DESCRIPTION)]
    lines.append(_function_lines(tool) or _parameters(tool.input_schema))
    return "\n".join(lines)


def definitions_in(content: str) -> list[dict[str, Any]]:
    """Parse the tools in an answer that has their schemas: each one's `name`, `description` and
    `parameters`.

    Skips a card that a person edited, or that was cut.
    """
    definitions = []
    for block in content.split("\n\n"):
        lines = block.split("\n")
        names = loaded_in(f"\n\n{lines[0]}")
        schema: object = None
        if lines[-1].startswith(_SCHEMA):
            schema = parse_arguments(lines[-1].removeprefix(_SCHEMA))
        if names and isinstance(schema, dict):
            description = "\n".join(line[2:] for line in lines if line.startswith("  "))
            definitions.append({"name": names[0], "description": description, "parameters": schema})
    return definitions


def _description(text: str, limit: int) -> list[str]:
    """Take the description's first lines, cleaned and indented."""
    shown: list[str] = []
    room = limit
    for raw in text[: limit * 4].splitlines():
        line = one_line(raw, limit)
        if not line:
            continue
        if len(shown) == _MAX_LINES * limit // _MAX_DESCRIPTION or room < 20:
            return [*shown, "  ..."]
        shown.append(f"  {one_line(line, room)}")
        room -= len(line)
    return shown


def _parameters(schema: Mapping[str, Any]) -> str:
    whole = SchemaReader(schema)
    names = whole.required_first
    parts = []
    for name in names[:_MAX_PARAMETERS]:
        parts.append(_parameter(name, whole.properties[name], name in whole.required))
    if len(names) > _MAX_PARAMETERS:
        parts.append(f"... and {len(names) - _MAX_PARAMETERS} more")
    return ", ".join(parts) or "none"


def _parameter(name: str, schema: SchemaReader, required: bool) -> str:
    needed = ", required" if required else ""
    return f"{one_line(name, 64)} ({one_line(_type(schema), 80)}{needed})"


def _type(schema: SchemaReader, depth: int = 2) -> str:
    if not depth:
        return "any"
    if schema.choices:
        choices = [one_line(str(choice)[:200], 24) for choice in schema.choices[:6]]
        if len(schema.choices) > 6:
            choices.append("...")
        return f"one of {'/'.join(choices)}"
    if schema.types == ("array",) and schema.items is not None:
        return f"array of {_type(schema.items, depth - 1)}"
    words = list(schema.types)
    if not words:
        words = [_type(option, depth - 1) for option in schema.options[:6] if not option.is_null]
    return " or ".join(word for word in dict.fromkeys(words) if word != "null") or "any"
