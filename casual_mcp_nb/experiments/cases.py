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

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, cast, get_args

from casual_mcp_nb.base.iterables import are_texts, drop_none
from casual_mcp_nb.base.patterns import check_pattern
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.errors import UsageError, cannot_be
from casual_mcp_nb.experiments.matchers import Graded, Matcher, Regex, Satisfies, plain_expectation
from casual_mcp_nb.experiments.one_or_several import as_tuple, shortest

Order = Literal["any", "in_order", "exact"]
"""`any` order; `in_order`, with other calls between them; or `exact`: these calls and no others."""
ArgumentMode = Literal["subset", "exact", "ignore"]
"""Whether a call may have more arguments than expected (`subset`), must not (`exact`), or may have
any (`ignore`).
"""


@dataclass(frozen=True)
class ExpectedCall:
    """A call that should be made.

    Args:
        tool: The tool, by any name that the catalog resolves, or several alternatives.
        arguments: Arguments, each a value or a matcher.
        match: How to compare arguments, or None as in the case.
        turn: Which message it should follow, from 1, or None for any.
        may_fail: Whether it counts although the tool returned an error.
        query: What a search for its tool is asked when discovery is evaluated, or None for the
            case's message.
    """

    tool: str | Sequence[str]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    match: ArgumentMode | None = None
    turn: int | None = None
    may_fail: bool = False
    query: str | None = None

    def __post_init__(self) -> None:
        if not self.tools or not are_texts(self.tools):
            raise cannot_be("The tool of a call", self.tool, "Name it as server:tool.")
        if not isinstance(self.arguments, Mapping):
            raise cannot_be("The arguments of a call", self.arguments, "They are an object.")
        Graded.refuse_in(self.arguments)
        _check_choice("match", self.match, (None, *get_args(ArgumentMode)))
        if self.turn is not None and (type(self.turn) is not int or self.turn < 1):
            raise cannot_be("turn", self.turn, "The first message has number 1.")
        if self.query is not None and not (isinstance(self.query, str) and self.query.strip()):
            raise cannot_be("The query of a call", self.query, "It is a text.")

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools, any of which may be called."""
        return as_tuple(self.tool)

    def names(self, tool: ToolName) -> bool:
        """Check whether it means a tool."""
        return any(name in names_of(tool) for name in self.tools)

    def plain(self) -> dict[str, Any]:
        """Convert it to its form in files."""
        options = {
            "match": self.match,
            "turn": self.turn,
            "may_fail": self.may_fail or None,
            "query": self.query,
        }
        plain = {"tool": shortest(list(self.tools))}
        if self.arguments:
            plain["arguments"] = plain_expectation(self.arguments)
        return plain | drop_none(options)


def names_of(tool: ToolName) -> tuple[str, ...]:
    """List what may name a tool: `server:tool`, `server__tool`, `server_tool` or the tool alone."""
    return (tool.tool, str(tool), tool.joined, f"{tool.server}_{tool.tool}", wire_name(tool))


AnswerCheck = str | re.Pattern[str] | Matcher | Callable[[Any], Any]
"""A text that the answer contains as whole words, a pattern or a matcher, or a function that gets
the last `Turn`.
"""


@dataclass(frozen=True)
class ToolUseCase:
    """A message, or several, and the calls that should follow.

    Args:
        message: The person's message, or several messages, one turn each.
        calls: The expected calls. Each is an `ExpectedCall`, a tool name, or a name with arguments.
        alternatives: Other acceptable lists of calls.
        order: Their order.
        extra_calls: How many other calls are right, or None for any number. Searches for tools are
            never counted.
        arguments: How arguments are compared.
        forbidden: Tools that must not be called.
        no_call: Whether no tool should be called at all.
        answer: A check for the answer, or several that must all hold.
        cluster: The need that it paraphrases, for statistics: cases in a cluster are not
            independent.
        id: Its name in results. The default is a hash of the rest.
        metadata: Anything else about it. It changes nothing.
        any_call: Whether at least one call of any tool must be made.
        tags: Words to group results by.
        judged: Whether runs are right or wrong. False for a prompt that is only compared; it may
            expect nothing.

    Raises:
        UsageError: A value is wrong, or it expects nothing.
    """

    message: str | Sequence[str]
    calls: Sequence[Any] = ()
    _: KW_ONLY
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
    any_call: bool = False
    tags: Sequence[str] = ()
    judged: bool = True

    def __post_init__(self) -> None:
        if not self.messages or not all(
            isinstance(text, str) and text.strip() for text in self.messages
        ):
            raise cannot_be(
                "The message of a case", self.message, "Give a text, or a list of texts."
            )
        _check_choice("order", self.order, get_args(Order))
        _check_choice("arguments", self.arguments, get_args(ArgumentMode))
        if self.extra_calls is not None and (
            type(self.extra_calls) is not int or self.extra_calls < 0
        ):
            raise cannot_be("extra_calls", self.extra_calls, "It must be 0 or more, or None.")
        lists = [_list("alternatives", each) for each in _list("alternatives", self.alternatives)]
        object.__setattr__(self, "calls", tuple(map(_call, _list("calls", self.calls))))
        object.__setattr__(self, "alternatives", tuple(tuple(map(_call, each)) for each in lists))
        object.__setattr__(self, "forbidden", tuple(_list("forbidden", self.forbidden)))
        object.__setattr__(self, "tags", _tags(self.tags))
        if not isinstance(self.id, str):
            raise cannot_be("The id of a case", self.id, "It is a text.")
        if self.no_call and (self.calls or self.alternatives or self.any_call):
            raise UsageError("A case with no_call cannot expect calls.")
        if self.any_call and self.extra_calls == 0 and not any(self.acceptable):
            raise UsageError(
                "A case with any_call cannot have extra_calls=0: every call is another one."
            )
        calls = self.calls or self.alternatives or self.any_call or self.no_call
        if self.judged and not (calls or self.forbidden or self.checks):
            raise UsageError(
                "A case must expect something.",
                hint="Give calls, forbidden, answer, any_call=True or no_call=True.",
            )
        for check in self.checks:
            _refuse_wrong_check(check)
        last = len(self.messages)
        if any((call.turn or 1) > last for call in self.expected_calls):
            raise UsageError(f"A call expects a turn beyond the last one, {last}.")
        if not self.id:
            object.__setattr__(self, "id", f"case-{self.digest[:16]}")

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def messages(self) -> tuple[str, ...]:
        """The person's messages, in order."""
        return as_tuple(self.message)

    @property
    def unit(self) -> str:
        """What counts as one in statistics: its cluster, or the case itself, by its id."""
        return self.cluster or self.id

    @property
    def query(self) -> str:
        """Its messages as one text: what a search for its tools is asked."""
        return "\n".join(self.messages)

    @property
    def needs(self) -> tuple[frozenset[ToolName], ...]:
        """For each expected call of the first acceptable list, the tools that meet it.

        A name without a server has an empty server.
        """
        return tuple(frozenset(map(ToolName.split, call.tools)) for call in self.acceptable[0])

    @property
    def acceptable(self) -> tuple[tuple[ExpectedCall, ...], ...]:
        """The lists of calls, any of which is acceptable."""
        lists = self.alternatives
        if self.calls or not self.alternatives:
            lists = (self.calls, *self.alternatives)
        return tuple(map(tuple, lists))

    @property
    def checks(self) -> tuple[AnswerCheck, ...]:
        """The answer's checks."""
        if self.answer is None:
            return ()
        if isinstance(self.answer, list | tuple):
            return tuple(self.answer)
        return (cast("AnswerCheck", self.answer),)

    @property
    def tools(self) -> tuple[str, ...]:
        """All tool names in it, expected or forbidden."""
        names: list[str] = []
        for call in self.expected_calls:
            names += call.tools
        return tuple(dict.fromkeys((*names, *self.forbidden)))

    @property
    def expected_calls(self) -> list[ExpectedCall]:
        """The calls of all acceptable lists."""
        calls: list[ExpectedCall] = []
        for each in self.acceptable:
            calls += each
        return calls

    @property
    def digest(self) -> str:
        """A hash of its messages and expectations, with its functions by name: their code may
        change.
        """
        fields = self.plain()
        for unseen in ("id", "metadata", "cluster", "tags"):
            fields.pop(unseen, None)
        return hashlib.sha256(
            json.dumps(fields, sort_keys=True, default=str).encode("utf-8", "replace")
        ).hexdigest()

    def plain(self) -> dict[str, Any]:
        """Convert it to a row in a file."""
        row = {
            "id": self.id,
            "message": shortest(list(self.messages)),
            "calls": [call.plain() for call in self.calls],
            "alternatives": [[call.plain() for call in calls] for calls in self.alternatives],
            "answer": shortest(list(map(_plain_check, self.checks))),
            "forbidden": list(self.forbidden),
            "metadata": plain_expectation(self.metadata),
            "order": self.order,
            "extra_calls": self.extra_calls,
            "arguments": self.arguments,
            "no_call": self.no_call,
            "any_call": self.any_call,
            "judged": self.judged,
            "cluster": self.cluster,
            "tags": list(self.tags),
        }
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        return {name: value for name, value in row.items() if value not in ([], {}, defaults[name])}


def _refuse_wrong_check(check: Any) -> None:
    if isinstance(check, str):
        check_pattern(contains(check))
    elif isinstance(check, re.Pattern):
        check_pattern(check)
    elif isinstance(check, Graded):
        return
    elif isinstance(check, Matcher):
        Graded.refuse_in(check)
    elif not callable(check):
        raise cannot_be("A check of the answer", check, "Give a text, a pattern or a function.")


def contains(text: str) -> str:
    """Build a pattern for a text as whole words and whole numbers: `391` is not found in `1391`,
    `391.5` or `-391`.
    """
    text = text.strip()
    # A minus after a word or a number is a hyphen, as in `3-5`.
    no_sign = r"(?<!\W[-\u2212])(?<!^[-\u2212])" if text[:1].isdigit() else ""
    return rf"(?i)(?<!\w)(?<!\d[.,]){no_sign}{re.escape(text)}(?!\w)(?![.,]\d)"


_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def _plain_check(check: AnswerCheck) -> Any:
    if isinstance(check, re.Pattern):
        letters = "".join(letter for letter, flag in _FLAGS.items() if check.flags & flag)
        flags = f"(?{letters})" if letters else ""
        return {Regex.key: flags + check.pattern}
    if isinstance(check, str):
        return check
    if isinstance(check, Matcher):
        return check.plain()
    return Satisfies(check).plain()


def _list(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise cannot_be(f"{name} of a case", value, "It is a list.")
    return value


def _tags(value: Any) -> tuple[str, ...]:
    tags = as_tuple(value)
    if not are_texts(tags):
        raise cannot_be("The tags of a case", value, "They are a list of texts.")
    return tuple(dict.fromkeys(tags))


def _call(value: Any) -> ExpectedCall:
    if isinstance(value, ExpectedCall):
        return value
    if isinstance(value, set | frozenset):
        return ExpectedCall(_alternative_tools(value))
    if isinstance(value, str):
        return ExpectedCall(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
        return ExpectedCall(value[0], value[1])
    raise cannot_be("An expected call", value, 'Write ExpectedCall("server:tool", {"a": 1}).')


def _alternative_tools(names: Iterable[Any]) -> str | Sequence[str]:
    """List the tools of a need: texts, tool names, or pairs of server and tool."""
    texts = []
    for name in names:
        if isinstance(name, ToolName):
            texts.append(str(name))
        elif isinstance(name, tuple):
            texts.append(":".join(map(str, name)))
        else:
            texts.append(name)
    texts.sort(key=str)
    return shortest(texts)


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise cannot_be(name, value, f"It must be {', '.join(map(repr, choices))}.")


Case = ToolUseCase
"""The name for a query with its needs: `Case("what time is it", [{ToolName("time", "now")}])`."""
