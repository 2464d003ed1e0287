"""Fills a tool's arguments from a request, by the tool's schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.providers._planner.mentions import Mention
from casual_mcp_nb.providers._planner.needs import OPENS_WITH_VERB
from casual_mcp_nb.providers._planner.schema import Parameter
from casual_mcp_nb.providers._planner.values import FROM_WORDS, TO_WORDS, cast, ends_of, matching_option, numeric, value_of
from casual_mcp_nb.providers._planner.words import WORD, content_words, is_stop, stem, words_of

# Mentions that can stand for a wanted kind, the best first.
_ACCEPTED = {
    "zone": ("zone",),
    "unit": ("quantity", "unit"),
    "expression": ("expression",),
    "url": ("url",),
    "email": ("email",),
    "glob": ("glob",),
    "path": ("path", "quoted"),
    "sql": ("sql", "quoted"),
    "date": ("date", "time"),
    "time": ("time", "date"),
    "text": ("quoted", "json"),
    "search": ("quoted",),
    "number": ("quoted", "number"),
    "": ("quoted",),
}
_REST_MARKER = re.compile(r":\s+|\b(?:of|in|that|saying|says|for|about|matching|containing)\s+", re.I)
_COLON = re.compile(r":\s+")
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)


@dataclass
class Filling:
    """Arguments for a tool as far as a request has them.

    Args:
        arguments: The arguments.
        missing: Required parameters that the request does not fill.
        spans: The stretches of the request that were used as values.
        loose: Those that were used as mere words, by the parameter that got them.
        typed: How many arguments came from values that are what the parameter wants, not from mere words.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    loose: dict[str, tuple[int, int]] = field(default_factory=dict)
    typed: int = 0

    def covers(self, start: int, end: int, *, loosely: bool = False) -> bool:
        """Whether this stretch of the request was used as a value, or `loosely` as mere words."""
        return any(start < stop and begin < end for begin, stop in [*self.spans, *(self.loose.values() if loosely else ())])


def fill(
    text: str, mentions: Sequence[Mention], parameters: Sequence[Parameter], known: Mapping[str, Any] | None = None
) -> Filling:
    """Fill a tool's arguments.

    Args:
        text: The request.
        mentions: The values in it.
        parameters: The tool's parameters, those that are required first.
        known: Arguments of an earlier call, for what the request leaves open.

    Returns:
        The arguments, and the names of those that are missing. Optional ones are filled only where the request says them.
    """
    filler = _Filler(text, list(mentions))
    for parameter in parameters:
        filler.assigned(parameter)
    filler.pairs([parameter for parameter in parameters if parameter.direction])
    for parameter in parameters:
        if parameter.name not in filler.filling.arguments:
            filler.one(parameter)
    for name, value in (known or {}).items():
        filler.filling.arguments.setdefault(name, value)
    for parameter in parameters:
        # Mere words come last, and only where a call is impossible without them.
        if parameter.required and parameter.name not in filler.filling.arguments and not filler.words(parameter):
            filler.filling.missing.append(parameter.name)
    return filler.filling


_MONTHS = words_of("january february march april may june july august september october november december")
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})\b", re.I)
_AMOUNTS = ("count", "limit", "n", "k", "top", "max_results", "max_count")


class _Filler:
    def __init__(self, text: str, mentions: list[Mention]) -> None:
        self.text = text
        self.free = mentions
        self.filling = Filling()

    def put(self, name: str, value: Any, start: int, end: int, *, typed: bool = True) -> None:
        self.filling.arguments[name] = value
        if typed:
            self.filling.spans.append((start, end))
        else:
            self.filling.loose[name] = (start, end)
        self.filling.typed += typed
        self.free = [mention for mention in self.free if mention.end <= start or mention.start >= end]

    def assigned(self, parameter: Parameter) -> None:
        """`name=value` and `name: value`, which say it in so many words."""
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        match = re.search(rf"(?<!\w){spoken}\s*(?:=|:(?=\s))\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s,;]+))", self.text)
        if match:
            value = cast(next(group for group in match.groups() if group is not None), parameter)
            if value is not None:
                self.put(parameter.name, value, match.start(), match.end())

    def pairs(self, parameters: Sequence[Parameter]) -> None:
        """Parameters that are the two ends of something: from and to, source and destination, start and end."""
        open_ones = [parameter for parameter in parameters if parameter.name not in self.filling.arguments]
        for source in open_ones:
            target = next((p for p in open_ones if source.direction == "source" and _opposite(source, p)), None)
            if target is None:
                continue
            candidates = [mention for mention in self.free if mention.kind in _kinds(source)]
            first, second = ends_of(candidates, self.text)
            for parameter, mention in ((source, first), (target, second)):
                value = value_of(mention, parameter) if mention else None
                if mention is not None and value is not None:
                    self._take(parameter, mention, value)

    def _take(self, parameter: Parameter, mention: Mention, value: Any) -> None:
        if mention.kind == "quantity" and parameter.kind == "unit":
            # Its number is still wanted by another parameter.
            amount = Mention("number", mention.value, mention.start, mention.end, mention.marker)
            self.put(parameter.name, value, mention.start, mention.end)
            self.free.insert(0, amount)
        else:
            self.put(parameter.name, value, mention.start, mention.end)

    def one(self, parameter: Parameter) -> None:
        """A parameter on its own: by its type, then by the kind of value that its name promises."""
        if parameter.options:
            self._option(parameter)
        elif parameter.type == "boolean":
            self._boolean(parameter)
        elif parameter.type in ("number", "integer"):
            self._number(parameter)
        elif parameter.type == "array":
            self._array(parameter)
        elif parameter.type == "object":
            self._first(parameter, ("json",))
        elif not (parameter.required or parameter.kind) or not self._first(parameter, _ACCEPTED[parameter.kind]):
            self._named(parameter)

    def _first(self, parameter: Parameter, kinds: Sequence[str]) -> bool:
        for kind in kinds:
            if kind == "quoted" and not parameter.required:
                continue
            for mention in self.free:
                value = value_of(mention, parameter) if mention.kind == kind else None
                if value is not None:
                    self._take(parameter, mention, value)
                    return True
        return False

    def _option(self, parameter: Parameter) -> None:
        for match in WORD.finditer(self.text):
            found = matching_option(match[0], parameter.options)
            if found is not None and not (is_stop(match[0]) and not parameter.required):
                self.put(parameter.name, found, match.start(), match.end())
                return

    def _boolean(self, parameter: Parameter) -> None:
        said = {word.stem: word for word in content_words(self.text)}
        parts = [stem(part) for part in re.findall(r"[^\W\d_]+", parameter.name)]
        if parts and all(part in said for part in parts):
            first, last = said[parts[0]], said[parts[-1]]
            positive = _NO.search(self.text[: first.start]) is None
            self.put(parameter.name, positive, first.start, last.end)

    def _number(self, parameter: Parameter) -> None:
        month = _MONTH.search(self.text) if parameter.name == "month" else None
        if month:
            self.put(parameter.name, _MONTHS.index(month[1].casefold()) + 1, month.start(), month.end())
            return
        for mention in self.free:
            beside = self.text[max(0, mention.start - 30) : mention.end + 30].casefold()
            named = mention.kind == "quantity" and stem(mention.unit) in (stem(parameter.name), *parameter.stems)
            called = re.search(rf"\b{re.escape(parameter.name.replace('_', ' '))}\b", beside) is not None
            amount = parameter.name in _AMOUNTS and mention.kind == "number" and mention.marker not in (*FROM_WORDS, *TO_WORDS)
            wanted = amount or (parameter.required and mention.kind == "number")
            value = numeric(mention, parameter)
            if value is not None and (wanted or named or (called and mention.kind == "number")):
                self.put(parameter.name, value, mention.start, mention.end)
                return

    def _array(self, parameter: Parameter) -> None:
        for mention in self.free:
            if mention.kind == "json" and isinstance(mention.value, list) and len(mention.value) >= parameter.least:
                self.put(parameter.name, mention.value, mention.start, mention.end)
                return
        kinds = ("number",) if parameter.item_type in ("number", "integer") else _ACCEPTED[parameter.kind]
        found = [mention for mention in self.free if mention.kind in kinds]
        if parameter.required and found and len(found) >= parameter.least:
            values = [mention.value for mention in found]
            for mention in found:
                self.put(parameter.name, values, mention.start, mention.end)

    def _named(self, parameter: Parameter) -> None:
        """`the table orders`, `the orders table`, `folder notes`: a value beside the parameter's name."""
        names = [parameter.name.replace("_", " ")] + (["folder", "directory", "file"] if parameter.kind == "path" else [])
        for name in names:
            spoken = re.escape(name)
            for pattern in (
                rf"\b{spoken}\s+(?:named\s+|called\s+|is\s+)?([\w][\w.@/-]{{0,99}})",
                rf"\b([\w][\w.@/-]{{0,99}})\s{{1,9}}{spoken}\b",
            ):
                match = re.search(pattern, self.text, re.I)
                if match and not is_stop(match[1]) and stem(match[1]) not in _GENERIC:
                    self.put(parameter.name, match[1], match.start(1), match.end(1))
                    return

    def words(self, parameter: Parameter) -> bool:
        """Mere words of the request, for a text that anything can be."""
        if parameter.type != "string" or parameter.options or parameter.kind not in ("text", "search", ""):
            return False
        if parameter.kind == "":
            return self._proper_name(parameter)
        orders = OPENS_WITH_VERB.match(self.text)
        markers = list((_REST_MARKER if orders else _COLON).finditer(self.text))
        match = markers[-1 if parameter.kind == "search" else 0] if markers else None
        if match is None and orders is None:
            return False
        start = match.end() if match else _after_first_word(self.text)
        start += len(self.text[start:]) - len(self.text[start:].lstrip())
        rest = self.text[start:].rstrip(" ?.!")
        if not rest or self.filling.covers(start, start + len(rest), loosely=True) or not content_words(rest):
            return False
        self.put(parameter.name, rest, start, start + len(rest), typed=False)
        return True

    def _proper_name(self, parameter: Parameter) -> bool:
        match = re.search(r"\b(?:in|for|of|at|about|called|named)\s+((?:[A-Z][\w'\u2019-]*\s?)+)", self.text)
        zone = match and next((m for m in self.free if m.kind == "zone" and m.start == match.start(1)), None)
        if match is None or self.filling.covers(match.start(1), match.end(1)):
            return False
        end = zone.end if zone else match.end(1)
        self.put(parameter.name, self.text[match.start(1) : end].strip(), match.start(1), end)
        return True


_GENERIC = frozenset(
    map(stem, words_of("all available content current describe different every list name new other read same working"))
)


def _kinds(parameter: Parameter) -> tuple[str, ...]:
    if parameter.type in ("number", "integer"):
        return ("base",) if "base" in parameter.name else ("number",)
    return _ACCEPTED.get(parameter.kind, ()) if parameter.kind not in ("text", "search", "") else ()


def _opposite(source: Parameter, other: Parameter) -> bool:
    return other.direction == "target" and _kinds(other) == _kinds(source) and bool(_kinds(source))


def _after_first_word(text: str) -> int:
    words = list(WORD.finditer(text))
    return words[0].end() if len(words) > 1 else len(text)
