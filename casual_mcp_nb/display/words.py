"""Text, numbers and calls in words, the same in every display, with foreign text made harmless."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from casual_mcp_nb.base.cutting import cut_at_word
from casual_mcp_nb.base.displayable import count as count
from casual_mcp_nb.base.tokens import Origin
from casual_mcp_nb.base.tool import ToolName

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"[ \t\n]+")
_PICTURE_OF_DELETE = "␡"


def clean(text: str) -> str:
    """Replace each character that controls a terminal or hides with a visible mark.

    These are controls, escapes, bidirectional and zero-width characters, and lone surrogates. Tabs
    and line ends stay. The result can always be encoded.
    """
    return _HIDDEN.sub(_mark, text.replace("\r\n", "\n"))


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return _PICTURE_OF_DELETE
    return f"⟨U+{code:04X}⟩"


def one_line(text: str) -> str:
    """Clean a text, and collapse each run of spaces and line ends to one space."""
    return _SPACES.sub(" ", clean(text)).strip()


def cut(text: str, limit: int, lines: int | None = None) -> str:
    """Cut a text to its first `limit` characters and first `lines` lines.

    A cut is stated with the full size.
    """
    short = text[:limit]
    if lines is not None and short.count("\n") >= lines:
        short = "\n".join(short.split("\n", lines)[:lines])
    if len(short) == len(text):
        return text
    return f"{short.rstrip()}… {len(text):,} characters in all"


def first(text: str, limit: int) -> str:
    """Cut a text to `limit` characters on one line, for a cell whose whole text is shown
    elsewhere.
    """
    short = one_line(text[: 4 * limit])
    if len(short) <= limit and len(text) <= 4 * limit:
        return short
    return f"{cut_at_word(short, limit)}…"


_ANSWERED = (None, "stop", "STOP", "end_turn", "completed")
_CALLED = ("tool_calls", "tool_use", "function_call")
UNKNOWN = "\N{EN DASH}"
"""The text in a table for an unknown number. Elsewhere it is left out."""

SUMMARY = 80
"""How many characters of a description a table shows."""


def number(value: float | None) -> str:
    """Format a number: `1,234`, `0.25`, or a dash for None, infinity and NaN."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def about(value: int | None, origin: Origin) -> str:
    """Format a number that was counted or estimated: `1,234` or `≈ 1,234`."""
    text = number(value)
    if value is not None and origin == "estimated":
        return f"≈ {text}"
    return text


def tokens(value: int | None, origin: Origin) -> str:
    """Format tokens: `1,234 tokens` where the provider counted, `≈ 1,234 tokens` where they are
    estimated.
    """
    if value is None:
        return UNKNOWN
    unit = "token" if value == 1 else "tokens"
    return f"{about(value, origin)} {unit}"


def seconds(value: float | None) -> str:
    """Format a duration: `12 ms`, `0.82 s`, `3.4 s`, `2 min 5 s`, or a dash."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 1:
        return f"{value:.2f} s"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds_left = divmod(round(value), 60)
    return f"{minutes:,} min {seconds_left} s"


def score(value: float | None) -> str:
    """Format a search score with one decimal; `named` for a tool that was named and not ranked."""
    if value is None:
        return "named"
    return f"{value:.1f}"


def percent(part: float) -> str:
    """Format a share: `25%` for 0.25."""
    return f"{part * 100:.0f}%"


def change(value: int) -> str:
    """Format a change: `+1,234`, `-5`, `0`."""
    if value == 0:
        return "0"
    return f"{value:+,}"


def size(value: int) -> str:
    """Format a size: `2,048 bytes`."""
    return count(value, "byte")


def difference(price: int, without: int) -> str:
    """Format how two prices differ: `63% less`, `94% more`, or empty where they do not."""
    if without <= 0 or price == without:
        return ""
    word = "less" if price < without else "more"
    return f"{percent(abs(without - price) / without)} {word}"


def ending(reason: str | None) -> str:
    """Describe why a model stopped, or return an empty string if it had answered or the reason is
    unknown.
    """
    if reason in _ANSWERED:
        return ""
    if reason in _CALLED:
        return "stopped to call tools"
    return f"ended with {reason}"


def joined(*texts: str | None, by: str = ", ") -> str:
    """Join the texts that are not empty."""
    return by.join(filter(None, texts))


def listed(items: Iterable[str], most: int) -> str:
    """Join the first items with commas, and count the others."""
    items = list(items)
    if len(items) > most:
        items[most:] = [f"{len(items) - most:,} more"]
    return ", ".join(items)


def quoted(text: str) -> str:
    """Put a text in quotation marks."""
    return f"“{text}”"


_MAX_LINE = 100


def python_call(function: str, values: Iterable[Any], named: Mapping[str, Any]) -> str:
    """Write a call as Python, over several lines if one would be long.

    Names that no keyword can have are passed as `**`.
    """
    parts = list(map(literal, values))
    others: dict[str, Any] = {}
    for name, value in named.items():
        if _is_plain(name):
            parts.append(f"{name}={literal(value)}")
        else:
            others[name] = value
    if others:
        parts.append(f"**{literal(others)}")
    line = f"{function}({', '.join(parts)})"
    if len(line) <= _MAX_LINE or len(parts) == 1:
        return line
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{function}(\n{lines})"


def call_code(tool: ToolName | str, arguments: Mapping[str, Any]) -> str:
    """Write a tool call as Python: `session.tools.call("math:add", a=1, b=2)`."""
    return python_call("session.tools.call", [str(tool)], arguments)


def read_code(uri: str, server: str, parameters: Iterable[str] | Mapping[str, str] = ()) -> str:
    """Write Python code that reads a resource: `session.resources.read("demo://1", server="demo")`.

    A template has parameters: their values, or only their names, to be filled in.
    """
    arguments = [literal(uri), f"server={literal(server)}", *_values(parameters)]
    return f"session.resources.read({', '.join(arguments)})"


def prompt_code(server: str, name: str, arguments: Iterable[str] | Mapping[str, str] = ()) -> str:
    """Write a prompt as Python: `session.prompts.get("demo:greet", name="Ada")`.

    For arguments see `read_code`.
    """
    values = [literal(f"{server}:{name}"), *_values(arguments)]
    return f"session.prompts.get({', '.join(values)})"


def _values(parameters: Iterable[str] | Mapping[str, str]) -> list[str]:
    given = parameters if isinstance(parameters, Mapping) else {}
    written: list[str] = []
    for name in parameters:
        if _is_plain(name):
            value = literal(given[name]) if name in given else "…"
            written.append(f"{name}={value}")
    return written


def _is_plain(name: str) -> bool:
    # Python normalises identifiers (`ﬁ` becomes `fi`), so only ASCII round-trips.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def literal(value: Any) -> str:
    """Write a JSON value as a Python literal. A text that hides something is escaped."""
    match value:
        case str():
            quoted = repr(value)
            if not value.replace("\n", "").isprintable():
                quoted = ascii(value)
            # With double quotes, as formatters write it.
            inner = quoted[1:-1]
            if quoted[0] == "'":
                inner = inner.replace("\\'", "'").replace('"', '\\"')
            return f'"{inner}"'
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case dict():
            pairs = [f"{literal(key)}: {literal(item)}" for key, item in value.items()]
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
    return repr(value)
