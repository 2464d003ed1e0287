"""What a value must be like: matchers, and their form in files."""

from __future__ import annotations

import dataclasses
import datetime
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from casual_mcp_nb.base.iterables import are_texts, attributes, field_names
from casual_mcp_nb.base.patterns import SlowPatternError, check_pattern, is_found
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, cannot_be, shown
from casual_mcp_nb.experiments.checks import CheckError, Functions, holds, name_of


class Matcher:
    """A condition on a parameter's value. A plain value must be equal."""

    key: ClassVar[str]
    """Its name in files: `{"$regex": "^a"}`."""
    kinds: ClassVar[dict[str, type[Matcher]]] = {}

    def __init_subclass__(cls) -> None:
        Matcher.kinds[cls.key] = cls

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Check a value.

        Args:
            value: The value.

        Raises:
            CheckError: It could not tell.
        """

    @classmethod
    def read(cls, content: Any, functions: Functions) -> Any:
        """Convert the content of its form in files.

        Raises:
            UsageError: It is wrong.
        """
        return read_expectation(content, functions)

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files."""
        first, *others = dataclasses.fields(self)  # type: ignore[arg-type]
        plain = {self.key: plain_expectation(getattr(self, first.name))}
        for each in others:
            value = getattr(self, each.name)
            if value != each.default:
                plain[each.name] = plain_expectation(value)
        return plain


@dataclass(frozen=True)
class Equal(Matcher):
    """Equal to a value, even where that looks like a matcher."""

    key = "$equal"
    value: Any

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(self.value, bool) == isinstance(value, bool) and bool(self.value == value)

    @classmethod
    def read(cls, content: Any, functions: Functions) -> Any:
        """Leave the content of its form in files as it is."""
        return content


@dataclass(frozen=True)
class OneOf(Matcher):
    """Any of several values or matchers."""

    key = "$one_of"
    values: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.values, str | Mapping) or not isinstance(self.values, Collection):
            raise UsageError(f"This is {brief(self.values)}, not a list.")

    def fits(self, value: Any) -> bool:
        """Check a value. One that could not tell counts only if no other fits."""
        problem = None
        for each in self.values:
            try:
                if fits(each, value):
                    return True
            except CheckError as error:
                if error.slow:
                    raise
                problem = error
        if problem is not None:
            raise problem
        return False


@dataclass(frozen=True)
class Regex(Matcher):
    """A text in which a regular expression is found."""

    key = "$regex"
    pattern: str

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise UsageError(f"{brief(self.pattern)} is not a regular expression.")
        check_pattern(self.pattern)

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(value, str) and found_in_time(self.pattern, value)


def found_in_time(pattern: Any, text: str) -> bool:
    """Search a text for a pattern. A CheckError if that takes too long."""
    try:
        return is_found(pattern, text)
    except SlowPatternError as error:
        raise CheckError(str(error), slow=True) from None


@dataclass(frozen=True)
class Near(Matcher):
    """A number that differs from another one by no more than `within`."""

    key = "$near"
    value: float
    within: float = 1e-9

    def fits(self, value: Any) -> bool:
        """Check a value. A text is read as a number."""
        try:
            return not isinstance(value, bool) and abs(float(value) - self.value) <= self.within
        except (TypeError, ValueError, OverflowError):
            return False

    @classmethod
    def read(cls, content: Any, functions: Functions) -> Any:
        """Convert the content of its form in files."""
        if (
            isinstance(content, bool)
            or not isinstance(content, int | float)
            or not math.isfinite(content)
        ):
            raise cannot_be(cls.key, content, "It is a number.")
        return content


@dataclass(frozen=True)
class SameDate(Matcher):
    """A text with the same date, in whatever form: `2026-11-23`, `23 Nov 2026`,
    `2026-11-23T10:00:00Z`.
    """

    key = "$date"
    date: str

    def __post_init__(self) -> None:
        if _date_of(self.date) is None:
            raise UsageError(f"{shown(self.date)} is not a date.", hint="Write it as 2026-11-23.")

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(value, str) and _date_of(value) == _date_of(self.date)

    @classmethod
    def read(cls, content: Any, functions: Functions) -> Any:
        """Convert the content of its form in files."""
        return str(content)


def _date_of(text: str) -> datetime.date | None:
    """Read the date in a text, or None if it is not one with a year, a month and a day."""
    from dateutil import parser

    try:
        # What is missing is filled in from the default, and then the two differ.
        one, other = (
            parser.parse(text[:100], default=datetime.datetime(*day))
            for day in ((2001, 2, 3), (2004, 5, 6))
        )
    except (ValueError, OverflowError, TypeError):
        return None
    return one.date() if one.date() == other.date() else None


@dataclass(frozen=True)
class Satisfies(Matcher):
    """A value for which a function returns true."""

    key = "$function"
    function: Callable[..., Any]

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return holds(self.function, value)

    @classmethod
    def read(cls, content: Any, functions: Functions) -> Any:
        """Convert the content of its form in files."""
        if isinstance(content, str) and content in functions:
            return functions[content]
        hint = "" if functions else "Give it in functions={name: function}."
        raise UnknownNameError("function", str(content), functions, hint=hint)

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files: the function's name."""
        return {self.key: name_of(self.function)}


@dataclass(frozen=True)
class IfGiven(Matcher):
    """Expects a value for a parameter that may also be missing."""

    key = "$if_given"
    value: Any

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return fits(self.value, value)


@dataclass(frozen=True)
class Graded(Matcher):
    """An answer to which a judge model gives a label that means right.

    Only for a case's `answer`, and with `judge=MODEL`.

    Args:
        rubric: What a good answer is, in a person's words.
        labels: The labels that the judge may give.
        right: The labels that mean right, or none for the first one.
    """

    key = "$graded"
    rubric: str
    labels: Sequence[str] = ("right", "wrong")
    right: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rubric, str) or not self.rubric.strip():
            raise cannot_be("A rubric", self.rubric, "Say in a text what a good answer is.")
        for name in ("labels", "right"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not are_texts(value):
                raise cannot_be(f"{name} of a graded answer", value, "It is a list of texts.")
            object.__setattr__(self, name, tuple(value))
        if len(set(self.labels)) < 2 or not set(self.right) < set(self.labels):
            hint = "Give at least two labels, and in right some of them, not all."
            raise UsageError(f"No judge can tell with the labels {brief(self.labels)}.", hint=hint)

    @property
    def right_labels(self) -> tuple[str, ...]:
        """The labels that mean right."""
        return tuple(self.right or self.labels[:1])

    def fits(self, value: Any) -> bool:
        """Raise a CheckError: a model must be asked first."""
        raise CheckError("a graded answer needs a judge: run(…, judge=MODEL)")

    @classmethod
    def refuse_in(cls, expected: Any) -> None:
        """Check that an expectation does not contain one. A UsageError if it does."""
        match expected:
            case cls():
                raise UsageError(
                    "A graded answer cannot be part of another check.",
                    hint="Put it in answer, or in its list.",
                )
            case Matcher():
                cls.refuse_in(attributes(expected, field_names(expected)))
            case Mapping():
                cls.refuse_in(list(expected.values()))
            case list() | tuple():
                for item in expected:
                    cls.refuse_in(item)


def fits(expected: Any, value: Any, *, exact: bool = False) -> bool:
    """Check a value against an expectation: a matcher, a plain value, or a list or an object that
    contains these.

    Args:
        expected: The expectation.
        value: The value.
        exact: Whether objects may have no other fields.

    Raises:
        CheckError: A pattern took too long, or a function raised or took too long.
    """
    match expected:
        case Matcher():
            return expected.fits(value)
        case Mapping():
            return isinstance(value, Mapping) and not wrong_parameters(expected, value, exact=exact)
        case list() | tuple():
            if not isinstance(value, list | tuple) or len(value) != len(expected):
                return False
            pairs = zip(expected, value, strict=True)
            return all(fits(one, other, exact=exact) for one, other in pairs)
        case bool():
            return expected is value
        case _:
            return not isinstance(value, bool) and bool(expected == value)


def wrong_parameters(
    expected: Mapping[str, Any], given: Mapping[str, Any], *, exact: bool = False
) -> tuple[str, ...]:
    """List the parameters that are missing or do not fit, and with `exact` unexpected ones.

    For the rest, see `fits`.
    """
    wrong = []
    for name, value in expected.items():
        if name not in given and isinstance(value, IfGiven):
            continue
        if name not in given or not fits(value, given[name], exact=exact):
            wrong.append(name)
    if exact:
        wrong += [name for name in given if name not in expected]
    return tuple(wrong)


def plain_expectation(value: Any) -> Any:
    """Convert expected values to their form in files."""
    match value:
        case Matcher():
            return value.plain()
        case Mapping():
            return {str(name): plain_expectation(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return list(map(plain_expectation, value))
        case None | bool() | int() | float() | str():
            return value
        case datetime.date():
            return value.isoformat()
    return str(value)


def read_expectation(value: Any, functions: Functions | None = None) -> Any:
    """Convert a value from a file to an expectation.

    Objects such as `{"$regex": "^a"}` become matchers.

    Raises:
        UsageError: A matcher is unknown or wrong.
    """
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list):
        return [read_expectation(item, functions) for item in value]
    if not isinstance(value, Mapping):
        return value
    key = next((str(name) for name in value if str(name).startswith("$")), None)
    if key is None:
        return {str(name): read_expectation(item, functions) for name, item in value.items()}
    kind = Matcher.kinds.get(key)
    if kind is None:
        raise UnknownNameError("matcher", key, Matcher.kinds)
    first, *others = field_names(kind)
    if unknown := [name for name in value if name not in (key, *others)]:
        hint = f"Its options: {', '.join(others) or 'none'}."
        raise UsageError(f"The matcher {key} has no option {shown(str(unknown[0]))}.", hint=hint)
    content = kind.read(value[key], functions or {})
    return kind(**{first: content, **{name: value[name] for name in others if name in value}})
