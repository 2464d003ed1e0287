"""Which mention is the value of which parameter, and what it is as a value of its type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from casual_mcp_nb.providers._planner.expressions import number
from casual_mcp_nb.providers._planner.mentions import Mention
from casual_mcp_nb.providers._planner.schema import Parameter
from casual_mcp_nb.providers._planner.words import stem

FROM_WORDS = ("from", "between", "of", "since")
TO_WORDS = ("to", "into", "in", "as", "until", "and")
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_TIME_BEFORE = re.compile(
    r"(?:\d(?:\s*[ap]\.?m\.?)?|\bnoon|\bmidnight)[\s,(]*(?:o'clock\s+)?(?:in|at|from)?\s*(?:the\s+)?$", re.I
)


def ends_of(mentions: Sequence[Mention], text: str) -> tuple[Mention | None, Mention | None]:
    """Which of the mentions is where something comes from, and which where it goes to."""
    source = next((m for m in mentions if m.kind == "quantity" or m.marker in FROM_WORDS), None)
    source = source or next((m for m in mentions if _beside_a_time(m, text)), None)
    rest = [mention for mention in mentions if mention is not source]
    # A second quantity is one more thing to convert, not what to convert to.
    rest = [m for m in rest if m.kind != "quantity"] or rest
    target = next((m for m in rest if m.marker in TO_WORDS), None)
    if source is None and len(rest) > 1:
        source = next(m for m in rest if m is not target)
    if target is None:
        target = next((m for m in rest if m is not source), None)
    return source, target


def _beside_a_time(mention: Mention, text: str) -> bool:
    after = text[mention.end : mention.end + 10].lstrip().casefold()
    return mention.kind == "zone" and (bool(_TIME_BEFORE.search(text[: mention.start])) or after.startswith("time"))


def value_of(mention: Mention, parameter: Parameter) -> Any:
    """What a mention is as a value of this parameter, or None where it cannot be one."""
    if parameter.type in ("number", "integer"):
        return numeric(mention, parameter)
    value = mention.unit if mention.kind == "quantity" else mention.value
    if parameter.kind == "unit" and isinstance(value, str):
        value = re.sub(r"^degrees?\s+", "", value)
    if parameter.options:
        return matching_option(str(value), parameter.options)
    if parameter.kind == "sql" and mention.kind == "quoted" and not _SQL_START.match(value):
        return None
    return str(value) if parameter.type == "string" and not isinstance(value, dict | list) else value


def numeric(mention: Mention, parameter: Parameter) -> int | float | None:
    """A mention as a number that this parameter allows, or None."""
    return _allowed(mention.value, parameter)


def _allowed(value: Any, parameter: Parameter) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    broken = parameter.type == "integer" and value != int(value)
    return None if broken or not parameter.allows(value) else value


def matching_option(word: str, options: Iterable[Any]) -> Any:
    """The option that a word stands for: the same word, its plural, or a clear beginning; None where there is none."""
    folded = word.casefold().lstrip("°")
    texts = [option for option in options if isinstance(option, str)]
    for option in texts:
        if folded == option.casefold() or stem(folded) == stem(option):
            return option
    starts = [option for option in texts if option.casefold().startswith(folded)]
    return starts[0] if len(starts) == 1 and (len(folded) > 2 or word[:1].isupper() or word[:1] == "°") else None


def cast(text: str, parameter: Parameter) -> Any:
    """A text that was given for a parameter in so many words, as a value of its type; None where it is none."""
    text = text.rstrip("?!") if len(text) > 1 else text
    if parameter.type == "boolean":
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text.casefold())
    if parameter.type in ("number", "integer"):
        try:
            return _allowed(number(text), parameter)
        except (ValueError, OverflowError):
            return None
    if parameter.options:
        return matching_option(text, parameter.options)
    return text if parameter.type == "string" else None


def given(text: str, parameter: Parameter) -> Any:
    """The value of a parameter that was asked for by name, when the reply is nothing but the value."""
    return cast(text.strip().strip("\"'").rstrip("."), parameter)
