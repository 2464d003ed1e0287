"""Requests as a whole: trimmed to the context window, compared with the one before, and estimated before a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.model_options import Delivery, DeliverySetting
from casual_mcp_nb.base.tokens import SEARCHING_TURNS, Budget, TokenUsage, TurnCosts, estimate_tokens, message_tokens
from casual_mcp_nb.conversation.event import (
    FINDING,
    READ_RESULT,
    ContextTrimmed,
    Event,
    Notice,
    PrefixCause,
    PrefixChanged,
    Request,
)
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.discovery.manifest import function_card
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.providers.factory import counter_for

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.providers.chat_model import ChatModel


QUESTION = 30
"""Tokens in the person's message: one or two sentences."""
CALL = 40
"""Tokens in a tool call as it goes back to the model: its name and a few arguments."""
RESULT = 300
"""A result's tokens: a short list, or the useful part from a page. Real ones have from 5 to 10,000."""
ANSWER = 100
"""An answer's tokens: a short paragraph."""
CARD = 60
"""Tokens for one tool in a search result: its name, its parameters, its description's first words."""
_CARDS: Mapping[DeliverySetting, int] = {"native": 10, "bridge": 20, "code": 10}
"""Tokens in a card that does not repeat the definition. With `bridge` and `code` the definition is in the result itself."""
TURNS = 10


def turn_budget(view: ToolView, system_tokens: int = 0) -> Budget:
    """Estimate the cost of turns with a view, and the cost if every tool in it were loaded."""
    undeferred = _costs(system_tokens, view.undeferred_tokens)
    if not view.deferred:
        return Budget(_costs(system_tokens, view.first_call_tokens) if view.coded else undeferred, undeferred)
    count = len(view.deferred)
    each = view.deferred_tokens / count
    selection = view.selection
    most = count
    if selection.strategy == "browse":
        most = min(count, selection.max_active_tools, max(1, int(selection.max_active_tokens / max(each, 1))))
    # Only browsing unloads tools; what was searched stays loaded.
    per_search = min(selection.max_search_results, most)
    if selection.strategy == "search":
        per_search = min(per_search, max(1, int(selection.max_search_tokens / max(each, 1))))
    if selection.delivery == "code":
        # In place of its definition, a tool has a function in the search's result.
        each = sum(estimate_tokens(function_card(tool)) for tool in view.deferred) / count
    search = _SearchCost(each, per_search, most, _CARDS.get(selection.delivery, CARD), selection.delivery in _CARDS)
    return Budget(_costs(system_tokens, view.first_call_tokens, search), undeferred)


@dataclass(frozen=True)
class _SearchCost:
    """A search's cost.

    Args:
        at_the_end: Whether definitions come after the conversation, so that everything before them stays in a cache.
    """

    definition: float
    per_search: int
    most: int
    card: int
    at_the_end: bool


def _costs(system: int, definitions: int, search: _SearchCost | None = None) -> TurnCosts:
    turn, _ = _requests(system, definitions, search, 1, range(1))
    typical, new = _requests(system, definitions, search, TURNS, range(0, TURNS, -(-TURNS // SEARCHING_TURNS)))
    worst, _ = _requests(system, definitions, search, TURNS, range(TURNS))
    return TurnCosts(definitions, system + definitions, *map(round, (turn, typical, new, worst)))


def _requests(system: int, definitions: int, search: _SearchCost | None, turns: int, searching: range) -> tuple[float, float]:
    """Add up the requests in turns with one call each. A search comes before it in the `searching` ones.

    Each request sends everything again: the first one's content, the definitions that searches have added, and the
    conversation. Only input counts, not the model's output.

    Returns:
        All tokens, and those after the beginning shared with the previous request.
    """
    sent = new = reused = history = 0.0
    tools = float(definitions)
    active = 0
    for turn in range(turns):
        history += QUESTION
        for request in range(3 if search and turn in searching else 2):
            size = tools + system + history
            sent += size
            new += size - reused
            reused = size
            if search and turn in searching and request == 0:
                added = min(search.per_search, search.most - active)
                active += added
                reused = size if search.at_the_end or not added else tools
                tools += added * search.definition
                history += CALL + search.per_search * search.card
            elif request == (2 if search and turn in searching else 1):
                history += ANSWER
            else:
                history += CALL + RESULT
    return sent, new


class Deliveries:
    """Chooses each turn's delivery, and remembers which models refused the native one. It outlives turns."""

    def __init__(self) -> None:
        self._refused: set[tuple[str, str]] = set()

    def of(self, view: ToolView, model: ChatModel) -> Delivery:
        """Choose the delivery for a model: the selection's, as far as it is possible."""
        setting = view.selection.delivery
        if view.coded:
            return "code"
        if not view.deferred or setting == "code":
            return "definitions"
        if setting == "auto":
            setting = "native" if model.defers_natively or model.tries_natively else "definitions"
        return "definitions" if setting == "native" and self._key(model) in self._refused else setting

    def refuse(self, model: ChatModel) -> None:
        """Record that a model refused the native delivery."""
        self._refused.add(self._key(model))

    def _key(self, model: ChatModel) -> tuple[str, str]:
        return model.client_name, model.model


_MAX_NAMES = 12
_DEFAULTS = {"tool_choice": "auto"}


@dataclass
class PromptPrefix:
    """The previous request, to compare with the next one: tools first, then the system prompt, then the messages.

    Providers render a request in that order, so that one more tool breaks everything behind the tools.

    Args:
        before: The previous request, or None for a conversation's first one.
        response_id: The provider's id for its response, if it gave one.
        options: The options that the provider reads before the messages.
    """

    before: Request | None = None
    response_id: str | None = None
    other_model: bool = False
    new_selection: bool = False
    options: tuple[str, ...] = ()
    _broken: bool = False

    @classmethod
    def after(cls, turn: Turn | None, model: ChatModel, messages: Sequence[ChatMessage], new_selection: bool) -> PromptPrefix:
        """Build the prefix for the first request after a turn, or an empty one where the messages do not continue the turn."""
        options = model.spec.read_first
        before = turn.last_request if turn is not None else None
        if turn is None or before is None:
            return cls(options=options)
        first = next((message for message in before.messages if message.role != "system"), None)
        continued = messages[before.left_out] if before.left_out < len(messages) else None
        if continued is None or (first is not continued and first != continued):
            return cls(options=options)
        response_id = turn.last_response_id if turn.started.provider == model.provider else None
        return cls(before, response_id, turn.started.model != model.name, new_selection, options)

    def compared(
        self,
        request: Request,
        definition_tokens: Callable[[Sequence[Mapping[str, Any]]], int],
        message_tokens: Callable[[int], int],
    ) -> Request:
        """Measure how much a request shares with the previous one."""
        before = self.before
        if before is None:
            return request
        messages = len(before.messages)
        if not self.other_model and _only_longer(before, request):
            # As in nearly every step.
            self._broken = False
            tokens = request.tokens.definitions + message_tokens(messages)
            fields = (request.messages, request.tools, request.tokens, request.left_out, request.options, request.delivery)
            # `replace` takes several times as long.
            return Request(*fields, request.found, tokens, len(before.tools), messages)
        # With native delivery, a request has what makes the provider load deferred tools, before any was found.
        another = self.other_model or (before.delivery != request.delivery and "native" in (before.delivery, request.delivery))
        tools = 0 if another else _shared(before.tools, request.tools)
        whole = tools == len(before.tools) == len(request.tools) and not another
        messages = _shared(before.messages, request.messages) if whole else 0
        if changed := _changed_found(before, request):
            # The provider adds a found tool behind the search that found it.
            found_in = (n for n, message in enumerate(request.messages[:messages]) if changed & _loaded(message))
            messages = next(found_in, messages)
        if self._other_options(before, request):
            messages = min(messages, sum(message.role == "system" for message in request.messages[:1]))
        self._broken = messages < len(before.messages)
        if tools == len(request.tools):
            # All definitions are counted already, those that the provider adds to the conversation included.
            standing = self._standing_found(before, request, messages)
            tokens = request.tokens.definitions - definition_tokens([tool for tool in request.found if tool not in standing])
        else:
            tokens = definition_tokens(request.tools[:tools])
        tokens += message_tokens(messages)
        return replace(request, reused=tokens, reused_tools=tools, reused_messages=messages)

    def _other_options(self, before: Request, request: Request) -> bool:
        if before.options == request.options:
            return False
        old, new = {**_DEFAULTS, **before.options}, {**_DEFAULTS, **request.options}
        return any(old.get(name) != new.get(name) for name in self.options)

    def _standing_found(self, before: Request, request: Request, messages: int) -> list[Mapping[str, Any]]:
        """List the definitions that the provider adds to the unchanged part of the conversation."""
        if messages == len(before.messages) and before.found == request.found[: len(before.found)]:
            return list(before.found)
        names = set[str]().union(*map(_loaded, request.messages[:messages]))
        return [tool for tool in request.found if tool in before.found and tool["name"] in names]

    def sent(self, request: Request, view: ToolView, step: int, now: Callable[[], float]) -> PrefixChanged | None:
        """Remember a request that is sent. Return an event if it does not repeat the whole previous one."""
        before, broken = self.before, self._broken
        change = self._change(before, request, view, step, now()) if before is not None and broken else None
        self.before, self._broken, self.other_model, self.new_selection = request, False, False, False
        return change

    def _change(self, before: Request, request: Request, view: ToolView, step: int, at: float) -> PrefixChanged:
        reused = request.reused or 0
        lost = max(before.tokens.total - reused, 0)
        names: list[str] = []
        cause: PrefixCause = "messages"
        if self.other_model:
            cause = "model"
        elif before.delivery != request.delivery:
            cause = "delivery"
        elif changed := _changed_found(before, request):
            cause, names = "definition", sorted(changed)
        elif not request.reused_messages:
            cause, names = self._tools(before, request, view, step)
        elif request.reused_messages < len(request.messages) and self._other_options(before, request):
            cause = "options"
        elif before.left_out != request.left_out:
            cause = "trimmed"
        return PrefixChanged(step, cause, reused, lost, tuple(names[:_MAX_NAMES]), at)

    def _tools(self, before: Request, request: Request, view: ToolView, step: int) -> tuple[PrefixCause, list[str]]:
        old = {str(tool["name"]): tool for tool in before.tools}
        new = {str(tool["name"]): tool for tool in request.tools}
        added, removed = [name for name in new if name not in old], [name for name in old if name not in new]
        changed = [name for name in new if name in old and new[name] is not old[name] and new[name] != old[name]]
        names = [*added, *removed, *changed]
        if not names and before.tools == request.tools:
            return "system", []
        if added == names == [READ_RESULT]:
            return "large_result", names
        if self.new_selection:
            return "selection", names
        if added == names and all(name in view.deferred_by_name for name in added):
            return "found", names
        if removed == names and all(name in view.deferred_by_name for name in removed):
            return "unloaded", names
        if changed == names and not FINDING.intersection(changed):
            return "definition", names
        return "tools", names


def _only_longer(before: Request, request: Request) -> bool:
    """Check whether a request is the previous one with more messages at its end."""
    return (
        (before.tools is request.tools or before.tools == request.tools)
        and before.messages == request.messages[: len(before.messages)]
        and before.delivery == request.delivery
        and before.found == request.found
        and before.options == request.options
    )


def _changed_found(before: Request, request: Request) -> set[str]:
    """Find the found tools whose definitions have changed, by name."""
    if before.found == request.found[: len(before.found)]:
        return set()
    now = {str(tool["name"]): tool for tool in request.found}
    return {str(tool["name"]) for tool in before.found if now.get(str(tool["name"])) != tool}


def _loaded(message: ChatMessage) -> set[str]:
    return set(loaded_in(message.content)) if message.role == "tool" else set()


def _shared(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Count how many items at the beginning are the same."""
    if old == new[: len(old)]:
        return len(old)
    return next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a is not b and a != b), min(len(old), len(new)))


_ANSWER_RESERVE = 4_096
_MIN_WINDOW = 1_000
"""No server's default window is smaller."""


class TokenCalibration:
    """The ratio between a model's own token counts and our estimates, learnt from its reports. It outlives turns."""

    def __init__(self) -> None:
        self._ratio = 1.0

    def learn(self, estimated: int, usage: TokenUsage | None) -> None:
        """Learn from the tokens that the model reported for a request."""
        if usage is None or not usage.prompt_tokens or usage.origin != "reported" or not estimated:
            return
        self.correct(estimated, usage.prompt_tokens)

    def correct(self, estimated: int, counted: int, *, at_least: bool = False) -> None:
        """Correct later estimates by the tokens that a provider counted in a request, or counted `at_least`."""
        # Some servers report only what they had not cached; no estimate is off by more than these bounds.
        ratio = min(max(counted / max(estimated, 1), 0.75), 4.0)
        self._ratio = max(ratio, self._ratio) if at_least else ratio

    def predict(self, estimated: int) -> int:
        """Predict how many tokens the model will count, corrected by its earlier reports."""
        return round(estimated * self._ratio)


class TrimResult(NamedTuple):
    """The part of a conversation that goes into a request.

    Args:
        history: Estimated tokens in these messages, without tool results.
        over: The whole request's tokens if they exceed the window. Otherwise, None.
    """

    left_out: int = 0
    exchanges: int = 0
    history: int = 0
    results: int = 0
    over: int | None = None


@dataclass
class ContextWindow:
    """Trims one turn's conversation to its model's context window.

    An exchange is everything from one message by the person to the next. Trimming leaves it out as a whole, so that a call
    always stays with its result. The newest exchange always goes into the request: sizes are estimates here, and the provider
    can tell whether it is too long.

    Args:
        window: The model's context window in tokens, or None if unknown: then nothing is left out.
        counted: Messages with known token counts, at first those from the previous turn. Grows.
    """

    window: int | None = None
    reserve: int = 0
    calibration: TokenCalibration = field(default_factory=TokenCalibration)
    count: Callable[[str], int] = estimate_tokens
    counted: list[tuple[ChatMessage, int]] = field(default_factory=list)
    _begun: bool = False
    _left_out: int = 0
    _left_out_reported: int = 0
    _over_reported: bool = False

    def forget(self, index: int) -> None:
        """Recount the messages from an index on, because one of them changed."""
        del self.counted[index:]

    def trim(self, messages: Sequence[ChatMessage], other_tokens: int) -> TrimResult:
        """Trim the conversation, which is only ever extended between calls, to the messages that fit into the next request."""
        if not self._begun:
            self._begun = True
            same = 0
            for previous, message in zip(self.counted, messages, strict=False):
                if previous[0] is not message:
                    break
                same += 1
            del self.counted[same:]
        for message in messages[len(self.counted) :]:
            self.counted.append((message, message_tokens(message, self.count)))
        history = results = 0
        for message, tokens in self.counted[self._left_out :]:
            if message.role == "tool":
                results += tokens
            else:
                history += tokens
        if self.window is None:
            return TrimResult(history=history, results=results)
        limit = self.window - self.reserve
        size = self.calibration.predict(other_tokens + history + results)
        if size <= limit and not self._left_out:
            return TrimResult(history=history, results=results)
        starts = list(exchanges(messages))
        exchange = next((n for n, start in enumerate(starts) if start >= self._left_out), 0)
        while size > limit and exchange < len(starts) - 1:
            for message, tokens in self.counted[starts[exchange] : starts[exchange + 1]]:
                if message.role == "tool":
                    results -= tokens
                else:
                    history -= tokens
            size = self.calibration.predict(other_tokens + history + results)
            exchange += 1
            self._left_out = starts[exchange]
        return TrimResult(self._left_out, exchange, history, results, over=size if size > limit else None)

    def tokens_of(self, messages: int) -> int:
        """Estimate the tokens in the first messages that the last `trim` returned."""
        return sum([tokens for _, tokens in self.counted[self._left_out : self._left_out + messages]])

    def shrink(self, model: ChatModel, estimated: int, counted: int | None) -> None:
        """Leave out more, because the provider refused a request as too long."""
        window = model.window or max(self.calibration.predict(estimated) // 2, 1)
        self.window, self.reserve = window, reserve_of(model, window)
        self.calibration.correct(estimated, counted or window - self.reserve + 1, at_least=counted is None)

    def cut_by_server(self, estimated: int, reported: int | None) -> str:
        """Build a notice if a server must have cut a request, because it counted far fewer tokens, or an empty text.

        Only if the model's window is unknown, and the server's default applies. No estimate is off by that much, and a very
        small count excludes the tokens that the server had cached.
        """
        if self.window is not None or reported is None or reported < _MIN_WINDOW:
            return ""
        if estimated - reported <= max(reported, _MIN_WINDOW):
            return ""
        size = f"The model read {reported:,} tokens of a request of about {estimated:,}"
        return f"{size}: its server seems to have cut the beginning. Set context_window in the model's config."

    def events(self, step: int, trimmed: TrimResult, at: float) -> Iterator[Event]:
        """Yield notices about a request's size, each only once."""
        window = self.window or 0
        if trimmed.left_out and trimmed.left_out != self._left_out_reported:
            self._left_out_reported = trimmed.left_out
            yield ContextTrimmed(step, trimmed.left_out, trimmed.exchanges, window, at)
        if trimmed.over is not None and not self._over_reported:
            self._over_reported = True
            limit = f"the model can read {window:,}, of which {self.reserve:,} are for its answer"
            yield Notice(f"The request is about {trimmed.over:,} tokens, and {limit}: it is sent as it is.", at=at)


class ContextWindows:
    """The token calibration and each model's token counter. It outlives turns."""

    def __init__(self) -> None:
        self._calibrations: dict[tuple[str, str], TokenCalibration] = {}
        self._counters: dict[tuple[str, str], Callable[[str], int] | None] = {}
        self._last: dict[tuple[str, str], ContextWindow] = {}

    async def of(self, model: ChatModel) -> ContextWindow:
        """Create the context window for a turn with a model."""
        key = (model.provider, model.model)
        if model.window and key not in self._counters:
            self._counters[key] = await asyncio.to_thread(counter_for, model)
            if self._counters[key] is not None:
                # What was learnt corrects the estimates that were made without it.
                self._calibrations.pop(key, None)
                self._last.pop(key, None)
        calibration = self._calibrations.get(key)
        if calibration is None:
            calibration = self._calibrations[key] = TokenCalibration()
        window = context_of(model, calibration, self._counters.get(key))
        if last := self._last.get(key):
            window.counted = last.counted.copy()
        self._last[key] = window
        return window


def context_of(model: ChatModel, calibration: TokenCalibration, count: Callable[[str], int] | None) -> ContextWindow:
    """Create the context window for a turn with a model, with a reserve for its answer."""
    window = model.window
    return ContextWindow(window, reserve_of(model, window) if window else 0, calibration, count or estimate_tokens)


def reserve_of(model: ChatModel, window: int) -> int:
    """Compute how many tokens in a window to reserve for a model's answer."""
    return min(model.wanted.max_tokens or min(_ANSWER_RESERVE, window // 8), window // 2)


def exchanges(messages: Sequence[ChatMessage]) -> Iterator[int]:
    """Yield the index at which each exchange begins: 0, and each message by the person that does not follow another."""
    for number, message in enumerate(messages):
        if number == 0 or (message.role == "user" and messages[number - 1].role != "user"):
            yield number
