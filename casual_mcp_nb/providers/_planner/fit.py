"""Whether a tool fits a need, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers._planner.arguments import Filling, fill
from casual_mcp_nb.providers._planner.expressions import operation
from casual_mcp_nb.providers._planner.mentions import Mention
from casual_mcp_nb.providers._planner.needs import Need
from casual_mcp_nb.providers._planner.schema import Parameter, parameters_of
from casual_mcp_nb.providers._planner.words import alike, content_words, name_stems, stem, words_of
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex

FITS = 0.55
SURE = 0.7
CERTAIN = 0.9
_CHANGING = frozenset(
    stem(verb)
    for verb in words_of(
        "clear copy create delete drop edit execute insert kill move overwrite random remove rename replace run send set "
        "update write"
    )
)
_LEAST_COVERAGE = 0.34
_NEAR = 0.9
_IN_NAME, _IN_DESCRIPTION, _IN_PARAMETERS = 1.0, 0.8, 0.6


@dataclass(frozen=True)
class Offer:
    """A tool as the planner is offered it: its name on the wire, its description and its parameters' schema."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)

    @property
    def server(self) -> str:
        """The part of the name that stands for the server; empty where there is none."""
        return self.name.partition("__")[0] if "__" in self.name else ""

    @property
    def own_name(self) -> str:
        """The name without the server."""
        return self.name.partition("__")[2] or self.name

    @cached_property
    def parameters(self) -> list[Parameter]:
        """What it takes."""
        return parameters_of(self.schema)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the index takes it."""
        return ToolSpec(self.server, self.own_name, self.description, self.schema, wire_name=self.name)

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """How much each stem says about the tool."""
        found: dict[str, float] = {}
        options = [str(option) for parameter in self.parameters for option in parameter.options]
        names = [part for parameter in self.parameters for part in name_stems(parameter.name)]
        described = [word for parameter in self.parameters for word in parameter.stems]
        for weight, stems in (
            (_IN_PARAMETERS, [*names, *described, *(word.stem for word in content_words(" ".join(options)))]),
            (_IN_DESCRIPTION, [word.stem for word in content_words(self.description[:4_000])]),
            (_IN_DESCRIPTION, name_stems(self.server)),
            (_IN_NAME, name_stems(self.own_name)),
        ):
            found.update(dict.fromkeys(stems, weight))
        return found


@dataclass(frozen=True)
class ToolFit:
    """How well a tool fits a need.

    Args:
        offer: The tool.
        filling: Its arguments.
        confidence: From 0 to 1: how much of the need the tool's words and parameters take up.
        rank: What fits are ordered by.
    """

    offer: Offer
    filling: Filling = field(repr=False)
    confidence: float
    rank: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether a call can be made."""
        return not self.filling.missing

    @property
    def fits(self) -> bool:
        """Whether it is good enough."""
        return self.confidence >= FITS


def fit(need: Need, offer: Offer, known: Mapping[str, Any] | None = None) -> ToolFit:
    """Judge one tool by the words of the need that it knows and the values that it takes.

    Args:
        need: What is wanted.
        offer: The tool.
        known: Arguments of an earlier call, for what the need leaves open.
    """
    values = [value for mention in need.mentions for value in _for_tool(mention, offer)]
    filling = fill(need.text, values, offer.parameters, known)
    _drop_words_about_the_tool(need, offer, filling)
    covered = _coverage(need, offer, filling)
    taken = sum(filling.covers(mention.start, mention.end) for mention in values) / len(values) if values else None
    if _is_named(offer, need.text):
        return ToolFit(offer, filling, 1.0, 2.0)
    confidence = _confidence(covered, taken)
    if (covered is None and filling.loose) or _changes_unasked(need, offer):
        confidence = 0.0
    return ToolFit(offer, filling, confidence, confidence + 0.02 * min(filling.typed, 5))


def _is_named(offer: Offer, text: str) -> bool:
    names = [offer.name, *([offer.own_name] if "_" in offer.own_name else [])]
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)


def _drop_words_about_the_tool(need: Need, offer: Offer, filling: Filling) -> None:
    """`Sort the lines` names what the tool does, not which lines."""
    for name, (start, end) in list(filling.loose.items()):
        words = [word for word in need.words if start <= word.start and word.end <= end]
        holds_a_value = any(start <= mention.start and mention.end <= end for mention in need.mentions)
        if not holds_a_value and all(word.stem in offer.weights for word in words):
            del filling.loose[name], filling.arguments[name]
            filling.missing.append(name)


def _changes_unasked(need: Need, offer: Offer) -> bool:
    """Whether the tool's name begins with a word for changing something, or for chance, that the person has not said."""
    verb = next(iter(name_stems(offer.own_name)), "")
    return verb in _CHANGING and alike(verb).isdisjoint(word.stem for word in need.words)


def _for_tool(mention: Mention, offer: Offer) -> list[Mention]:
    """The mention as this tool can take it: `5 + 7` as its two numbers for a tool that adds."""
    parts = operation(mention.value) if mention.kind == "expression" else None
    if parts is None or not alike(stem(parts[0])).intersection(name_stems(offer.own_name)):
        return [mention]
    first, second = mention.start + 1, mention.end - 1
    return [
        replace(mention, kind="number", value=parts[1], end=first),
        replace(mention, kind="number", value=parts[2], start=second),
    ]


def _confidence(covered: float | None, taken: float | None) -> float:
    if covered is None:
        return 0.9 if taken == 1 else 0.0
    if covered < _LEAST_COVERAGE:
        return 0.0
    return covered if taken is None else 0.6 * covered + 0.4 * taken


def _coverage(need: Need, offer: Offer, filling: Filling) -> float | None:
    """Which part of the need's words the tool knows; None where the need has none beside what became arguments."""
    words = {word.stem: word for word in need.words if not filling.covers(word.start, word.end, loosely=True)}
    scores = [_weight(one, offer.weights) for one in words]
    if scores and max(scores) < _NEAR * _IN_DESCRIPTION:
        # Names of parameters alone, such as `order`, say nothing of what the tool is about.
        return 0.0
    if scores:
        scores += filter(None, (_weight(stem(word), offer.weights) for word in need.implied))
    return sum(scores) / len(scores) if scores else None


def _weight(word: str, weights: Mapping[str, float]) -> float:
    near = max(weights.get(other, 0.0) for other in alike(word))
    return max(weights.get(word, 0.0), _NEAR * near)


def best_fits(
    need: Need, offers: Sequence[Offer], index: ToolSearchIndex, known: Mapping[str, Mapping[str, Any]]
) -> list[ToolFit]:
    """The tools for a need, the best first.

    Args:
        need: What is wanted.
        offers: The tools.
        index: The same tools, ranked by words where the fit leaves it open.
        known: For a need that goes on from an earlier call: the tool of that call and its arguments.
    """
    hits = index.search(need.query, max_results=len(offers) or 1)
    top = max((hit.score for hit in hits), default=0.0) or 1.0
    share = {hit.tool.wire_name: hit.score / top for hit in hits}
    fits = [_with_earlier(need, offer, known.get(offer.name)) for offer in offers]
    ordered = [ToolFit(f.offer, f.filling, f.confidence, f.rank + 0.1 * min(1.0, share.get(f.offer.name, 0.0))) for f in fits]
    return sorted(ordered, key=lambda f: (-f.rank, len(f.filling.missing), f.offer.name))


def _with_earlier(need: Need, offer: Offer, known: Mapping[str, Any] | None) -> ToolFit:
    alone = fit(need, offer)
    if known is None or not need.follows:
        return alone
    going_on = fit(need, offer, known)
    # The tool that was used a moment ago takes all that is new: it is meant, though no word says so.
    all_taken = need.mentions and all(going_on.filling.covers(m.start, m.end) for m in need.mentions)
    strange = [w for w in need.words if not going_on.filling.covers(w.start, w.end) and not _weight(w.stem, offer.weights)]
    if all_taken and not strange and going_on.filling.typed:
        return ToolFit(offer, going_on.filling, 0.95, 1.2)
    return alone
