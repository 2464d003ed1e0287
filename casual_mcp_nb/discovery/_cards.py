"""Format the search tool's answer as cards for the model. Each begins with a marker line, which `types.cards` reads again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.discovery.manifest import plain, plain_name
from casual_mcp_nb.types.cards import loaded_in
from casual_mcp_nb.types.delivery import Delivery
from casual_mcp_nb.types.event import CALL_TOOL
from casual_mcp_nb.types.nesting import parse_arguments
from casual_mcp_nb.types.schema import SchemaReader
from casual_mcp_nb.types.tool import ToolName, ToolSpec

MAX_ANSWER = 12_000
_MAX_CARDS = 8_000
_MAX_SCHEMA = 6_000
_SCHEMA = "Schema of arguments: "
_MAX_NOTES = 2_000
_MAX_LINES = 8
_MAX_DESCRIPTION = 500
_MAX_WHOLE_DESCRIPTION = 2_000
_MAX_PARAMETERS = 20
_MAX_SIBLINGS = 800
_MAX_TOO_LARGE = 12
"""How many tools are named that a search found and did not load."""
SIBLINGS_EACH = 12
"""How many of a server's other tools are named."""
_SIBLING_SERVERS = 5


class Siblings(NamedTuple):
    """Tools of a server that are not loaded: some of them, and how many there are in all."""

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
    """Format the answer that presents tools.

    Args:
        tools: The tools found, best first.
        loaded: Tools that the model can already call.
        notes: Other lines for the model.
        filled: Tools that did not match and are included because of their server.
        siblings: By server, tools that are named at the end but not loaded.
        delivery: How the model gets them: with `native` its provider adds the definitions, so cards are only names; with
            `bridge` nothing else has their schemas.
        presented: Loaded tools of which the model has read all; None for all that are loaded.
        max_tokens: Maximum size of the definitions of tools that are not loaded yet; one fits always. None for no limit.

    Returns:
        The text, of at most 12,000 characters, and the tools in it that are loaded. Others are named or counted in it.
    """
    note = one_line(" ".join(notes), _MAX_NOTES)
    others = _sibling_lines(siblings or {})
    blocks: list[str] = []
    used = len(note) + len(others)
    presented = loaded if presented is None else presented
    inside: list[ToolSpec] = []
    too_large: list[ToolSpec] = []
    tokens = 0
    for tool in tools:
        size = 0 if max_tokens is None or tool.tool_name in loaded else tool.tokens
        if max_tokens is not None and tokens and size and tokens + size > max_tokens:
            too_large.append(tool)
            used += len(tool.wire_name) + 2
            if len(too_large) == _MAX_TOO_LARGE:
                break
            continue
        card = _card(tool, tool.tool_name in presented, tool in filled, delivery)
        # A name is enough where the definition comes another way.
        block = card if used + len(card) <= _MAX_CARDS or delivery == "bridge" else _marker(tool)
        if blocks and used + len(block) > MAX_ANSWER - 500:
            break
        blocks.append(block)
        inside.append(tool)
        used += len(block) + 2
        tokens += size
    left_out = len(tools) - len(inside) - len(too_large)
    more = f"{left_out} more are not loaded. Search with a query or with tool_names for those you need." if left_out else ""
    parts = [_header(inside, loaded, delivery), note, *blocks, _too_large(too_large, max_tokens), more, others]
    return "\n\n".join(filter(None, parts)), tuple(inside)


def _too_large(tools: Sequence[ToolSpec], max_tokens: int | None) -> str:
    """Name the tools that a search found and did not load, indented so that none can look like a marker."""
    if not tools:
        return ""
    head = f"Found but not loaded, since one search loads at most {max_tokens:,} tokens (load with tool_names those you need):"
    return f"{head}\n  {', '.join(tool.wire_name for tool in tools)}"


def marked(head: str, tools: Iterable[ToolSpec]) -> str:
    """Format a line of tool names, marked so that they can be parsed again."""
    return "\n\n".join([head, *map(_marker, tools)])


def _sibling_lines(siblings: Mapping[str, Siblings]) -> str:
    """List tool names by server, indented so that none can look like a marker; the rest are counted."""
    servers = [(server, others) for server, others in siblings.items() if others.total]
    if not servers:
        return ""
    share = _MAX_SIBLINGS // min(len(servers), _SIBLING_SERVERS)
    lines = [f"  {plain(server, 60)}: {_sibling_names(others, share)}" for server, others in servers[:_SIBLING_SERVERS]]
    unnamed = sum(others.total for _, others in servers[_SIBLING_SERVERS:])
    if unnamed:
        lines.append(f"  ... and {unnamed} more of other servers")
    return "\n".join(["Not loaded, on the same servers (load with tool_names):", *lines])


def _sibling_names(siblings: Siblings, room: int) -> str:
    names: list[str] = []
    for name in map(plain_name, siblings.tools[:SIBLINGS_EACH]):
        room -= len(name) + 2
        if room < 0:
            break
        names.append(name)
    left = siblings.total - len(names)
    return ", ".join([*names, f"{'... and ' if names else ''}{left} more"] if left else names)


def _marker(tool: ToolSpec) -> str:
    return f"## {tool.wire_name}"


def _header(tools: Sequence[ToolSpec], loaded: Set[ToolName], delivery: Delivery) -> str:
    count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
    call = "call it by its name." if len(tools) == 1 else "call them by their names."
    if delivery == "bridge":
        call = f"call {'it' if len(tools) == 1 else 'them'} through {CALL_TOOL}, in your next answer."
    old = sum(tool.tool_name in loaded for tool in tools)
    new = len(tools) - old
    if not old:
        return f"Found {count}. {'It is' if new == 1 else 'They are'} loaded now; {call}"
    if not new:
        return f"Found {count}, already loaded; {call}"
    now, before = ("is" if new == 1 else "are"), ("was" if old == 1 else "were")
    return f"Found {count}: {new} {now} loaded now, {old} {before} already loaded; {call}"


def _card(tool: ToolSpec, already_loaded: bool, filled: bool, delivery: Delivery) -> str:
    if already_loaded:
        return f"{_marker(tool)}\nAlready loaded."
    if delivery == "native":
        return _marker(tool)
    why = " (the best match's server; this tool does not match by itself)" if filled else ""
    head = [_marker(tool), f"Server: {one_line(tool.server, 200)}{why}"]
    schema = schema_text(tool) if delivery == "bridge" else ""
    parameters = f"{_SCHEMA}{schema}" if schema else f"Parameters: {_parameters(tool.input_schema)}"
    return "\n".join(
        [*head, *_description(tool.description, _MAX_WHOLE_DESCRIPTION if schema else _MAX_DESCRIPTION), parameters]
    )


def schema_text(tool: ToolSpec) -> str:
    """Format the schema of a tool's arguments in one line, as in a request; empty if it is too long for a card."""
    text = json.dumps(tool.definition["parameters"], ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= _MAX_SCHEMA else ""


def definitions_in(content: str) -> list[dict[str, Any]]:
    """Parse the tools of an answer that has their schemas: `name`, `description` and `parameters` of each.

    A card that a person edited, or that was cut, is left out.
    """
    definitions = []
    for block in content.split("\n\n"):
        lines = block.split("\n")
        names = loaded_in(f"\n\n{lines[0]}")
        schema = parse_arguments(lines[-1].removeprefix(_SCHEMA)) if lines[-1].startswith(_SCHEMA) else ""
        if names and isinstance(schema, dict):
            description = "\n".join(line[2:] for line in lines if line.startswith("  "))
            definitions.append({"name": names[0], "description": description, "parameters": schema})
    return definitions


def _description(text: str, limit: int) -> list[str]:
    """Take the description's first lines, cleaned and indented."""
    lines = [one_line(line, limit) for line in text[: limit * 4].splitlines()]
    shown: list[str] = []
    room = limit
    for line in filter(None, lines):
        if len(shown) == _MAX_LINES * limit // _MAX_DESCRIPTION or room < 20:
            return [*shown, "  ..."]
        shown.append(f"  {one_line(line, room)}")
        room -= len(line)
    return shown


def _parameters(schema: Mapping[str, Any]) -> str:
    whole = SchemaReader(schema)
    names = sorted(whole.properties, key=lambda name: name not in whole.required)
    parts = [_parameter(name, whole.properties[name], name in whole.required) for name in names[:_MAX_PARAMETERS]]
    if len(names) > _MAX_PARAMETERS:
        parts.append(f"... and {len(names) - _MAX_PARAMETERS} more")
    return ", ".join(parts) or "none"


def _parameter(name: str, schema: SchemaReader, required: bool) -> str:
    return f"{one_line(name, 64)} ({one_line(_type(schema), 80)}{', required' if required else ''})"


def _type(schema: SchemaReader, depth: int = 2) -> str:
    """Describe a schema's type in words."""
    if not depth:
        return "any"
    if schema.choices:
        choices = "/".join(one_line(str(choice)[:200], 24) for choice in schema.choices[:6])
        return f"one of {choices}{'/...' if len(schema.choices) > 6 else ''}"
    if schema.types == ("array",) and schema.items is not None:
        return f"array of {_type(schema.items, depth - 1)}"
    words = schema.types or [_type(option, depth - 1) for option in schema.options[:6] if not option.is_null]
    return " or ".join(word for word in dict.fromkeys(words) if word != "null") or "any"
