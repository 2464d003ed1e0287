"""Collects what a foreign session says, in any order, until it is made into turns.

The amount that is kept is bounded. Tokens are counted to the end, whatever is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.secret import Suspects
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName
from casual_mcp_nb.conversation.codec import PlainLimits, plain
from casual_mcp_nb.conversation.event import SEARCH_TOOLS, HostedCall
from casual_mcp_nb.conversation.foreign.lines import Unread, parsed

MAX_TEXT = 20_000
"""How many characters of a text are kept."""
MAX_SHORT_TEXT = 200
"""The same once `MAX_BYTES` are kept."""
MAX_BYTES = 40_000_000
"""How much text is kept in memory."""
MAX_STEPS = 20_000
"""How many model calls and tool calls are kept. Of further ones only the tokens are."""
_MAX_ITEMS = 200
_MAX_DEPTH = 20
_MAX_NAME = 200
_MAX_TITLE = 100
_MAX_NOTICES = 200
_OPEN_STEPS = 256


@dataclass(slots=True)
class DraftCall:
    """A tool call. `steps` are those of the subagent that it started."""

    id: str
    name: str
    tool: ToolName
    arguments: dict[str, Any] | str
    began: float | None = None
    ended: float | None = None
    done: bool = False
    failed: bool = False
    text: str = ""
    query: str = ""
    found: tuple[ToolName, ...] = ()
    steps: list[DraftStep] = field(default_factory=list)


@dataclass(slots=True)
class DraftStep:
    """A model's answer.

    That of a subagent is `aside`. `kept` is False for one of which only the tokens count.
    """

    texts: list[str] = field(default_factory=list)
    calls: list[DraftCall] = field(default_factory=list)
    hosted: list[HostedCall] = field(default_factory=list)
    usage: TokenUsage | None = None
    model: str = ""
    finish: str | None = None
    began: float | None = None
    ended: float | None = None
    aside: bool = False
    kept: bool = True


@dataclass(slots=True)
class DraftTurn:
    """A turn: what the person wrote, and what followed.

    `answered` says whether a model has answered. `compacted` is the summary that replaced all that was before, or None.
    """

    texts: list[str] = field(default_factory=list)
    steps: list[DraftStep] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    began: float | None = None
    answered: bool = False
    stopped: bool = False
    compacted: str | None = None


@dataclass
class Totals:
    """What a session has in it, kept or not. `tokens` are as the file reports them."""

    turns: int = 0
    calls: int = 0
    answers: int = 0
    tokens: int = 0


class Draft:
    """A session that is being read.

    Attributes:
        agent: The agent's name.
        provider: The provider's name, as in a config.
        title: The session's title, or its first words.
        system: The system prompt, if the file has it.
        turns: The turns so far.
        rest: The tokens of the answers that are not kept.
        left_out: How many answers are not kept.
        cut: How many texts were cut.
        has_usage: Whether the file reports tokens.
        unread: What was not understood.
    """

    def __init__(self, agent: str, provider: str, *, steps: int | None = None) -> None:
        self.agent = agent
        self.provider = provider
        self.title = ""
        self.system = ""
        self.turns: list[DraftTurn] = []
        self.rest = TokenUsage()
        self.left_out = 0
        self.cut = 0
        self.has_usage = False
        self.unread = Unread()
        self.totals = Totals()
        self._steps: dict[str, DraftStep] = {}
        self._calls: dict[str, DraftCall] = {}
        self._most = MAX_STEPS if steps is None else steps
        self._kept = self._bytes = 0
        self._open: dict[str, DraftStep] = {}
        self._counted: set[int] = set()
        self._last_at: float | None = None
        self._suspects = Suspects()

    # What is read.

    def time(self, at: float | None) -> None:
        """Remember when the current line was written."""
        if at is not None:
            self._last_at = at

    def ask(self, text: str, at: float | None) -> None:
        """Begin a turn with what the person wrote, or add to one that nobody has answered."""
        self.time(at)
        if not self.title:
            self.name(text)
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.answered or turn.stopped:
            if turn is not None and self._is_full:
                # The last turn that is kept has the tokens of all that follow.
                self.totals.turns += 1
                turn.answered = turn.stopped = False
                return
            turn = DraftTurn(began=self._last_at)
            self.turns.append(turn)
        if len(turn.texts) < _MAX_ITEMS and not (turn.texts and self._is_full):
            turn.texts.append(self.text(text))

    def name(self, title: str) -> None:
        """Give the session a title."""
        words = " ".join(title[: 4 * _MAX_TITLE].split())
        self.title = self.text(words)[:_MAX_TITLE]

    def notice(self, text: str) -> None:
        """Add a notice to the current turn."""
        turn = self._turn
        if self._is_full:
            return
        if len(turn.notices) < _MAX_NOTICES:
            turn.notices.append(self.text(text))

    def stop(self) -> None:
        """Mark the current turn as stopped by the person."""
        self._turn.stopped = True

    def compact(self, summary: str) -> None:
        """Say that from here on the model read a summary of what was before."""
        if self._is_full:
            return
        turn = DraftTurn(began=self._last_at, compacted=self.text(summary))
        turn.notices.append("The conversation was compacted before this turn.")
        before = self.turns[-1] if self.turns else None
        if before is not None and before.compacted is not None and not before.answered:
            # The mark and its summary are two lines.
            before.compacted = turn.compacted or before.compacted
            return
        self.turns.append(turn)

    def step(
        self,
        key: str,
        at: float | None,
        *,
        aside: bool = False,
        parent: DraftCall | None = None,
    ) -> DraftStep:
        """Find a model's answer by its id, or add it.

        Args:
            key: The answer's id.
            at: When this line of it was written.
            aside: Whether it is an answer of a subagent.
            parent: The call that started this subagent, if it is known.
        """
        step = self._steps.get(key) or self._open.get(key)
        if step is None:
            step = self._add_step(key, aside, parent)
        self.time(at)
        step.ended = self._last_at
        return step

    def _add_step(self, key: str, aside: bool, parent: DraftCall | None) -> DraftStep:
        step = DraftStep(began=self._last_at, aside=aside)
        if not aside:
            self._turn.answered = True
        if self._is_full:
            step.kept = False
            if hash(key) not in self._counted:
                self._open_step(key, step)
            return step
        self._kept += 1
        self._steps[key] = step
        (self._turn.steps if parent is None else parent.steps).append(step)
        return step

    def _open_step(self, key: str, step: DraftStep) -> None:
        """Await further lines of an answer that is not kept."""
        self._counted.add(hash(key))
        self._open[key] = step
        self.left_out += 1
        if len(self._open) > _OPEN_STEPS:
            self._count(self._open.pop(next(iter(self._open))))

    def _count(self, step: DraftStep) -> None:
        if step.usage is not None:
            self.rest = added(self.rest, step.usage)

    def say(self, step: DraftStep, text: str) -> None:
        """Add to the text of an answer. Another line may repeat it."""
        if not step.kept or not text:
            return
        text = self.text(text)
        if text not in step.texts and len(step.texts) < _MAX_ITEMS:
            step.texts.append(text)

    def call(
        self, step: DraftStep, id: str, name: str, arguments: object, server: str, query: str = ""
    ) -> DraftCall | None:
        """Add a tool call to an answer. Another line may repeat it.

        Args:
            step: The answer.
            id: The call's id.
            name: The tool's name as the model wrote it.
            arguments: The arguments: an object, or its text.
            server: The server of a tool whose name does not say it.
            query: What it searches for, for a call that searches tools.

        Returns:
            The call, or None if it is not kept.
        """
        known = self._calls.get(id)
        if known is not None:
            return known
        if not step.kept or self._is_full:
            # Another line may repeat it.
            if hash(("call", id)) not in self._counted:
                self._counted.add(hash(("call", id)))
                self.totals.calls += 1
            return None
        self.totals.calls += 1
        self._kept += 1
        name = encodable(name[:_MAX_NAME], "replace") or "unnamed"
        tool = ToolName(SYNTHETIC, SEARCH_TOOLS) if query else tool_of(name, server)
        id = self.text(id[:_MAX_NAME]) or f"call_{len(self._calls) + 1}"
        call = DraftCall(id, name, tool, self.arguments(arguments), self._last_at)
        call.query = self.text(query)
        step.calls.append(call)
        self._calls[id] = call
        return call

    def result(
        self, id: str, text: str, *, failed: bool = False, found: Iterable[ToolName] = ()
    ) -> DraftCall | None:
        """Add the result of a call, and return the call. None, if there is no such call."""
        call = self._calls.get(id)
        if call is None:
            if not self._is_full:
                self.unread.add("result without its call")
            return None
        call.done, call.failed, call.ended = True, failed, self._last_at
        call.text = self.text(text)
        call.found = tuple(found)[:_MAX_ITEMS]
        return call

    def text(self, text: str) -> str:
        """Mask probable secrets in a text, and cut it if it is long."""
        most = MAX_TEXT if self._bytes < MAX_BYTES else MAX_SHORT_TEXT
        whole = len(text)
        if whole > most:
            # A little more, so that no secret is cut where it would not be found.
            text = text[: most + 1_000]
        text = encodable(self._suspects.text(text), "replace")
        if whole > most:
            self.cut += 1
            text = f"{text[:most]}\n[… cut: {most:,} of {whole:,} characters are kept …]"
        self._bytes += sys.getsizeof(text)
        return text

    def arguments(self, arguments: object) -> dict[str, Any] | str:
        """Bound the arguments of a call, and mask probable secrets in them."""
        if isinstance(arguments, str):
            value = parsed(arguments) if len(arguments) <= 10 * MAX_TEXT else None
            if not isinstance(value, dict):
                return self.text(arguments)
            arguments = value
        if not isinstance(arguments, dict):
            return {}
        most = MAX_TEXT if self._bytes < MAX_BYTES else MAX_SHORT_TEXT
        limits = PlainLimits(most, _MAX_ITEMS, _MAX_DEPTH, 10**100)
        small: dict[str, Any] = self._suspects.value(plain(arguments, limits))
        written = json.dumps(small)
        if len(written) > 2 * most:
            self.cut += 1
            return self.text(written)
        self._bytes += 3 * len(written)
        return small

    # What was read.

    @property
    def _is_full(self) -> bool:
        return self._kept >= self._most

    @property
    def _turn(self) -> DraftTurn:
        if not self.turns:
            self.turns.append(DraftTurn(began=self._last_at))
        return self.turns[-1]

    @property
    def waiting(self) -> bool:
        """Whether nobody has answered the current turn yet."""
        return bool(self.turns) and not self.turns[-1].answered

    @property
    def last_call(self) -> DraftCall | None:
        """The last tool call that is kept."""
        return next(reversed(self._calls.values()), None)

    def call_of(self, id: str | None) -> DraftCall | None:
        """Find a call by its id."""
        return self._calls.get(id) if id else None

    def close(self) -> None:
        """End reading, and sum up."""
        for step in self._open.values():
            self._count(step)
        self._open.clear()
        self.totals.turns += len(self.turns)
        self.totals.answers = len(self._steps) + self.left_out
        usage = self.rest
        for step in self._steps.values():
            if step.usage is not None:
                usage = added(usage, step.usage)
        self.has_usage = usage.prompt_tokens is not None
        self.totals.tokens = usage.total_tokens or 0
        self._steps.clear()


def added(one: TokenUsage, two: TokenUsage) -> TokenUsage:
    """Add up two counts. What neither knows stays unknown."""
    return TokenUsage(
        _sum(one.prompt_tokens, two.prompt_tokens),
        _sum(one.completion_tokens, two.completion_tokens),
        _sum(one.cached_tokens, two.cached_tokens),
        _sum(one.reasoning_tokens, two.reasoning_tokens),
        cache_write_tokens=_sum(one.cache_write_tokens, two.cache_write_tokens),
    )


def _sum(one: int | None, two: int | None) -> int | None:
    if one is None or two is None:
        return two if one is None else one
    return one + two


_MCP = "mcp__"


def tool_of(name: str, server: str) -> ToolName:
    """Read a tool's name: `mcp__server__tool`, or a tool of the agent's own."""
    if name.startswith(_MCP):
        of, separator, tool = name.removeprefix(_MCP).partition("__")
        if of and separator and tool:
            return ToolName(of, tool)
    return ToolName(server, name)
