"""Check a catalog for defects that make its tools hard to find, or expensive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import get_args

from casual_mcp_nb.discovery._clean import one_line
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.types.evaluation import FindingKind, Lint, LintFinding
from casual_mcp_nb.types.schema import SchemaReader
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import MAX_WIRE_NAME, Catalog, ToolName, ToolSpec

_ALIKE = 0.9
_LONG_DESCRIPTION = 300
_READ = 2_000
_NAMED = 5
_ORDER = {kind: rank for rank, kind in enumerate(get_args(FindingKind))}


def lint(catalog: Iterable[ToolSpec]) -> Lint:
    """Check a catalog for defects that the authors of its servers should fix.

    Args:
        catalog: The tools.

    Returns:
        Tools that no query can tell apart (apart from the server's name, nine tenths of their words are the same, and neither
        name has a word that the other lacks), tools and parameters without a description, descriptions of more than 300
        tokens, and names that are too long for the wire.
    """
    tools = Catalog(catalog)
    findings = list(_same_texts(tools))
    for check in _CHECKS:
        findings += [LintFinding(kind, tool.tool_name, text) for tool in tools for kind, text in check(tool)]
    return Lint(tuple(sorted(findings, key=lambda finding: _ORDER[finding.kind])), len(tools))


def _description(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    if not tool.description.strip():
        yield "no description", "It has no description: only its name and parameters can be found."
        return
    tokens = estimate_tokens(tool.description)
    if tokens > _LONG_DESCRIPTION:
        yield "long description", f"Its description takes ≈ {tokens:,} of its ≈ {tool.tokens:,} tokens."


def _parameters(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    properties = SchemaReader(tool.input_schema).properties
    silent = [name for name, part in properties.items() if not part.description.strip()]
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        names = ", ".join(one_line(name, 64) for name in silent[:_NAMED])
        yield "parameter without description", f"No description: {names}{more}."


def _wire_name(tool: ToolSpec) -> Iterator[tuple[FindingKind, str]]:
    length = len(f"{tool.server}__{tool.name}")
    if length > MAX_WIRE_NAME:
        yield "name", f"server__tool has {length} characters, {MAX_WIRE_NAME} are allowed; the model reads {tool.wire_name}."


_CHECKS: tuple[Callable[[ToolSpec], Iterator[tuple[FindingKind, str]]], ...] = (_description, _parameters, _wire_name)


def _same_texts(tools: Catalog) -> Iterator[LintFinding]:
    """Report each tool that duplicates others, except the first of them, so that a pair counts once."""
    texts = [frozenset(_words(tool)) for tool in tools]
    for index, near in _alike(texts).items():
        own = set(terms(tools[index].name))
        others = [other for other in near if own <= texts[other] and texts[index].issuperset(terms(tools[other].name))]
        names = tuple(tools[other].tool_name for other in others)
        if names:
            yield LintFinding("same text", tools[index].tool_name, f"It says the same as {_listed(names)}.", names)


def _words(tool: ToolSpec) -> list[str]:
    names = " ".join(SchemaReader(tool.input_schema).properties)
    return terms(f"{tool.name} {tool.description[:_READ]} {names[:_READ]}")


def _alike(texts: Sequence[frozenset[str]]) -> dict[int, list[int]]:
    """Find for each text the earlier ones that share nine tenths of its words; the first represents identical ones.

    Two such texts share one of their rarest tenth of words, so only texts with a rare word in common are compared.
    """
    first: dict[frozenset[str], int] = {}
    frequency = Counter(word for text in texts for word in text)
    holders: dict[str, list[int]] = defaultdict(list)
    alike: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        if first.setdefault(text, index) != index:
            alike[index] = [first[text]] if text else []
            continue
        rarest = sorted(text, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(text) - -(-len(text) * 9 // 10) + 1]
        near = sorted({other for word in prefix for other in holders[word]})
        same = [other for other in near if _share(text, texts[other]) >= _ALIKE]
        if same:
            alike[index] = same
        for word in prefix:
            holders[word].append(index)
    return alike


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    if not _ALIKE <= len(one) / len(other) <= 1 / _ALIKE:
        return 0.0
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def _listed(names: Sequence[ToolName]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(str, names[:_NAMED])) + more
