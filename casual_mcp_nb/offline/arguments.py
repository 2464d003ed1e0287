"""Fill a tool's arguments from a request, using the tool's schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.offline.needs import OPENS_WITH_VERB, content_words
from casual_mcp_nb.offline.parameters import Parameter, matching_option

# Kinds of mention that can fill each kind of parameter, best first.
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
    "text": ("quoted", "json", "encoded"),
    "search": ("quoted",),
    "filter": ("quoted",),
    "number": ("quoted", "number"),
    "": ("quoted",),
}
_FROM_WORDS = ("from", "between", "of", "since")
_TO_WORDS = ("to", "into", "in", "as", "until", "and")
_TIME_BEFORE = re.compile(
    r"(?:\d(?:\s*[ap]\.?m\.?)?|\bnoon|\bmidnight)[\s,(]*(?:o'clock\s+)?(?:in|at|from)?\s*(?:the\s+)?$", re.I
)
_REST_MARKER = re.compile(r":\s+|\b(?:of|in|that|saying|says|for|about|matching|containing)\s+", re.I)
_COLON = re.compile(r":\s+")
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)
_PROPER_NAME = re.compile(r"\b(?:in|for|of|at|about|called|named)\s+((?:[A-Z][\w'\u2019-]*\s?)+)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})(?:[a-z]{{2,6}})?\b", re.I)
_AMOUNTS = ("count", "limit", "n", "k", "top", "max_results", "max_count")
_GENERIC = frozenset(terms("available content current describe different every list name new read same working"))


class Filling:
    """A tool's arguments as far as a request contains them; created by `fill`.

    Attributes:
        arguments: The arguments.
        missing: Required parameters that the request does not fill.
        loose: Spans of the request used as plain words, by parameter.
        typed: How many arguments are values of the parameter's kind, not plain words.
    """

    def __init__(self, text: str, mentions: Sequence[Mention]) -> None:
        self.arguments: dict[str, Any] = {}
        self.missing: list[str] = []
        self.loose: dict[str, tuple[int, int]] = {}
        self.typed = 0
        self._text = text
        self._free = list(mentions)
        self._spans: list[tuple[int, int]] = []

    def covers(self, start: int, end: int, *, loosely: bool = False) -> bool:
        """Return whether this span of the request was used as a value, or `loosely` as plain words."""
        return any(start < stop and begin < end for begin, stop in [*self._spans, *(self.loose.values() if loosely else ())])

    def drop(self, name: str) -> None:
        """Remove an argument of plain words."""
        del self.loose[name], self.arguments[name]
        self.missing.append(name)

    def open(self, parameters: Sequence[Parameter]) -> list[Parameter]:
        """Return the parameters that have no argument yet."""
        return [parameter for parameter in parameters if parameter.name not in self.arguments]

    def _put(self, name: str, value: Any, start: int, end: int) -> bool:
        """Use a span of the request as an argument."""
        self.arguments[name] = value
        self._spans.append((start, end))
        self.typed += 1
        self._free = [mention for mention in self._free if mention.end <= start or mention.start >= end]
        return True

    def _take(self, parameter: Parameter, mention: Mention) -> bool:
        value = parameter.value_of(mention)
        if value is None:
            return False
        self._put(parameter.name, value, mention.start, mention.end)
        if mention.kind == "quantity" and parameter.kind == "unit":
            # Another parameter still needs its number.
            self._free.insert(0, replace(mention, kind="number", unit=""))
        return True

    def by_name(self, parameter: Parameter) -> None:
        """Fill parameters given explicitly as `name=value` or `name: value`."""
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        match = re.search(rf"(?<!\w){spoken}\s*(?:=|:(?=\s))\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s,;]+))", self._text)
        if match:
            value = parameter.cast(next(group for group in match.groups() if group is not None))
            if value is not None:
                self._put(parameter.name, value, match.start(), match.end())

    def pairs(self, parameters: Sequence[Parameter]) -> None:
        """Fill pairs of parameters: from and to, source and destination, start and end."""
        for source in (parameter for parameter in parameters if parameter.direction == "source" and _kinds(parameter)):
            ends = (one for one in parameters if one.direction == "target" and _kinds(one) == _kinds(source))
            target = next(ends, None)
            if target is not None:
                first, second = self._ends([mention for mention in self._free if mention.kind in _kinds(source)])
                for parameter, mention in ((source, first), (target, second)):
                    if mention is not None:
                        self._take(parameter, mention)

    def _ends(self, mentions: Sequence[Mention]) -> tuple[Mention | None, Mention | None]:
        """Return which mention is the source, and which is the destination."""
        source = next((one for one in mentions if one.kind == "quantity" or one.marker in _FROM_WORDS), None)
        source = source or next((one for one in mentions if self._beside_a_time(one)), None)
        others = [mention for mention in mentions if mention is not source]
        # A second quantity is another thing to convert, not the target.
        others = [mention for mention in others if mention.kind != "quantity"] or others
        target = next((mention for mention in others if mention.marker in _TO_WORDS), None)
        if source is None and len(others) > 1:
            source = next(mention for mention in others if mention is not target)
        return source, target or next((mention for mention in others if mention is not source), None)

    def _beside_a_time(self, mention: Mention) -> bool:
        after = self._text[mention.end : mention.end + 10].lstrip().casefold()
        return mention.kind == "zone" and (bool(_TIME_BEFORE.search(self._text[: mention.start])) or after.startswith("time"))

    def by_kind(self, parameter: Parameter) -> None:
        """Fill a single parameter: by its type, then by the kind of value that its name suggests."""
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
            self._beside_its_name(parameter)

    def _first(self, parameter: Parameter, kinds: Sequence[str]) -> bool:
        kinds = [kind for kind in kinds if kind != "quoted" or parameter.required]
        return any(mention.kind == kind and self._take(parameter, mention) for kind in kinds for mention in self._free)

    def _option(self, parameter: Parameter) -> None:
        for match in re.finditer(r"[^\W\d_]\w*", self._text):
            option = matching_option(match[0], parameter.options)
            if option is not None and (parameter.required or terms(match[0])):
                self._put(parameter.name, option, match.start(), match.end())
                return

    def _boolean(self, parameter: Parameter) -> None:
        words = {word.terms[0]: word for word in content_words(self._text)}
        parts = terms(parameter.name)
        if parts and all(part in words for part in parts):
            first, last = words[parts[0]], words[parts[-1]]
            self._put(parameter.name, _NO.search(self._text[: first.start]) is None, first.start, last.end)

    def _number(self, parameter: Parameter) -> None:
        month = _MONTH.search(self._text) if parameter.name == "month" else None
        if month:
            self._put(parameter.name, _MONTHS.index(month[1].casefold()) + 1, month.start(), month.end())
            return
        spoken = re.compile(rf"\b{re.escape(parameter.name.replace('_', ' '))}\b", re.I)
        for mention in self._free:
            unit = set(terms(mention.unit))
            wanted = unit and (unit <= set(terms(parameter.name)) or unit <= parameter.described)
            if mention.kind == "number":
                amount = parameter.name in _AMOUNTS and mention.marker not in (*_FROM_WORDS, *_TO_WORDS)
                beside = self._text[max(0, mention.start - 30) : mention.end + 30]
                wanted = amount or parameter.required or spoken.search(beside) is not None
            if wanted and self._take(parameter, mention):
                return

    def _array(self, parameter: Parameter) -> None:
        for mention in self._free:
            if mention.kind == "json" and isinstance(mention.value, list) and len(mention.value) >= parameter.min_items:
                self._put(parameter.name, mention.value, mention.start, mention.end)
                return
        kinds = ("number",) if parameter.item_type in ("number", "integer") else _ACCEPTED[parameter.kind]
        mentions = [mention for mention in self._free if mention.kind in kinds]
        if parameter.required and mentions and len(mentions) >= parameter.min_items:
            for mention in mentions:
                self._put(parameter.name, [one.value for one in mentions], mention.start, mention.end)

    def _beside_its_name(self, parameter: Parameter) -> None:
        """Find a value next to the parameter's name: `the table orders`, `the orders table`, `folder notes`."""
        names = [parameter.name.replace("_", " ")] + (["folder", "directory", "file"] if parameter.kind == "path" else [])
        value = r"([\w][\w.@/-]{0,99})"
        for name in map(re.escape, names):
            for pattern in (rf"\b{name}\s+(?:named\s+|called\s+|is\s+)?{value}", rf"\b{value}\s{{1,9}}{name}\b"):
                match = re.search(pattern, self._text, re.I)
                if match and (words := terms(match[1])) and words[0] not in _GENERIC:
                    self._put(parameter.name, match[1], match.start(1), match.end(1))
                    return

    def words(self, parameter: Parameter) -> bool:
        """Use plain words of the request for a free text; return whether there are any."""
        if parameter.type != "string" or parameter.options or parameter.kind not in ("text", "search", ""):
            return False
        if parameter.kind == "":
            return self.proper_name(parameter)
        orders = OPENS_WITH_VERB.match(self._text)
        markers = list((_REST_MARKER if orders else _COLON).finditer(self._text))
        if not markers and not orders:
            return False
        first_word = re.match(r"\W*\w+", self._text)
        match = markers[-1 if parameter.kind == "search" else 0] if markers else first_word
        following = self._text[match.end() :].strip().rstrip(" ?.!") if match else ""
        start = self._text.find(following, match.end()) if match else 0
        if not following or self.covers(start, start + len(following), loosely=True) or not content_words(following):
            return False
        self.arguments[parameter.name] = following
        self.loose[parameter.name] = (start, start + len(following))
        return True

    def proper_name(self, parameter: Parameter) -> bool:
        """Use a name that follows a word such as `in`; return whether there is one."""
        match = _PROPER_NAME.search(self._text)
        if match is None or self.covers(match.start(1), match.end(1)):
            return False
        end = next((one.end for one in self._free if one.kind == "zone" and one.start == match.start(1)), match.end(1))
        return self._put(parameter.name, self._text[match.start(1) : end].strip(), match.start(1), end)


def fill(
    text: str, mentions: Sequence[Mention], parameters: Sequence[Parameter], known: Mapping[str, Any] | None = None
) -> Filling:
    """Fill a tool's arguments.

    Args:
        text: The request.
        mentions: The values in it.
        parameters: The tool's parameters, required ones first.
        known: Arguments of an earlier call, for those missing from the request.

    Returns:
        The arguments, and the names of missing ones. Optional ones are filled only if the request mentions them.
    """
    filling = Filling(text, mentions)
    for parameter in parameters:
        filling.by_name(parameter)
    filling.pairs([parameter for parameter in filling.open(parameters) if parameter.direction])
    for parameter in filling.open(parameters):
        filling.by_kind(parameter)
    filling.arguments = {**(known or {}), **filling.arguments}
    for parameter in filling.open(parameters):
        # Plain words come last, and only if a call is impossible without them.
        if parameter.required and not filling.words(parameter):
            filling.missing.append(parameter.name)
        elif parameter.kind == "filter":
            filling.proper_name(parameter)
    return filling


def _kinds(parameter: Parameter) -> tuple[str, ...]:
    if parameter.type in ("number", "integer"):
        return ("base",) if "base" in parameter.name else ("number",)
    return _ACCEPTED.get(parameter.kind, ()) if parameter.kind not in ("text", "search", "filter", "") else ()
