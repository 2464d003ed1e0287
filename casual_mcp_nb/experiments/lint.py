"""Find what makes tools hard to find or expensive: texts that server authors should fix."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import get_args

from casual_mcp_nb.base.config import DiscoveryConfig
from casual_mcp_nb.base.dialects import DIALECTS, HOSTS
from casual_mcp_nb.base.elsewhere import elsewhere
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.base.wire_names import MAX_WIRE_NAME
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex
from casual_mcp_nb.discovery.text import one_line, terms
from casual_mcp_nb.display.words import listed
from casual_mcp_nb.experiments.findings import FindingKind, Lint, LintFinding

_Found = Iterator[tuple[FindingKind, str]]
"""Kinds and texts of findings about one tool."""
_ALIKE = 0.9
_LONG_DESCRIPTION = 300
_READ = 2_000
_NAMED = 5
_OBVIOUS = 120
_MAX_SEARCHED = 500
_EMPTY_WORDS = """
call calculation conversion data do does execute function handle handler helper input item method object operation output
perform process processing provide request result return run service task thing this tool use useful utility value work
"""
_GENERIC = frozenset(terms(_EMPTY_WORDS))
_ORDER = {kind: rank for rank, kind in enumerate(get_args(FindingKind))}


def lint(catalog: Iterable[ToolSpec]) -> Lint:
    """Check a catalog for defects that server authors should fix.

    Args:
        catalog: The tools.

    Returns:
        Tools that no query can distinguish (apart from the server's name, nine tenths of their
        words are the same, and neither name has a word that the other lacks), tools and parameters
        without a description, descriptions that add no word to the name, tools that a search for
        their own name or first sentence does not return, descriptions above 300 tokens, names that
        are too long for the wire, schemas that a provider refuses, and what other hosts change or
        leave out.
    """
    tools = Catalog(catalog)
    findings = list(_same_texts(tools))
    for check in _CHECKS:
        for tool in tools:
            findings += [LintFinding(kind, tool.tool_name, text) for kind, text in check(tool)]
    described = [finding for finding in findings if finding.kind not in ("provider", "host")]
    findings += _hard_to_find(tools, {finding.tool for finding in described})
    return Lint(tuple(sorted(findings, key=lambda finding: _ORDER[finding.kind])), len(tools))


def _description(tool: ToolSpec) -> _Found:
    if not tool.description.strip():
        yield "no description", "It has no description: only its name and parameters can be found."
        return
    words = set(terms(tool.description[:_READ]))
    if words <= _GENERIC.union(terms(tool.name)):
        yield (
            "generic description",
            (
                "Its description adds nothing to its name. What goes in, what comes out, when is it"
                " used?"
            ),
        )
    tokens = estimate_tokens(tool.description)
    if tokens > _LONG_DESCRIPTION:
        yield (
            "long description",
            f"Its description takes ≈ {tokens:,} of its ≈ {tool.tokens:,} tokens.",
        )


def _parameters(tool: ToolSpec) -> _Found:
    properties = SchemaReader(tool.input_schema).properties
    silent = [name for name, part in properties.items() if not part.description.strip()]
    if silent:
        yield (
            "parameter without description",
            f"No description: {listed((one_line(name, 64) for name in silent), _NAMED)}.",
        )


def _wire_name(tool: ToolSpec) -> _Found:
    length = len(tool.tool_name.joined)
    if length > MAX_WIRE_NAME:
        yield (
            "name",
            (
                f"server__tool has {length} characters, and {MAX_WIRE_NAME} are allowed. The model"
                f" reads {tool.wire_name}."
            ),
        )


def _taken_elsewhere(tool: ToolSpec) -> _Found:
    by_reason = defaultdict(list)
    for each in elsewhere(tool):
        by_reason[each.effect, each.reason].append(each.where)
    for (effect, reason), places in by_reason.items():
        where = "Every provider" if len(places) == len(DIALECTS) else ", ".join(places)
        if effect == "changed":
            yield (
                "provider",
                (
                    f"{where}: its schema would be refused as it is, so another form is sent:"
                    f" {reason}."
                ),
            )
        else:
            if effect == "left out":
                reason = f"it is left out, because {reason}"
            kind: FindingKind = "host" if places[0] in _HOSTS else "provider"
            yield kind, f"{where}: {reason}."


_HOSTS = {host.title for host in HOSTS}
_CHECKS = (
    _description,
    _parameters,
    _wire_name,
    _taken_elsewhere,
)


def _same_texts(tools: Catalog) -> Iterator[LintFinding]:
    """Report each tool that duplicates an earlier one, so that a pair counts once."""
    texts = [frozenset(_words(tool)) for tool in tools]
    for index, near in _alike(texts).items():
        own = set(terms(tools[index].name))
        names = []
        for other in near:
            # Neither name has a word that the other tool lacks.
            if own <= texts[other] and texts[index].issuperset(terms(tools[other].name)):
                names.append(tools[other].tool_name)
        if names:
            yield LintFinding(
                "same text",
                tools[index].tool_name,
                f"Same description: {listed(map(str, names), _NAMED)}.",
                tuple(names),
            )


def _hard_to_find(tools: Catalog, reported: Set[ToolName]) -> Iterator[LintFinding]:
    """Report tools that their own obvious questions do not find: the name in words, and the
    description's first sentence.

    Those that are `reported` already have a reason.
    """
    limit = DiscoveryConfig().max_search_results
    index = ToolSearchIndex(tools)
    # Of a larger catalog only every nth tool is searched for: each takes two searches.
    for tool in tools[:: max(1, len(tools) // _MAX_SEARCHED)]:
        if tool.tool_name in reported:
            continue
        # In the other order, since the name itself would always find it.
        words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+", tool.name)[::-1]
        for query in filter(None, (" ".join(words), first_sentence(tool))):
            names = [hit.tool.tool_name for hit in index.search(query, limit)]
            if names and tool.tool_name not in names:
                text = (
                    f"A search by words for “{one_line(query, 64)}” returns"
                    f" {listed(map(str, names[:_NAMED]), _NAMED)}, and not this tool."
                )
                yield LintFinding("hard to find", tool.tool_name, text, tuple(names))
                break


def first_sentence(tool: ToolSpec) -> str:
    """Cut a description after its first sentence, or after 120 characters."""
    return re.split(r"(?<=[.!?])\s", tool.description.strip()[:_OBVIOUS])[0]


def _words(tool: ToolSpec) -> list[str]:
    names = " ".join(SchemaReader(tool.input_schema).properties)
    return terms(f"{tool.name} {tool.description[:_READ]} {names[:_READ]}")


def _alike(texts: Sequence[frozenset[str]]) -> dict[int, list[int]]:
    """Find for each text the earlier ones that share nine tenths of its words.

    The first represents identical ones.

    Such texts share at least one of their rarest words, so only texts with a rare word in common
    are compared.
    """
    first: dict[frozenset[str], int] = {}
    frequency: Counter[str] = Counter()
    for text in texts:
        frequency.update(text)
    holders: dict[str, list[int]] = defaultdict(list)
    alike = {}
    for index, text in enumerate(texts):
        if first.setdefault(text, index) != index:
            alike[index] = [first[text]] if text else []
            continue
        rarest = sorted(text, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(text) - -(-len(text) * 9 // 10) + 1]
        near = set()
        for word in prefix:
            near.update(holders[word])
        same = [other for other in sorted(near) if _share(text, texts[other]) >= _ALIKE]
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
