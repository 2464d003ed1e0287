"""Collects what a foreign session says, in any order, until it is made into turns.

The amount that is kept is bounded. Tokens are counted to the end, whatever is kept.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.iterables import attributes, drop_none
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.secret import Suspects
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName
from casual_mcp_nb.conversation.codec import PlainLimits, plain
from casual_mcp_nb.conversation.event import SEARCH_TOOLS, HostedCall
from casual_mcp_nb.conversation.foreign.lines import Fields, Unread, parsed
from casual_mcp_nb.conversation.foreign.messages import Result

OWN_TOOLS = {"Claude Code": "claude-code", "Codex": "codex", "OpenTelemetry": "agent"}
"""The server under which each agent's own tools are listed. No server here has them."""
MAX_TEXT = 20_000
"""How many characters of a text are kept."""
MAX_SHORT_TEXT = 200
"""The same once `MAX_BYTES` are kept."""
MAX_BYTES = 40_000_000
"""How much text is kept in memory."""
MAX_STEPS = 20_000
"""How many model calls and tool calls are kept. Of further ones only the tokens are."""
_MCP = "mcp__"
_COUNTS = (
    *("prompt_tokens", "completion_tokens", "cached_tokens"),
    *("reasoning_tokens", "cache_write_tokens"),
)
_MAX_ITEMS = 200
_MAX_DEPTH = 20
_MAX_NAME = 200
_MAX_TITLE = 100


@dataclass(slots=True)
class DraftCall:
    """A tool call. `steps` are those of the subagent that it started, and `calls` its own calls."""

    id: str
    name: str
    tool: ToolName
    arguments: Fields | str
    began: float | None = None
    ended: float | None = None
    query: str = ""
    result: Result | None = None
    steps: list[DraftStep] = field(default_factory=list)
    calls: list[DraftCall] = field(default_factory=list)


@dataclass(slots=True)
class DraftStep:
    """A model's answer.

    That of a subagent is `aside`. `kept` is False for one of which only the tokens count.
    `key` is the hash of its id. `tools` are the definitions that its request offered,
    and `tool_tokens` their estimated tokens.
    """

    texts: list[str] = field(default_factory=list)
    calls: list[DraftCall] = field(default_factory=list)
    hosted: list[HostedCall] = field(default_factory=list)
    tools: tuple[Fields, ...] = ()
    tool_tokens: int = 0
    usage: TokenUsage | None = None
    model: str = ""
    finish: str | None = None
    began: float | None = None
    ended: float | None = None
    aside: bool = False
    kept: bool = True
    key: int = 0


@dataclass(slots=True)
class DraftTurn:
    """A turn: what the person wrote, and what followed.

    `answered` says whether a model has answered. `compacted` is the summary that replaced all that
    was before, or None.
    """

    texts: list[str] = field(default_factory=list)
    steps: list[DraftStep] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    began: float | None = None
    answered: bool = False
    stopped: bool = False
    compacted: str | None = None


class Draft:
    """A session that is being read.

    Attributes:
        agent: The agent's name.
        server: The server under which the agent's built-in tools are listed.
        provider: The provider's name, as in a config.
        title: The session's title, or its first words.
        system: The system prompt, if the file has it.
        turns: The turns that are kept.
        more_turns: How many are not kept.
        left_out: How many answers are not kept.
        usage: The tokens of all answers, once the file was read.
        cut: How many texts were cut.
        too_many: What is not kept of long lists: how many of each kind.
        unread: What was not understood.
    """

    def __init__(self, agent: str, provider: str, *, steps: int | None = None) -> None:
        self.agent = agent
        self.server = OWN_TOOLS[agent]
        self.provider = provider
        self.title = ""
        self.system = ""
        self.turns: list[DraftTurn] = []
        self.more_turns = 0
        self.left_out = 0
        self.usage = TokenUsage()
        self.cut = 0
        self.too_many: Counter[str] = Counter()
        self.unread = Unread()
        # By the hash of their ids. Of what is not kept, the ids and the tokens are.
        self._steps: dict[int, DraftStep] = {}
        self._usages: dict[int, TokenUsage | None] = {}
        self._calls: dict[int, DraftCall | None] = {}
        self._most = MAX_STEPS if steps is None else steps
        self._asked: set[str] = set()
        self._bytes = 0
        self._at: float | None = None
        self._before: float | None = None
        self._suspects = Suspects()

    # What is read.

    def time(self, at: float | None) -> None:
        """Say when the current line was written."""
        if at is not None:
            self._before, self._at = self._at, at

    def ask(self, text: str, id: str = "") -> None:
        """Begin a turn with what the person wrote, or add to one that nobody has answered.

        Args:
            text: What the person wrote.
            id: The message's id, by which it is known if the file repeats it. Without one, it is
                known by its text.
        """
        self.name(text)
        turn = self.turns[-1] if self.turns else None
        if turn is None or turn.answered or turn.stopped:
            if turn is not None and self.is_full:
                # The last turn that is kept has the tokens of all that follow.
                self.more_turns += 1
                turn.answered = turn.stopped = False
                return
            turn = DraftTurn(began=self._at)
            self.turns.append(turn)
            self._asked.clear()
        if not (turn.texts and self.is_full):
            is_another = bool(id) and id not in self._asked
            if self._keep(text, turn.texts, again=is_another):
                self._asked.add(id)

    def name(self, title: str, *, again: bool = False) -> None:
        """Give the session a title, or, if told so, another one."""
        if again or not self.title:
            words = " ".join(title[: 4 * _MAX_TITLE].split())
            self.title = self.text(words)[:_MAX_TITLE]

    def notice(self, text: str) -> None:
        """Add a notice to the current turn."""
        if not self.is_full:
            self._keep(text, self._turn.notices)

    def stop(self) -> None:
        """Mark the current turn as stopped by the person."""
        self._turn.stopped = True

    def compact(self, summary: str) -> None:
        """Say that from here on the model read a summary of what was before."""
        if self.is_full:
            return
        before = self.turns[-1] if self.turns else None
        if before is None or before.compacted is None or before.answered:
            before = DraftTurn(began=self._at, compacted="")
            before.notices.append("The conversation was compacted before this turn.")
            self.turns.append(before)
        # The mark and its summary are two lines.
        before.compacted = self.text(summary) or before.compacted

    def answer(self, key: str) -> DraftStep:
        """Find a model's answer by its id, or make one that belongs to no turn yet."""
        step = self._steps.get(hash(key))
        if step is None:
            # What a model says is written when it has said it.
            began = self._before or self._at
            step = DraftStep(began=began, key=hash(key), kept=not self.is_full)
            self._usages.setdefault(step.key)
            if step.kept:
                self._steps[step.key] = step
        return step

    def step(self, key: str, *, aside: bool = False, parent: DraftCall | None = None) -> DraftStep:
        """Find a model's answer by its id, or add it to the current turn.

        Args:
            key: The answer's id.
            aside: Whether it is an answer of a subagent.
            parent: The call that started this subagent, if it is known.
        """
        is_new = hash(key) not in self._steps
        step = self.answer(key)
        if is_new:
            step.aside = aside
            turn = self._turn
            turn.answered = turn.answered or not aside
            if step.kept:
                (turn.steps if parent is None else parent.steps).append(step)
        step.ended = self._at
        return step

    def keep_no_more(self) -> None:
        """Keep only the tokens of further answers."""
        self._most = 0

    def drop(self, step: DraftStep) -> None:
        """Do not count an answer, because another one is the same."""
        step.usage = None
        self._usages.pop(step.key, None)

    def report(self, step: DraftStep, usage: TokenUsage | None) -> None:
        """Say how many tokens an answer took. The last report counts."""
        if usage is not None:
            step.usage = self._usages[step.key] = usage

    def say(self, step: DraftStep, text: str) -> None:
        """Add to the text of an answer. Another line may repeat it."""
        if step.kept:
            self._keep(text, step.texts)

    def _keep(self, text: str, texts: list[str], *, again: bool = False) -> bool:
        """Add a text to some, unless they are many, or have it and it is not said again.

        Tell whether it was added.
        """
        text = self.text(text)
        if not text or (text in texts and not again):
            return False
        if len(texts) >= _MAX_ITEMS:
            self.too_many["text"] += 1
            return False
        texts.append(text)
        return True

    def new_call(self, id: str, name: str, arguments: object, query: str = "") -> DraftCall:
        """Make a call that belongs to no answer yet. `query` is that of a search for tools."""
        name = encodable(name[:_MAX_NAME], "replace") or "unnamed"
        tool = ToolName(SYNTHETIC, SEARCH_TOOLS) if query else self.tool(name)
        id, arguments = self.text(id)[:_MAX_NAME], self.arguments(arguments)
        return DraftCall(id, name, tool, arguments, self._at, query=self.text(query))

    def call(
        self, step: DraftStep, id: str, name: str, arguments: object, query: str = ""
    ) -> DraftCall | None:
        """Add a tool call to an answer. Another line may repeat it.

        Args:
            step: The answer.
            id: The call's id.
            name: The tool's name as the model wrote it.
            arguments: The arguments: an object, or its text.
            query: What it searches for, for a call that searches tools.

        Returns:
            The call, or None if it is not kept.
        """
        number = hash(id or f"without an id, {len(self._calls)}")
        if number not in self._calls:
            call = None
            if step.kept and not self.is_full:
                call = self.new_call(id, name, arguments, query)
                step.calls.append(call)
            self._calls[number] = call
        return self._calls[number]

    def result(self, result: Result) -> DraftCall | None:
        """Add the result of a call, and return the call. None, if there is no such call."""
        call = self._calls.get(hash(result.id))
        if call is not None:
            call.result, call.ended = self.bounded(result), self._at
        elif not self.is_full:
            self.unread.add("result without its call")
        return call

    def bounded(self, result: Result) -> Result:
        """Mask and cut a result."""
        found = [name[:_MAX_NAME] for name in islice(filter(None, result.found), _MAX_ITEMS)]
        return result._replace(text=self.text(result.text), found=found)

    def tool(self, name: str) -> ToolName:
        """Read a tool's name: `mcp__server__tool`, or a tool of the agent's own."""
        server, _, tool = name.removeprefix(_MCP).partition("__")
        if name.startswith(_MCP) and server and tool:
            return ToolName(server, tool)
        return ToolName(self.server, name)

    def text(self, text: str) -> str:
        """Mask probable secrets in a text, and cut it if it is long."""
        most, whole = self._longest, len(text)
        if whole > most:
            # A little more, so that no secret is cut where it would not be found.
            text = text[: most + 1_000]
        text = encodable(self._suspects.text(text), "replace")
        if whole > most:
            self.cut += 1
            text = f"{text[:most]}\n[… cut: {most:,} of {whole:,} characters are kept …]"
        self._bytes += sys.getsizeof(text)
        return text

    def arguments(self, arguments: object) -> Fields | str:
        """Bound the arguments of a call, and mask probable secrets in them."""
        if isinstance(arguments, str):
            value = parsed(arguments) if len(arguments) <= 10 * MAX_TEXT else None
            if not isinstance(value, dict):
                return self.text(arguments)
            arguments = value
        if not isinstance(arguments, dict):
            return {}
        most = self._longest
        limits = PlainLimits(most, _MAX_ITEMS, _MAX_DEPTH, 10**100)
        small: Fields = self._suspects.value(plain(arguments, limits))
        written = json.dumps(small)
        if len(written) > 2 * most:
            self.cut += 1
            return self.text(written)
        self._bytes += 3 * len(written)
        return small

    @property
    def _longest(self) -> int:
        return MAX_TEXT if self._bytes < MAX_BYTES else MAX_SHORT_TEXT

    # What was read.

    @property
    def is_full(self) -> bool:
        """Whether no more answers and calls are kept."""
        return len(self._steps) + len(self._calls) >= self._most

    @property
    def _turn(self) -> DraftTurn:
        if not self.turns:
            self.turns.append(DraftTurn(began=self._at))
        return self.turns[-1]

    @property
    def waiting(self) -> bool:
        """Whether nobody has answered the current turn yet."""
        return bool(self.turns) and not self.turns[-1].answered

    @property
    def calls(self) -> int:
        """How many tool calls the models made, kept or not."""
        return len(self._calls)

    def close(self) -> None:
        """End reading, and sum up."""
        self.usage = _total(self._usages.values())
        late = [usage for key, usage in self._usages.items() if key not in self._steps]
        self.left_out = len(late)
        if late:
            more = count(len(late), "more answer")
            self._turn.notices.append(f"{more}, of which only the tokens are kept.")
            self._turn.steps.append(DraftStep(usage=_total(late), aside=True))
        self._usages.clear()
        self._steps.clear()


class Reader:
    """Reads the JSON objects of a format's files into a draft.

    Attributes:
        agent: The agent's name.
        provider: The provider of its models, unless a file says another.
    """

    agent: ClassVar[str]
    provider: ClassVar[str] = ""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    @staticmethod
    def can_read(record: Fields) -> bool:
        """Check whether an object looks like one of this format."""
        raise NotImplementedError

    def read(self, record: Fields) -> None:
        """Read one."""
        raise NotImplementedError

    def more_files(self, path: Path) -> list[Path]:
        """Find the other files of a session, once its own is read."""
        return []

    def close(self) -> None:
        """End reading."""
        self.draft.close()


def _total(usages: Iterable[TokenUsage | None]) -> TokenUsage:
    """Add up counts. What none of them knows stays unknown."""
    sums: Any = Counter()
    for usage in filter(None, usages):
        sums.update(drop_none(attributes(usage, _COUNTS)))
    return TokenUsage(**sums)
