"""A server's form: its fields, read from a JSON Schema, and the check of what a person fills in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Literal
from urllib.parse import urlsplit

from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.display.words import clean, cut, one_line
from casual_mcp_nb.errors import UsageError, shown

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "choices"]

MAX_FIELDS = 40
MAX_CHOICES = 200
MAX_NOTE = 500
MAX_DEFAULT = 4_000
_EMAIL = re.compile(
    r"[\w.!#$%&'*+/=?^`{|}~-]+@[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*",
    re.I | re.A,
)
"""The format that browsers accept:
https://html.spec.whatwg.org/multipage/input.html#valid-e-mail-address.
"""
_YES = ("y", "yes", "true", "1")
_NO = ("n", "no", "false", "0")
_A_NUMBER = {"integer": "a whole number", "number": "a number"}


@dataclass(frozen=True)
class FormField:
    """A form field. Title, description and labels are cleaned, since the server wrote them.

    Args:
        name: The field's name in the answer.
        title: What the person reads beside it.
        kind: The kind of value. `choice` is one of `choices`, `choices` any number of them.
        description: More about it, or empty.
        required: Whether it must be filled in.
        default: The server's suggestion, as it would be sent, or None if there is none that is
            valid.
        choices: Each value with its label.
        minimum: The smallest number, or a string's minimum length.
        maximum: The largest number, or a string's maximum length.
        format: A text's format: `email`, `uri`, `date` or `date-time`, or empty for any text.
    """

    name: str
    title: str
    kind: FieldKind
    description: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    format: str = ""


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Parse a form's fields, at most `MAX_FIELDS`.

    Those of a kind that MCP does not allow in forms become text fields.
    """
    whole = SchemaReader(schema)
    fields: list[FormField] = []
    for name, part in islice(whole.properties.items(), MAX_FIELDS):
        fields.append(_field(name, part, name in whole.required))
    return tuple(fields)


def checked(fields: tuple[FormField, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate what a person filled in, and convert it to the fields' types.

    Args:
        fields: The form's fields.
        values: The input, by field. A field that is not in it has its default.

    Returns:
        The values to send. Fields without a value are left out.

    Raises:
        UsageError: A field is missing, invalid or unknown. The message names it.
    """
    names = [field.name for field in fields]
    for name in values:
        if name not in names:
            raise UsageError(
                f"The form has no field {shown(str(name))}.",
                hint=f"It has: {', '.join(map(shown, names))}.",
            )
    given: dict[str, Any] = {}
    for field in fields:
        value = field.default
        if field.name in values or value is None:
            value = _value(field, values.get(field.name))
        if value is not None:
            given[field.name] = value
    return given


def _field(name: str, part: SchemaReader, required: bool) -> FormField:
    kind = _kind(part)
    low, high = "minimum", "maximum"
    text_format = ""
    if kind == "text":
        low, high = "minLength", "maxLength"
        if part.text("format") in FORMATS:
            text_format = part.text("format")
    field = FormField(
        name=name,
        title=_words(part.text("title"), 100) or _label(name),
        kind=kind,
        description=_words(part.description, MAX_NOTE),
        required=required,
        choices=_choices(part.items if kind == "choices" else part),
        minimum=part.number(low),
        maximum=part.number(high),
        format=text_format,
    )
    return replace(field, default=_default(field, part.schema.get("default")))


def _kind(part: SchemaReader) -> FieldKind:
    match part.types:
        case ("boolean",):
            return "boolean"
        case ("integer",):
            return "integer"
        case ("number",):
            return "number"
        case ("array",) if _choices(part.items):
            return "choices"
    return "choice" if _choices(part) else "text"


def _choices(part: SchemaReader | None) -> tuple[tuple[str, str], ...]:
    if part is None:
        return ()
    pairs: list[tuple[Any, Any]] = []
    names = part.schema.get("enumNames")
    if isinstance(names, list) and len(names) == len(part.choices):
        pairs.extend(zip(part.choices, names, strict=True))
    else:
        pairs.extend(zip(part.choices, part.choices, strict=True))
    if not pairs:
        # A choice with labels can be written as options that each allow one value.
        for option in part.options:
            if option.choices:
                value = option.choices[0]
                pairs.append((value, option.text("title") or value))
    return tuple((str(value), _label(str(label))) for value, label in pairs[:MAX_CHOICES])


def _default(field: FormField, value: Any) -> Any:
    """Return a default if it is valid, otherwise None.

    A text with invisible characters is not: nobody would see what they send.
    """
    match field.kind, value:
        case "boolean", bool():
            return value
        case "text", "" if not field.minimum:
            return value
        case "text" | "choice", str() if len(value) <= MAX_DEFAULT and clean(value) == value:
            pass
        case (("integer" | "number"), int() | float()) if not isinstance(value, bool):
            pass
        case "choices", list() if len(value) <= MAX_CHOICES and all_are(value, str):
            if not value:
                return []
        case _:
            return None
    try:
        return _value(field, value)
    except UsageError:
        return None


def _words(text: str, limit: int) -> str:
    return clean(cut(text, limit))


def _label(text: str) -> str:
    return one_line(cut(text, 100))


def _value(field: FormField, given: Any) -> Any:
    if given is None or given == "" or (given == [] and field.kind == "choices"):
        if field.required:
            raise UsageError(f"{shown(field.title)} must be filled in.")
        return None
    match field.kind:
        case "boolean":
            return _boolean(field, given)
        case "integer" | "number":
            return _number(field, given)
        case "choice":
            return _chosen(field, given)
        case "choices":
            if isinstance(given, str):
                return _all_chosen(field, given)
            if not isinstance(given, list | tuple | set):
                given = [given]
            return [_chosen(field, item) for item in given]
    text = str(given)
    _within(field, len(text), " characters")
    if field.format:
        return _formatted(field, text.strip())
    return text


def _boolean(field: FormField, given: Any) -> bool:
    if isinstance(given, bool):
        return given
    word = str(given).strip().lower()
    if word not in (*_YES, *_NO):
        raise UsageError(f"{shown(field.title)} takes yes or no, not {shown(str(given))}.")
    return word in _YES


def _number(field: FormField, given: Any) -> float:
    number: float
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    else:
        number = _read_number(field, str(given).strip())
    return _within(field, number)


def _read_number(field: FormField, text: str) -> float:
    """Read a number. A whole one is an int, since a float would round it if it is large."""
    title = shown(field.title)
    try:
        number, exact = float(text), Decimal(text)
    except (ValueError, ArithmeticError):
        raise UsageError(f"{title} takes a number, not {shown(text)}.") from None
    is_whole = math.isfinite(number) and exact == int(exact)
    if not math.isfinite(number) or (field.kind == "integer" and not is_whole):
        raise UsageError(f"{title} takes {_A_NUMBER[field.kind]}.")
    if is_whole:
        return int(exact)
    return number


def _formatted(field: FormField, text: str) -> str:
    description, is_valid = FORMATS[field.format]
    try:
        valid = is_valid(text)
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{shown(field.title)} takes {description}, not {shown(text)}.")
    return text


def _is_date(text: str) -> bool:
    return len(text) == 10 and text[4] == text[7] == "-" and bool(date.fromisoformat(text))


def _is_date_time(text: str) -> bool:
    return (
        len(text) > 10
        and text[10] in "Tt"
        and datetime.fromisoformat(text.upper()).tzinfo is not None
    )


def _is_uri(text: str) -> bool:
    parts = urlsplit(text)
    return (
        bool(parts.scheme)
        and bool(parts.netloc or parts.path)
        and text.isascii()
        and not set(text) & set(' <>"{}|\\^`')
    )


def _is_email(text: str) -> bool:
    return len(text) <= 320 and _EMAIL.fullmatch(text) is not None


FORMATS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "email": (
        "an e-mail address such as ada@example.com",
        _is_email,
    ),
    "uri": ("an address such as https://example.com", _is_uri),
    "date": ("a date such as 2026-07-28", _is_date),
    "date-time": (
        "a date and time with its offset, such as 2026-07-28T14:30:00+02:00",
        _is_date_time,
    ),
}
"""Text formats in forms, each with a description and a check. See
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#supported-schema-types.
"""


def _within(field: FormField, number: float, unit: str = "") -> float:
    if field.minimum is not None and number < field.minimum:
        raise UsageError(f"{shown(field.title)} takes at least {_written(field.minimum)}{unit}.")
    if field.maximum is not None and number > field.maximum:
        raise UsageError(f"{shown(field.title)} takes at most {_written(field.maximum)}{unit}.")
    return number


def _written(number: float) -> str:
    if isinstance(number, float):
        return f"{number:g}"
    return cut(str(number), 100)


def _all_chosen(field: FormField, text: str) -> list[str]:
    """Read choices with commas between them. A choice can have commas too."""
    names: set[str] = set()
    for value_and_label in field.choices:
        names.update(value_and_label)
    most_parts = max(name.count(",") + 1 for name in names)
    chosen: list[str] = []
    parts = text.split(",")
    while parts:
        taken = min(most_parts, len(parts))
        # The longest first, since a choice can begin with another one.
        while taken > 1 and ",".join(parts[:taken]).strip() not in names:
            taken -= 1
        chosen.append(_chosen(field, ",".join(parts[:taken]).strip()))
        parts = parts[taken:]
    return chosen


def _chosen(field: FormField, given: Any) -> str:
    for value, label in field.choices:
        if str(given) in (value, label):
            return value
    raise UsageError(
        f"{shown(field.title)} takes one of: {', '.join(label for _, label in field.choices)}."
    )
