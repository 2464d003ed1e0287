"""Tool-use cases: what a person asks, the calls that should follow, and how exactly.

A case can be written in Python, or as a row in a file or table with the same names:

```yaml
- message: What is 17 * 23?
  calls:
    - tool: math:multiply
      arguments: {a: 17, b: {$near: 23, within: 0.5}}
  answer: "391"
  cluster: products
```
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import hashlib
import io
import json
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.errors import UsageError, brief, closest, did_you_mean, shown

Order = Literal["any", "in_order", "exact"]
"""`any` order; `in_order`, with other calls between them; or `exact`: these calls and no others."""
ArgumentMode = Literal["subset", "exact", "ignore"]
"""Whether a call may have more arguments than expected (`subset`), must not (`exact`), or may have any (`ignore`)."""
Functions = Mapping[str, Callable[..., Any]]
"""Functions by the names that files call them by. A file alone never makes anything run."""

MAX_TEXT = 20_000
"""How many characters patterns are matched against, since a model wrote the text."""


MAX_CELL = 100_000_000
"""How many characters a CSV cell may have."""


class Matcher:
    """A condition on a parameter's value. A plain value must be equal."""

    key: ClassVar[str]
    """Its name in files: `{"$regex": "^a"}`."""
    kinds: ClassVar[dict[str, type[Matcher]]] = {}

    def __init_subclass__(cls) -> None:
        Matcher.kinds[cls.key] = cls

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Check a value."""

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files."""
        first, *others = dataclasses.fields(self)  # type: ignore[arg-type]
        more = {each.name: getattr(self, each.name) for each in others if getattr(self, each.name) != each.default}
        return {self.key: plain_expectation(getattr(self, first.name)), **more}


@dataclass(frozen=True)
class Equal(Matcher):
    """Equal to a value, even where that looks like a matcher."""

    key = "$equal"
    value: Any

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(self.value, bool) == isinstance(value, bool) and bool(self.value == value)

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files."""
        return {self.key: self.value}


@dataclass(frozen=True)
class OneOf(Matcher):
    """Any of several values or matchers."""

    key = "$one_of"
    values: Sequence[Any]

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return any(fits(each, value) for each in self.values)


@dataclass(frozen=True)
class Regex(Matcher):
    """A text in which a regular expression is found."""

    key = "$regex"
    pattern: str

    def __post_init__(self) -> None:
        _compiled(self.pattern)

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(value, str) and _compiled(self.pattern).search(value[:MAX_TEXT]) is not None


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


@dataclass(frozen=True)
class SameDate(Matcher):
    """A text with the same date, in whatever form: `2026-11-23`, `23 Nov 2026`, `2026-11-23T10:00:00Z`."""

    key = "$date"
    date: str

    def __post_init__(self) -> None:
        if _date_of(self.date) is None:
            raise UsageError(f"{shown(self.date)} is not a date.", hint="Write it as 2026-11-23.")

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return isinstance(value, str) and _date_of(value) == _date_of(self.date)


@dataclass(frozen=True)
class Satisfies(Matcher):
    """A value for which a function returns true. A function that raises does not."""

    key = "$function"
    function: Callable[..., Any]

    def fits(self, value: Any) -> bool:
        """Check a value."""
        try:
            return bool(self.function(value))
        except Exception:
            return False

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files: the function's name."""
        return {self.key: getattr(self.function, "__name__", type(self.function).__name__)}


@dataclass(frozen=True)
class IfGiven(Matcher):
    """Expects a value for a parameter that may also be missing."""

    key = "$if_given"
    value: Any

    def fits(self, value: Any) -> bool:
        """Check a value."""
        return fits(self.value, value)


def fits(expected: Any, value: Any, *, exact: bool = False) -> bool:
    """Check a value against an expectation: a matcher, a plain value, or a list or an object that contains these."""
    match expected:
        case Matcher():
            return expected.fits(value)
        case Mapping():
            return isinstance(value, Mapping) and not wrong_parameters(expected, value, exact=exact)
        case list() | tuple():
            pairs = isinstance(value, list | tuple) and len(value) == len(expected)
            return pairs and all(fits(one, other, exact=exact) for one, other in zip(expected, value, strict=True))
        case bool():
            return expected is value
        case _:
            return not isinstance(value, bool) and bool(expected == value)


def wrong_parameters(expected: Mapping[str, Any], given: Mapping[str, Any], *, exact: bool = False) -> tuple[str, ...]:
    """List the parameters that are missing or do not fit, and with `exact` unexpected ones."""
    wrong = [
        name
        for name, value in expected.items()
        if (not isinstance(value, IfGiven) if name not in given else not fits(value, given[name], exact=exact))
    ]
    return (*wrong, *(name for name in given if exact and name not in expected))


@dataclass(frozen=True)
class ExpectedCall:
    """A call that should be made.

    Args:
        tool: The tool, by any name that the catalog resolves, or several alternatives.
        arguments: Arguments, each a value or a matcher.
        match: How to compare arguments, or None as in the case.
        turn: Which message it should follow, from 1, or None for any.
        may_fail: Whether it counts although the tool returned an error.
    """

    tool: str | Sequence[str]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    match: ArgumentMode | None = None
    turn: int | None = None
    may_fail: bool = False

    def __post_init__(self) -> None:
        if not self.tools or not all(isinstance(name, str) and name for name in self.tools):
            raise UsageError(f"The tool of a call cannot be {brief(self.tool)}.", hint="Name it as server:tool.")
        if not isinstance(self.arguments, Mapping):
            raise UsageError(f"The arguments of a call cannot be {brief(self.arguments)}.", hint="They are an object.")
        _check_choice("match", self.match, (None, *get_args(ArgumentMode)))
        if self.turn is not None and (type(self.turn) is not int or self.turn < 1):
            raise UsageError(f"turn cannot be {brief(self.turn)}.", hint="The first message has number 1.")

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools, any of which may be called."""
        return (self.tool,) if isinstance(self.tool, str) else tuple(self.tool)

    def names(self, tool: ToolName) -> bool:
        """Check whether it means a tool."""
        return any(is_named(name, tool) for name in self.tools)

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files."""
        tool = self.tools[0] if len(self.tools) == 1 else list(self.tools)
        options = {"match": self.match, "turn": self.turn, "may_fail": self.may_fail or None}
        given = {"arguments": plain_expectation(self.arguments)} if self.arguments else {}
        return {"tool": tool, **given, **{name: value for name, value in options.items() if value is not None}}


def is_named(name: str, tool: ToolName) -> bool:
    """Check whether a name means a tool: `server:tool`, `server__tool`, `server_tool` or the tool alone."""
    return name in (tool.tool, str(tool), tool.joined, f"{tool.server}_{tool.tool}") or name == wire_name(tool)


AnswerCheck = str | re.Pattern[str] | Matcher | Callable[[Any], Any]
"""A text that the answer contains as whole words, a pattern or a matcher, or a function that gets the last `Turn`."""


@dataclass(frozen=True)
class ToolUseCase:
    """A message, or several, and the calls that should follow.

    Args:
        message: The person's message, or several messages, one turn each.
        calls: The expected calls. Each is an `ExpectedCall`, a tool name, or a name with arguments.
        alternatives: Other acceptable lists of calls.
        order: Their order.
        extra_calls: How many other calls are right, or None for any number. Searches for tools are never counted.
        arguments: How arguments are compared.
        forbidden: Tools that must not be called.
        no_call: Whether no tool should be called at all.
        answer: A check for the answer, or several that must all hold.
        cluster: The need that it paraphrases, for statistics: cases in a cluster are not independent.
        id: Its name in results. The default is a hash of the rest.
        metadata: Anything else about it. It changes nothing.
        tags: Words to group it by in results.
        judged: Whether its runs are right or wrong. A prompt that is only compared expects nothing.

    Raises:
        UsageError: A value is wrong, or it expects nothing.
    """

    message: str | Sequence[str]
    calls: Sequence[Any] = ()
    alternatives: Sequence[Sequence[Any]] = ()
    order: Order = "any"
    extra_calls: int | None = None
    arguments: ArgumentMode = "subset"
    forbidden: Sequence[str] = ()
    no_call: bool = False
    answer: AnswerCheck | Sequence[AnswerCheck] | None = None
    cluster: str | None = None
    id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    tags: Sequence[str] = ()
    judged: bool = True

    def __post_init__(self) -> None:
        if not self.messages or not all(isinstance(text, str) and text.strip() for text in self.messages):
            raise UsageError(f"The message of a case cannot be {brief(self.message)}.", hint="Give a text, or a list of texts.")
        _check_choice("order", self.order, get_args(Order))
        _check_choice("arguments", self.arguments, get_args(ArgumentMode))
        if self.extra_calls is not None and (type(self.extra_calls) is not int or self.extra_calls < 0):
            raise UsageError(f"extra_calls cannot be {brief(self.extra_calls)}.", hint="It must be 0 or more, or None.")
        for name, value in {"calls": self.calls, "alternatives": self.alternatives, "forbidden": self.forbidden}.items():
            if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
                raise UsageError(f"{name} of a case cannot be {brief(value)}.", hint="It is a list.")
        object.__setattr__(self, "calls", tuple(map(_call, self.calls)))
        object.__setattr__(self, "alternatives", tuple(tuple(map(_call, each)) for each in self.alternatives))
        object.__setattr__(self, "forbidden", tuple(self.forbidden))
        if self.no_call and (self.calls or self.alternatives):
            raise UsageError("A case with no_call cannot expect calls.")
        object.__setattr__(self, "tags", tuple(self.tags))
        if self.judged and not (self.calls or self.alternatives or self.no_call or self.forbidden or self.checks):
            raise UsageError("A case must expect something.", hint="Give calls, forbidden, answer, or no_call=True.")
        for check in self.checks:
            if not isinstance(check, str | re.Pattern | Matcher) and not callable(check):
                raise UsageError(
                    f"A check of the answer cannot be {brief(check)}.", hint="Give a text, a pattern or a function."
                )
        last = len(self.messages)
        if any((call.turn or 1) > last for calls in self.acceptable for call in calls):
            raise UsageError(f"A call expects a turn beyond the last one, {last}.")
        if not self.id:
            object.__setattr__(self, "id", f"case-{self.digest[:8]}")

    @property
    def messages(self) -> tuple[str, ...]:
        """The person's messages, in order."""
        return (self.message,) if isinstance(self.message, str) else tuple(self.message)

    @property
    def acceptable(self) -> tuple[tuple[ExpectedCall, ...], ...]:
        """The lists of calls, any of which is acceptable."""
        lists = (self.calls, *self.alternatives) if self.calls or not self.alternatives else self.alternatives
        return tuple(tuple(calls) for calls in lists)

    @property
    def checks(self) -> tuple[AnswerCheck, ...]:
        """The answer's checks."""
        if self.answer is None:
            return ()
        return tuple(self.answer) if isinstance(self.answer, list | tuple) else (cast("AnswerCheck", self.answer),)

    @property
    def tools(self) -> tuple[str, ...]:
        """All tool names in it, expected or forbidden."""
        expected = (name for calls in self.acceptable for call in calls for name in call.tools)
        return tuple(dict.fromkeys((*expected, *self.forbidden)))

    @property
    def digest(self) -> str:
        """A hash of its messages and expectations."""
        fields = {name: value for name, value in self.plain().items() if name not in ("id", "metadata", "cluster", "tags")}
        return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()

    def plain(self) -> dict[str, Any]:
        """Convert it to a row in a file."""
        messages = self.messages[0] if len(self.messages) == 1 else list(self.messages)
        checks = [_plain_check(check) for check in self.checks]
        row: dict[str, Any] = {"id": self.id, "message": messages}
        row["calls"] = [call.plain() for call in self.calls]
        row["alternatives"] = [[call.plain() for call in calls] for calls in self.alternatives]
        row["answer"] = checks[0] if len(checks) == 1 else checks
        row |= {"forbidden": list(self.forbidden), "metadata": plain_expectation(self.metadata)}
        row |= {"order": self.order, "extra_calls": self.extra_calls, "arguments": self.arguments}
        row |= {"no_call": self.no_call, "cluster": self.cluster, "tags": list(self.tags), "judged": self.judged}
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        return {name: value for name, value in row.items() if value not in ([], {}, defaults[name])}


def plain_expectation(value: Any) -> Any:
    """Convert expected values to their form in files."""
    match value:
        case Matcher():
            return value.plain()
        case Mapping():
            return {str(name): plain_expectation(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain_expectation(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case datetime.date():
            return value.isoformat()
    return str(value)


def _plain_check(check: AnswerCheck) -> Any:
    if isinstance(check, re.Pattern):
        return {Regex.key: check.pattern if not check.flags & re.IGNORECASE else f"(?i){check.pattern}"}
    return check if isinstance(check, str) else (check if isinstance(check, Matcher) else Satisfies(check)).plain()


def _call(value: Any) -> ExpectedCall:
    if isinstance(value, ExpectedCall):
        return value
    if isinstance(value, str):
        return ExpectedCall(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        return ExpectedCall(value[0], value[1])
    raise UsageError(f"An expected call cannot be {brief(value)}.", hint='Write ExpectedCall("server:tool", {"a": 1}).')


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise UsageError(f"{name} cannot be {brief(value)}.", hint=f"It must be {', '.join(map(repr, choices))}.")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(f"{brief(pattern)} is not a regular expression: {error}.") from None


def _date_of(text: str) -> datetime.date | None:
    """Read the date in a text, or None if it is not one with a year, a month and a day."""
    from dateutil import parser

    try:
        # What is missing is filled in from the default, and then the two differ.
        one, other = (parser.parse(text[:100], default=datetime.datetime(*day)) for day in ((2001, 2, 3), (2004, 5, 6)))
    except (ValueError, OverflowError, TypeError):
        return None
    return one.date() if one.date() == other.date() else None


# Rows of files and tables


def read_case(row: Mapping[str, Any], where: str, functions: Functions | None = None) -> ToolUseCase:
    """Build a case from a row.

    Args:
        row: Its fields, as in a file. A discovery case (`query` and `gold`) is accepted too.
        where: Where the row is, for errors.
        functions: The functions that `$function` may name.

    Raises:
        UsageError: A field is unknown or wrong. It is named with its place.
    """
    if "gold" in row and "query" in row:
        row = {"message": row["query"], "calls": [{"tool": [":".join(name) for name in need]} for need in row["gold"]]}
    names = [each.name for each in dataclasses.fields(ToolUseCase)]
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name not in names:
            raise UsageError(f"{where}: unknown field {shown(str(name))}.", hint=did_you_mean(closest(str(name), names), names))
        try:
            if name == "calls":
                value = [_read_call(each, functions) for each in _list(value)]
            elif name == "alternatives":
                value = [[_read_call(each, functions) for each in _list(calls)] for calls in _list(value)]
            elif name == "answer":
                value = (
                    [_read_check(each, functions) for each in value]
                    if isinstance(value, list)
                    else _read_check(value, functions)
                )
            values[name] = value
        except UsageError as error:
            raise UsageError(f"{where}, field {name}: {error}") from None
    if "message" not in values:
        raise UsageError(f"{where}: the field message is missing.")
    try:
        return ToolUseCase(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UsageError(f"This is {brief(value)}, not a list.")
    return value


def _read_call(value: Any, functions: Functions | None) -> ExpectedCall:
    if isinstance(value, str):
        return ExpectedCall(value)
    names = [each.name for each in dataclasses.fields(ExpectedCall)]
    if not isinstance(value, Mapping) or "tool" not in value:
        raise UsageError(f"A call cannot be {brief(value)}.", hint='Write {"tool": "server:tool", "arguments": {…}}.')
    for name in value:
        if name not in names:
            raise UsageError(f"A call has no field {shown(str(name))}.", hint=did_you_mean(closest(str(name), names), names))
    arguments = value.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise UsageError(f"The arguments of a call cannot be {brief(arguments)}.", hint="They are an object.")
    read = {str(name): read_expectation(each, functions) for name, each in arguments.items()}
    return ExpectedCall(**{**value, "arguments": read})


def _read_check(value: Any, functions: Functions | None) -> Any:
    check = read_expectation(value, functions)
    if isinstance(check, Satisfies):
        return check.function
    if isinstance(check, str | Matcher):
        return check
    if isinstance(check, int | float):
        return str(check)
    raise UsageError(f"A check of the answer cannot be {brief(value)}.", hint='Give a text, or {"$regex": …}.')


def read_expectation(value: Any, functions: Functions | None = None) -> Any:
    """Convert a value from a file to an expectation. Objects such as `{"$regex": "^a"}` become matchers.

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
        raise UsageError(f"Unknown matcher {shown(key)}.", hint=did_you_mean(closest(key, Matcher.kinds), Matcher.kinds))
    first, *others = [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in value if name not in (key, *others)]:
        raise UsageError(
            f"The matcher {key} has no option {shown(str(unknown[0]))}.", hint=f"Its options: {', '.join(others) or 'none'}."
        )
    content = value[key]
    if kind is Satisfies:
        if not isinstance(content, str) or content not in (functions or {}):
            available = list(functions or {})
            raise UsageError(
                f"There is no function {brief(content)}.",
                hint=did_you_mean(closest(str(content), available), available)
                if available
                else "Give it in functions={name: function}.",
            )
        content = (functions or {})[content]
    elif kind is OneOf:
        content = [read_expectation(item, functions) for item in _list(content)]
    elif kind is IfGiven:
        content = read_expectation(content, functions)
    elif kind is SameDate:
        content = str(content)
    elif kind is Near and (isinstance(content, bool) or not isinstance(content, int | float) or not math.isfinite(content)):
        raise UsageError(f"{key} cannot be {brief(content)}.", hint="It is a number.")
    return kind(**{first: content, **{name: value[name] for name in others if name in value}})


Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""Rows, each with its place."""


def rows_of(path: Path) -> Rows:
    """Read a file's rows, each with its place: JSON lines, a JSON or YAML list, or CSV.

    Raises:
        UsageError: It cannot be read, or has another format.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{shown(path)} cannot be read: {reason}.") from error
    match path.suffix.casefold():
        case ".yaml" | ".yml":
            yield from _yaml_rows(text, path.name)
        case ".csv":
            # A trajectory is longer than the default.
            csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
            reader = csv.DictReader(io.StringIO(text, newline=""))
            for row in reader:
                yield f"{path.name}, line {reader.line_num}", row
        # BFCL files have a document on each line.
        case ".json" if not _is_json(text.lstrip().partition("\n")[0]) or text.lstrip().startswith("["):
            document = _json(text, path.name)
            rows = document.get("cases", [document]) if isinstance(document, dict) else document
            yield from ((f"{path.name}, entry {number}", _object(row, path.name)) for number, row in enumerate(rows, 1))
        case _:
            for number, line in enumerate(text.split("\n"), 1):
                if line.strip():
                    where = f"{path.name}, line {number}"
                    yield where, _object(_json(line, where), where)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}.") from None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} is not an object.")
    return value


def _yaml_rows(text: str, name: str) -> Rows:
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == "cases"), None)
        if not isinstance(node, yaml.SequenceNode):
            raise UsageError(f"{name} has no list of cases.", hint="Write a list, or a list under the key cases.")
        for item in node.value:
            where = f"{name}, line {item.start_mark.line + 1}"
            yield where, _object(loader.construct_object(item, deep=True), where)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{name} is not YAML: {' '.join(str(error).split())}.") from None
    finally:
        loader.dispose()


def table_rows(table: Any) -> Rows:
    """List the rows in a DataFrame or a list of objects. Empty cells are left out, and lists may be written as JSON.

    Raises:
        UsageError: A row is not an object.
    """
    records = table.to_dict("records") if hasattr(table, "to_dict") else table
    for number, row in enumerate(records, 1):
        where = f"row {number}"
        yield where, {name: _cell(value) for name, value in _object(row, where).items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and not value)


def _cell(value: Any) -> Any:
    if hasattr(value, "item") and not isinstance(value, str):
        return value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def distinct(cases: Iterable[ToolUseCase]) -> tuple[ToolUseCase, ...]:
    """Collect cases.

    Raises:
        UsageError: There are none, or two have the same id.
    """
    by_id: dict[str, ToolUseCase] = {}
    for case in cases:
        if not isinstance(case, ToolUseCase):
            raise UsageError(f"A case cannot be {brief(case)}.", hint="Build a ToolUseCase, or give the path of a file.")
        if by_id.setdefault(case.id, case) is not case:
            raise UsageError(f"Two cases have the id {shown(case.id)}.", hint="Give each its own, or none.")
    if not by_id:
        raise UsageError("There are no cases.")
    return tuple(by_id.values())


def save_tool_cases(cases: Iterable[ToolUseCase], path: str | Path, *, overwrite: bool = False) -> Path:
    """Write cases to a file: `.yaml`, or JSON lines with any other extension. A function is written as its name.

    Args:
        cases: The cases.
        path: The file.
        overwrite: Replace a file that exists.

    Raises:
        UsageError: The file exists, or cannot be written.
    """
    path, rows = Path(path).expanduser(), [case.plain() for case in cases]
    if path.suffix.casefold() in (".yaml", ".yml"):
        import yaml

        text = yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=120)
    else:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    write_text(path, text, overwrite=overwrite, hint="To replace it: overwrite=True.")
    return path
