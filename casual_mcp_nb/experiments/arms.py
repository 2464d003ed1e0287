"""Set up runs: variants and their options, tool descriptions, a budget. Run comparisons of prompts."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.tokens import TokenUsage, estimate_tokens
from casual_mcp_nb.conversation.event import Event, Request
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.tools import Described
from casual_mcp_nb.errors import CasualMcpError, LimitError, UsageError, brief
from casual_mcp_nb.experiments.checks import CheckError
from casual_mcp_nb.experiments.matching import answer_fits
from casual_mcp_nb.experiments.results import ComparedRun, Comparison, ComparisonStatus, RunStatus, Way

if TYPE_CHECKING:
    from casual_llm import Model

    from casual_mcp_nb.base.config import Discovery, Strategy
    from casual_mcp_nb.base.model_options import DeliverySetting
    from casual_mcp_nb.base.prices import Price
    from casual_mcp_nb.providers.chat_model import ChatModel

MAX_RUNS = 100
"""How many runs a comparison may have by default, since each calls a model."""
EXPECTED_ANSWER = 4_096
"""How many tokens a budget first reserves for an answer without a length limit."""
SAMPLE = 10
"""After this many answers, a budget reserves twice the longest one instead, if that is less."""
LEAST_ANSWER = 256
MARGIN = 1.1
"""How far a token estimate may be too low."""

Check = str | re.Pattern[str] | Callable[[Turn], Any]
"""A turn's check: a text that its answer contains, a pattern that matches in it, or a function that gets the turn."""

Descriptions = Mapping[str, Described]
"""Other tool descriptions, by tool: a text, or a mapping with `description` and `parameters`."""


@dataclass(frozen=True)
class Arm:
    """One way to answer, with its options.

    Args:
        way: Its name and settings.
        options: Options for its turns.
        descriptions: Tool descriptions that the model reads in place of the servers' own.
        off: Servers and tools that it leaves out.
    """

    way: Way
    options: TurnOptions
    descriptions: Descriptions = field(default_factory=dict)
    off: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ways:
    """The options that differ between runs: each field has one option's values. Empty means the session's own.

    Args:
        discovery: Whether deferred tools are hidden. `auto` decides by their size.
        models: Model names in the config, or model objects.
        tool_sets: Toolset names. None is the session's toolset.
        strategies: How the model finds deferred tools.
        deliveries: How it receives search results.
    """

    discovery: Sequence[Discovery] = ()
    models: Sequence[str | Model | ChatModel] = ()
    tool_sets: Sequence[str | None] = ()
    strategies: Sequence[Strategy] = ()
    deliveries: Sequence[DeliverySetting] = ()


def options_of(chat: McpToolChat, ways: Ways, options: TurnOptions) -> dict[Way, TurnOptions]:
    """Build a turn's options for each variant: all combinations, in order.

    Without discovery nothing is searched, so strategies and deliveries make no difference there.

    Raises:
        UsageError: A name does not exist, or the variants do not differ.
    """
    for model in ways.models:
        if isinstance(model, str):
            chat.models.check(model)
        elif not hasattr(model, "default_options"):
            raise UsageError(f"A model cannot be {brief(model)}.", hint="Give model names from the config, or model objects.")
    for tool_set in ways.tool_sets:
        if tool_set is not None:
            chat.names.check_tool_set(tool_set)
    selection = chat.selection
    if (ways.strategies or ways.deliveries) and not (ways.discovery or selection.discovery):
        raise UsageError(
            "Discovery is off, so strategies and deliveries make no difference.", hint="Add discovery=True, or [False, True]."
        )
    labels = _unique(model if isinstance(model, str) else model.name for model in ways.models)
    models = dict(zip(labels, ways.models, strict=True))
    values: dict[str, list[Any]] = {
        "model": list(models),
        "tool_set": list(dict.fromkeys(ways.tool_sets)),
        "discovery": list(dict.fromkeys(ways.discovery)),
        "strategy": list(dict.fromkeys(ways.strategies)),
        "delivery": list(dict.fromkeys(ways.deliveries)),
    }
    all_tools = "all tools" if selection.tool_set is None else "the session's toolset"
    result: dict[Way, TurnOptions] = {}
    for combination in product(*(each or [None] for each in values.values())):
        given: dict[str, Any] = dict(zip(values, combination, strict=True))
        if given["discovery"] is False:
            given |= {"strategy": None, "delivery": None}
        words = {
            **given,
            "tool_set": given["tool_set"] or (all_tools if ways.tool_sets else None),
            "discovery": {True: "discovery on", False: "discovery off", "auto": "discovery auto"}.get(given["discovery"]),
        }
        words = {name: word for name, word in words.items() if word is not None}
        differing = [word for name, word in words.items() if len(values[name]) > 1]
        way = Way(" · ".join(differing or words.values()) or "as the session is set", **given)
        changes = {name: value for name, value in given.items() if value is not None}
        if way.model is not None:
            changes["model"] = models[way.model]
        result[way] = options.replaced(**changes)
    return result


def _unique(names: Iterable[str]) -> list[str]:
    """Number the names that occur more than once."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return result


def arms_of(options: Mapping[Way, TurnOptions], descriptions: Mapping[str, Descriptions], without: Sequence[str]) -> list[Arm]:
    """Combine variants with other tool descriptions, and with servers and tools left out.

    Args:
        options: Each variant's options.
        descriptions: Other descriptions by name.
        without: Servers and tools, each left out in an arm.
    """
    arms = []
    for way, given in options.items():
        for name in (None, *descriptions):
            for left_out in (None, *without):
                words = [way.name] if len(options) > 1 or not (descriptions or without) else []
                words += [name or "as listed"] if descriptions else []
                words += [f"without {left_out}" if left_out else "with all"] if without else []
                arm_way = replace(way, name=" · ".join(words), descriptions=name, without=left_out)
                arms.append(Arm(arm_way, given, descriptions[name] if name else {}, (left_out,) if left_out else ()))
    return arms


class Budget:
    """A spending limit for runs. It is never passed, because each model call first reserves its share.

    A request is estimated, with a margin. An answer is assumed to take all tokens that `max_tokens` allows. Without that,
    4,096, or after ten answers twice the longest one, if that is less.

    Args:
        tokens: Input and output tokens, or None for no limit.
        cost: Money, in the prices' currency, or None for no limit.
    """

    def __init__(self, tokens: float | None = None, cost: float | None = None) -> None:
        for name, value in {"max_total_tokens": tokens, "max_cost": cost}.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
                raise UsageError(f"{name} cannot be {brief(value)}.", hint="It must be more than 0, or None for no limit.")
        self.limits = (math.inf if tokens is None else float(tokens), math.inf if cost is None else float(cost))
        self.spent = (0.0, 0.0)
        self._reserved: dict[int, tuple[float, float]] = {}
        self._answers = self._longest = 0

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return min(self.limits) < math.inf

    def left(self) -> tuple[float, float]:
        """Compute the tokens and money that are neither spent nor reserved."""
        reserved = [sum(each[index] for each in self._reserved.values()) for index in (0, 1)]
        return tuple(self.limits[index] - self.spent[index] - reserved[index] for index in (0, 1))  # type: ignore[return-value]

    def reserve(self, run: int, request: Request, price: Price | None) -> bool:
        """Reserve the budget for a run's model call, or return False if too little is left."""
        usual = EXPECTED_ANSWER if self._answers < SAMPLE else min(EXPECTED_ANSWER, max(LEAST_ANSWER, 2 * self._longest))
        limit = request.options.get("max_tokens") or usual
        usage = TokenUsage(round(request.tokens.total * MARGIN), int(limit))
        need = self._of(usage, price)
        self._reserved.pop(run, None)
        if any(one > left for one, left in zip(need, self.left(), strict=True)):
            return False
        self._reserved[run] = need
        return True

    def spend(self, run: int, usage: TokenUsage | None, request: Request, answer: str, price: Price | None) -> None:
        """Record a model call's usage: reported, or estimated."""
        self._reserved.pop(run, None)
        if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
            usage = TokenUsage(request.tokens.total, estimate_tokens(answer))
        self._answers += 1
        self._longest = max(self._longest, usage.completion_tokens or 0)
        self.spent = tuple(one + other for one, other in zip(self.spent, self._of(usage, price), strict=True))  # type: ignore[assignment]

    def release(self, run: int) -> None:
        """End a run's reservation."""
        self._reserved.pop(run, None)

    def _of(self, usage: TokenUsage, price: Price | None) -> tuple[float, float]:
        cost = price.of(usage) if price is not None else None
        return float((usage.prompt_tokens or 0) + (usage.completion_tokens or 0)), cost.amount if cost else 0.0


class BudgetReachedError(LimitError):
    """The next model call could pass the budget."""


def prompts_of(prompt: str | Iterable[str]) -> tuple[str, ...]:
    """List the prompts, each once.

    Raises:
        UsageError: There are none, or one is not a text.
    """
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt) if isinstance(prompt, Iterable) else (prompt,)
    for each in prompts:
        if not isinstance(each, str) or not each.strip():
            raise UsageError(f"A prompt cannot be {brief(each)}.", hint="Give a text, or a list of texts.")
    if not prompts:
        raise UsageError("There is no prompt to compare.")
    return tuple(dict.fromkeys(prompts))


def checks_of(check: Check | Sequence[Check | None] | None, prompts: Sequence[str]) -> dict[str, Check | None]:
    """Read each prompt's check.

    Raises:
        UsageError: It is neither.
    """
    checks: Sequence[Any] = [check] * len(prompts) if not isinstance(check, list | tuple) else check
    if len(checks) != len(prompts):
        raise UsageError(f"There are {len(checks):,} checks for {len(prompts):,} prompts.", hint="Give one for each, or one.")
    for each in checks:
        if each is not None and not isinstance(each, str | re.Pattern) and not callable(each):
            hint = "Give a text that the answer contains, a compiled pattern, or a function that gets the turn."
            raise UsageError(f"A check cannot be {brief(each)}.", hint=hint)
    return dict(zip(prompts, checks, strict=True))


_STOPPED = "Stopped before it began."


class Comparing:
    """A comparison in progress, one run after another, on its chat's loop.

    Runs do not overlap, so that times are comparable and questions to the person come one at a time. Variants alternate, so
    that a comparison that is stopped early has runs for each.

    Args:
        chat: Its servers and models are used. Its conversation stays as it is.
        ways: Turn options for each variant.
        prompts: The prompts, each once.
        repeats: How often each variant answers each prompt.
        checks: Each prompt's check.
        max_runs: How many runs are allowed.
        notify: Called with each turn and event.

    Attributes:
        on_change: Called on every change, on the chat's loop or the thread that calls `end`.

    Raises:
        UsageError: There are too many runs.
    """

    def __init__(
        self,
        chat: McpToolChat,
        ways: Mapping[Way, TurnOptions],
        prompts: Sequence[str],
        *,
        repeats: int = 1,
        checks: Mapping[str, Check | None] | None = None,
        max_runs: int = MAX_RUNS,
        notify: Callable[[Turn, Event], object] = lambda _turn, _event: None,
    ) -> None:
        for name, value in {"repeats": repeats, "max_runs": max_runs}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} cannot be {brief(value)}.", hint="It must be 1 or more.")
        count = len(ways) * len(prompts) * repeats
        if count > max_runs:
            factors = f"variants {len(ways):,}, prompts {len(prompts):,}, repeats {repeats:,}"
            raise UsageError(
                f"That would be {count:,} runs ({factors}), and the limit is {max_runs:,}.",
                hint="Each run calls a model. To make them all, raise max_runs.",
            )
        self.on_change: Callable[[], None] = lambda: None
        self._chat, self._notify = chat.apart(), notify
        self._ways = dict(ways)
        self._prompts = tuple(prompts)
        self._repeats = repeats
        self._checks = dict(checks or {})
        # Replaced as a whole, since other threads read it.
        self._runs = tuple(
            ComparedRun(way, prompt, repeat) for repeat in range(repeats) for prompt in self._prompts for way in self._ways
        )
        self._status: ComparisonStatus = "running"
        self._began = time.monotonic()
        self._seconds: float | None = None

    @property
    def comparison(self) -> Comparison:
        """The comparison as it is now. Thread-safe."""
        runs = tuple(run.measured() if run.status == "running" else run for run in self._runs)
        seconds = time.monotonic() - self._began if self._seconds is None else self._seconds
        return Comparison(runs, tuple(self._ways), self._prompts, self._repeats, self._status, seconds)

    @property
    def runs(self) -> tuple[ComparedRun, ...]:
        """All runs. A run in progress has no figures yet."""
        return self._runs

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return any(run.status == "running" for run in self._runs)

    @property
    def total(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    @property
    def ended(self) -> int:
        """How many have ended."""
        return sum(run.status not in ("waiting", "running") for run in self._runs)

    async def run(self) -> None:
        """Make all runs. A failed run does not end the others. When cancelled, completed runs stay."""
        self._began = time.monotonic()
        try:
            for index in range(len(self._runs)):
                await self._run(index)
        finally:
            self.end()

    def end(self) -> None:
        """Mark unfinished runs as stopped. Harmless once all have ended, and safe on any thread."""
        if self._status != "running":
            return
        self._seconds = time.monotonic() - self._began
        runs = tuple(map(_stopped, self._runs))
        self._status = "stopped" if any(run.status == "stopped" for run in runs) else "done"
        self._runs = runs
        self.on_change()

    async def _run(self, index: int) -> None:
        from casual_llm.messages import UserMessage

        run = self._runs[index]
        turn = Turn(Trace())
        self._set(index, replace(run, status="running", turn=turn))
        chat = self._chat.apart(self._chat.consent)
        options = self._ways[run.way]
        error: str | None = None

        def on_event(event: Event) -> None:
            self._notify(turn, event)
            self.on_change()

        try:
            await chat.run([UserMessage(content=run.prompt)], options, turn=turn, on_event=on_event)
        except Exception as failure:
            error = str(failure) if isinstance(failure, CasualMcpError) else f"{type(failure).__name__}: {failure}"
        status: RunStatus = "done" if error is None and turn.status == "done" else "failed"
        ended = replace(run, status=status, turn=turn, error=error or turn.error)
        self._set(index, await self._checked(await asyncio.to_thread(ended.measured)))

    async def _checked(self, run: ComparedRun) -> ComparedRun:
        check = self._checks.get(run.prompt)
        if check is None:
            return run
        if run.status != "done" or run.turn is None:
            return replace(run, right=False)
        if isinstance(check, str | re.Pattern):
            try:
                return replace(run, right=await asyncio.to_thread(answer_fits, check, run.turn))
            except CheckError as failure:
                return replace(run, problem=f"The check failed: {failure}")
        function, turn = check, run.turn
        try:
            right = await self._chat.run_function(lambda: function(turn), inspect.iscoroutinefunction(function))
            return replace(run, right=bool(right))
        except Exception as failure:
            return replace(run, problem=f"The check failed: {type(failure).__name__}: {failure}")

    def _set(self, index: int, run: ComparedRun) -> None:
        if self._status == "running":
            self._runs = (*self._runs[:index], run, *self._runs[index + 1 :])
            self.on_change()


def _stopped(run: ComparedRun) -> ComparedRun:
    if run.status not in ("waiting", "running"):
        return run
    error = _STOPPED if run.status == "waiting" else "Stopped."
    return replace(run.measured(), status="stopped", error=error)
