"""A run's record: what was asked and done, and the verdict on it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.iterables import field_names
from casual_mcp_nb.base.tokens import REUSED_WEIGHT, Origin
from casual_mcp_nb.conversation.codec import load_traces
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.experiments.graded import Verdict
from casual_mcp_nb.experiments.matching import FailureGroup

CacheState = Literal["cold", "warm"]
"""Whether a conversation's first request finds nothing in the provider's prompt cache, or all its
prefix.
"""


@dataclass(frozen=True)
class Setup:
    """What an arm offered to the model, as far as a verdict needs it.

    Args:
        loaded: The tools whose definitions were sent.
        deferred: The tools that the model could search for.
        absent: Servers that did not start, each with the reason.
    """

    loaded: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord(Displayable):
    """One run: a case in an arm.

    It has what happened when the model was asked, and a verdict on that.

    Args:
        key: A hash of all that the model saw: the provider and its address, the model and its
            options, the definitions, the servers, the messages, the repeat. It does not depend on
            what the case expects. Runs with a known key are not repeated.
        case: The case's id.
        arm: The arm's name.
        repeat: Which time, from 0.
        cluster: The case's cluster, or its id.
        messages: The messages.
        place: Which of several cases with these messages, from 0.
        setup: A hash of the arm's set-up: what `key` has beside the case.
        tags: The case's tags.
        made: Whether it was completed. A run that a provider or server broke off is neither right
            nor wrong.
        attempts: How often it was tried.
        right: Whether it is right, or None if it was not completed or is not judged.
        failure: Why it is wrong.
        detail: The failure, or why it was not completed, in a sentence.
        judged_by: A hash of the case that it was judged by.
        tool: The tool concerned.
        parameters: The parameters concerned.
        matched: How many expected calls were made.
        expected: How many were expected.
        extra: How many other calls were made.
        steps: Model calls.
        calls: Tool calls without searches.
        searches: Searches for tools.
        ranked_by: Whether its searches ranked by `words` or `words and meaning`, both if they
            differ, or None without a search.
        input_tokens: Input tokens, over all requests.
        tokens_reused: Input tokens that providers read from their caches. If they do not report
            this, an estimate of how much each request repeats from the previous one.
        first_reused: Tokens of them in the first request, or None if the provider did not report
            this.
        cold_reused: The same if the first request had read nothing from the cache.
        warm_reused: The same if it had read its whole prefix.
        output_tokens: Output tokens, or None if they were not reported.
        origin: Who counted the input tokens.
        reused_origin: Who counted `tokens_reused`.
        seconds: How long it took.
        cost: Its cost by the price table, or None without prices.
        cold_cost: The same if the first request had read nothing from the cache.
        warm_cost: The same if it had read its whole prefix.
        currency: The currency.
        model: The model's name.
        provider: Its provider.
        discovery: Whether deferred tools were hidden.
        searchable: How many tools were searchable at the start.
        undeferred_tokens: Input tokens if every tool had been loaded, estimated.
        answer: The last answer.
        needed: The tools that the case expects.
        deferred: Tools in `needed`, `found` and `called` that were deferred at the start.
        found: The tools that searches returned.
        called: The tools that were called, without calls that were refused.
        refused: Tools whose calls were refused: by you, a policy or a limit.
        reference: A person's label for the answer, from the case's `label`.
        grades: What a judge model said of the answer, and what that took. It is in none of the
            figures above.
        transcript: The turns as JSON, without the tool definitions, which the file has once.
    """

    key: str
    case: str
    arm: str
    repeat: int
    cluster: str
    messages: tuple[str, ...] = ()
    place: int = 0
    setup: str = ""
    tags: tuple[str, ...] = ()
    made: bool = True
    attempts: int = 1
    right: bool | None = None
    failure: FailureGroup | None = None
    detail: str = ""
    judged_by: str = ""
    tool: str | None = None
    parameters: tuple[str, ...] = ()
    matched: int = 0
    expected: int = 0
    extra: int = 0
    steps: int = 0
    calls: int = 0
    searches: int = 0
    ranked_by: str | None = None
    input_tokens: int | None = None
    tokens_reused: int | None = None
    first_reused: int | None = None
    cold_reused: int | None = None
    warm_reused: int | None = None
    output_tokens: int | None = None
    origin: Origin = "estimated"
    reused_origin: Origin = "estimated"
    seconds: float = 0.0
    cost: float | None = None
    cold_cost: float | None = None
    warm_cost: float | None = None
    currency: str | None = None
    model: str | None = None
    provider: str | None = None
    discovery: bool | None = None
    searchable: int = 0
    undeferred_tokens: int | None = None
    answer: str = ""
    needed: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    reference: str = ""
    grades: tuple[Verdict, ...] = ()
    transcript: str = field(default="", repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<RunRecord: {self.case} in {self.arm}, repeat {self.repeat + 1}: {self.outcome}>"

    @property
    def outcome(self) -> str:
        """How it ended, in a word or two: `right`, `wrong` or why it is, `not made` or `not
        judged`.
        """
        if not self.made:
            return "not made"
        if self.right is None:
            return "not judged"
        if self.right:
            return "right"
        return self.failure or "wrong"

    @property
    def ungraded(self) -> bool:
        """Whether a judge model should grade its answer, and has not. The detail says why."""
        return self.made and self.right is None and bool(self.detail)

    @property
    def message(self) -> str:
        """The last message."""
        return self.messages[-1] if self.messages else ""

    @property
    def label(self) -> str:
        """The case by its id, or by how its message begins if the id was made up."""
        if not self.message or not re.fullmatch(r"case-(?:[0-9a-f]{8}|[0-9a-f]{16})", self.case):
            return self.case
        return textwrap.shorten(self.message[:1_000], 80, placeholder=" …") or self.case

    @property
    def tokens_in_full(self) -> int | None:
        """Input tokens without `tokens_reused`, or None if unknown."""
        if self.input_tokens is None:
            return None
        return self.input_tokens - (self.tokens_reused or 0)

    def priced_tokens(self, cache: CacheState) -> float | None:
        """Compute the input tokens with reused ones counted as a tenth, for a cold or a warm
        cache.
        """
        reused = self.cold_reused if cache == "cold" else self.warm_reused
        if self.input_tokens is None or reused is None:
            return None
        return self.input_tokens - (1 - REUSED_WEIGHT) * min(reused, self.input_tokens)

    @property
    def grade(self) -> str | None:
        """The judge's label for the answer, or None if it gave none."""
        return self.grades[0].label if self.grades else None

    @property
    def judge_tokens(self) -> int:
        """The tokens that grading it took, which `input_tokens` and `output_tokens` do not have."""
        return sum(each.input_tokens + each.output_tokens for each in self.grades)

    @property
    def judge_cost(self) -> float | None:
        """What grading it cost, or None without a price."""
        return _sum_of_all(each.cost for each in self.grades)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Its turns with everything that happened, or none if it has no transcript."""
        if not self.transcript:
            return ()
        traces, *_ = load_traces(self.transcript, Trace)
        return tuple(map(Turn, traces))

    @property
    def turn(self) -> Turn | None:
        """Its last turn, or None if it has no transcript."""
        return self.turns[-1] if self.transcript else None

    def row(self) -> dict[str, Any]:
        """Collect its fields as plain values, without the transcript."""
        row = {}
        for name in ROW:
            value = getattr(self, name)
            row[name] = ", ".join(value) if isinstance(value, tuple) else value
        return row


ROW = (
    *[name for name in field_names(RunRecord) if name not in ("transcript", "grades")],
    *("tokens_in_full", "grade", "judge_tokens", "judge_cost"),
)
"""The names of a row's fields, see `RunRecord.row`."""


def judge_cost_of(records: Iterable[RunRecord]) -> float | None:
    """Add up what grading cost, or return None if a price is missing."""
    return _sum_of_all(record.judge_cost for record in records)


def _sum_of_all(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
