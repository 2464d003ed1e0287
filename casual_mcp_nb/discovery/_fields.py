"""The indexed text of a tool: five fields, each with a weight and a length limit that keeps huge descriptions harmless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from casual_mcp_nb.discovery.text import readable, spelled, terms
from casual_mcp_nb.types.schema import SchemaReader
from casual_mcp_nb.types.tool import ToolSpec


class IndexField(NamedTuple):
    """A field of the index: its display name, its weight, and its length normalisation (BM25's b)."""

    name: str
    weight: float
    b: float = 0.75


FIELDS = (
    IndexField("name", 3.0),
    IndexField("server", 1.5, b=0.0),
    IndexField("description", 1.0),
    IndexField("parameter name", 0.7),
    IndexField("details", 0.6),
)

_MAX_NAME = 200
_BEGINNING = 500
"""How many characters of a description count as its purpose; the rest is detail."""
_MAX_DESCRIPTION = 1_500
_MAX_PARAMETERS = 100
_MAX_PARAMETER_DESCRIPTION = 200
_MAX_PARAMETER_TEXT = 2_000
_MAX_CHOICES = 20
_MAX_DEPTH = 4


def texts(tool: ToolSpec) -> tuple[str, ...]:
    """Collect the tool's text for each of `FIELDS`.

    The details are the parameters' descriptions and choices (`enum`), and the rest of the tool's own description.
    """
    names, descriptions, length = [], [], 0
    for name, schema in _parameters(SchemaReader(tool.input_schema)):
        names.append(name[:_MAX_NAME])
        if length < _MAX_PARAMETER_TEXT:
            descriptions.append(_described(schema))
            length += len(descriptions[-1])
        if len(names) == _MAX_PARAMETERS:
            break
    description = tool.description[:_BEGINNING]
    if tool.title:
        description += f" {tool.title[:_MAX_NAME]}"
    if tool.tags:
        description += f" {' '.join(tool.tags)[:_MAX_NAME]}"
    details = " ".join([*descriptions, tool.description[_BEGINNING:_MAX_DESCRIPTION]])
    return tool.name[:_MAX_NAME], tool.server[:_MAX_NAME], description, " ".join(names), details


def words_found(query: str, tools: Iterable[ToolSpec]) -> Iterator[tuple[str, ...]]:
    """Yield for each tool the words of a query that it has in any form, in the order of the query."""
    query_words = [(term, word) for term, word in spelled(readable(query)).items() if " " not in word]
    for tool in tools:
        own = {term for text in texts(tool) for term in terms(text)}
        yield tuple(word for term, word in query_words if term in own)


def _described(part: SchemaReader) -> str:
    """Convert a parameter's description and choices to text."""
    description = part.description[:_MAX_PARAMETER_DESCRIPTION]
    if not part.choices:
        return description
    return " ".join([description, *(choice[:_MAX_NAME] for choice in part.choices[:_MAX_CHOICES] if isinstance(choice, str))])


def _parameters(schema: SchemaReader, depth: int = 0) -> Iterator[tuple[str, SchemaReader]]:
    """Yield the names and schemas of the parameters, nested ones after their parent."""
    if depth > _MAX_DEPTH:
        return
    for name, inner in schema.properties.items():
        yield name, inner
        if not inner.is_leaf:
            yield from _parameters(inner, depth + 1)
    if schema.items is not None:
        yield from _parameters(schema.items, depth + 1)
