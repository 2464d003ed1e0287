"""One turn: ask the model, run the calls it asks for, give it the results, until it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.dispatch import Dispatcher, Outcome, parse_arguments
from casual_mcp_nb.engine.results import ResultFormat, cut_text, encodable, format_result
from casual_mcp_nb.engine.view import cut_notices
from casual_mcp_nb.errors import MaxIterationsError
from casual_mcp_nb.types.event import (
    Event,
    ModelRetry,
    Notice,
    Request,
    ServerLog,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
)
from casual_mcp_nb.types.step import UNANSWERED, text_of
from casual_mcp_nb.types.tokens import TokenParts, estimate_tokens
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

    from casual_mcp_nb.engine.view import ToolView
    from casual_mcp_nb.providers.base import ChatModel, Retrying

_CHARACTERS_PER_TOKEN = 4
MOST_LOGS = 1_000
"""How many log messages of servers a turn keeps."""


@dataclass(frozen=True)
class Limits:
    """What a turn may take.

    Args:
        max_steps: Calls of the model.
        parallel_calls: Calls of tools that run at once; the others wait their turn.
        result_tokens: Length of a result as the model reads it, in tokens; the full one stays on the trace.
        result_format: How a result is put to the model.
    """

    max_steps: int = 50
    parallel_calls: int = 8
    result_tokens: int = 20_000
    result_format: ResultFormat = "result"


@dataclass(eq=False)
class Run:
    """The state of one turn in the making. Nothing of it is shared with another.

    Args:
        model: Answers.
        view: What the model sees at the start.
        dispatcher: Runs the calls; shares `discovered` with this run.
        messages: The conversation so far, with the new message and without a system message; grows.
        discovered: What the conversation has loaded by search, by wire name; grows.
        system: The system prompt; empty for none.
        limits: What the turn may take.
        emit: Takes each event.
        stream: Whether the model's text is asked for piece by piece.
        clock: Seconds, from any start.
    """

    model: ChatModel
    view: ToolView
    dispatcher: Dispatcher
    messages: list[ChatMessage]
    discovered: dict[str, ToolSpec]
    system: str
    limits: Limits
    emit: Callable[[Event], None]
    stream: bool = True
    clock: Callable[[], float] = time.monotonic
    _sizes: list[tuple[bool, int]] = field(default_factory=list)
    _logged: int = 0

    def __post_init__(self) -> None:
        self._start = self.clock()
        self._slots = asyncio.Semaphore(self.limits.parallel_calls)
        self._system_tokens = _prompt_tokens(self.system)
        self._ids = {call.id for message in self.messages for call in getattr(message, "tool_calls", None) or ()}

    async def to_the_end(self) -> None:
        """Take step after step until the model asks for no more tools.

        Raises:
            MaxIterationsError: The step limit was reached; everything up to it stays on the trace.
            ProviderError: The model failed.
        """
        for step in range(self.limits.max_steps):
            answer = await self.ask(step)
            if not answer.tool_calls:
                if not text_of(answer.content):
                    self.emit(Notice("The model's answer was empty: no text and no call of a tool.", at=self.now()))
                return
            await self.call_tools(step, answer.tool_calls)
        raise MaxIterationsError(
            f"The model went on calling tools for {self.limits.max_steps} steps.",
            hint="Everything up to here is kept: ask it to go on, or raise max_steps.",
        )

    async def ask(self, step: int) -> AssistantMessage:
        """Call the model once and take its answer into the conversation."""
        request = self.request()
        self.emit(StepStarted(step, request, self.now()))
        answer = await self.model.complete(
            request.messages, request.tools, on_event=lambda event: self._from_model(step, event), stream=self.stream
        )
        message = self._with_unique_ids(answer.message)
        self.messages.append(message)
        self.emit(StepFinished(step, message, answer.usage, answer.finish_reason, self.now()))
        return message

    async def call_tools(self, step: int, calls: Sequence[AssistantToolCall]) -> None:
        """Run the calls side by side and take their results into the conversation, in the order of the calls."""
        from casual_llm.messages import ToolResultMessage

        outcomes = await asyncio.gather(*(self._call(step, call) for call in calls))
        for call, outcome in zip(calls, outcomes, strict=True):
            self.messages.append(ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=outcome.text))
            if outcome.search is not None:
                self._load(step, call, outcome)

    def request(self) -> Request:
        """What the model is given next."""
        from casual_llm.messages import SystemMessage

        found = [tool.definition for tool in self.discovered.values()]
        system = [SystemMessage(content=self.system)] if self.system else []
        return Request(
            messages=(*system, *self.messages),
            tools=(*self.view.definitions, *found),
            tokens=self._tokens(),
        )

    def now(self) -> float:
        """Seconds since the turn began."""
        return self.clock() - self._start

    def log(self, server: str, level: str, text: str) -> None:
        """Take a log message of a server, unless there were too many already."""
        self._logged += 1
        if self._logged <= MOST_LOGS:
            self.emit(ServerLog(server, level, text, self.now()))
        elif self._logged == MOST_LOGS + 1:
            self.emit(Notice(f"There were more than {MOST_LOGS:,} log messages; the rest is left out.", server, self.now()))

    async def _call(self, step: int, call: AssistantToolCall) -> Outcome:
        name, arguments = call.function.name, parse_arguments(call.function.arguments)
        tool = self.dispatcher.owner(name)
        self.emit(ToolStarted(step, call.id, name, tool, arguments, self.now()))
        try:
            async with self._slots:
                outcome = await self.dispatcher.run(
                    name, arguments, lambda done, total, said: self.emit(ToolProgress(call.id, done, total, said, self.now()))
                )
        except asyncio.CancelledError:
            self.emit(ToolFinished(step, call.id, tool, "stopped", UNANSWERED, at=self.now()))
            raise
        text = outcome.text if outcome.search else self._for_the_model(outcome.text, name, arguments)
        self.emit(ToolFinished(step, call.id, tool, outcome.status, text, outcome.result, self.now()))
        return replace(outcome, text=text)

    def _for_the_model(self, text: str, name: str, arguments: dict[str, Any] | str) -> str:
        cut = cut_text(encodable(text), self.limits.result_tokens * _CHARACTERS_PER_TOKEN)
        return format_result(cut, self.limits.result_format, name, arguments)

    def _load(self, step: int, call: AssistantToolCall, outcome: Outcome) -> None:
        assert outcome.search is not None
        self.discovered.update((tool.wire_name, tool) for tool in outcome.search.newly_loaded_tools)
        for notice in cut_notices(outcome.search.newly_loaded_tools):
            self.emit(replace(notice, at=self.now()))
        for tool in outcome.search.unloaded:
            self.discovered.pop(tool.wire_name, None)
        if outcome.search.rows is None:
            return
        arguments = parse_arguments(call.function.arguments)
        offered = len(self.view.loaded) + len(self.discovered)
        query = _query_in_words(arguments if isinstance(arguments, dict) else {})
        unloaded = tuple(tool.tool_name for tool in outcome.search.unloaded)
        self.emit(ToolsSearched(step, call.id, query, outcome.search.rows, offered, self.now(), unloaded))

    def _from_model(self, step: int, event: str | Retrying) -> None:
        if isinstance(event, str):
            self.emit(TextDelta(step, event, self.now()))
        else:
            self.emit(ModelRetry(step, event.attempt, event.seconds, event.reason, self.now()))

    def _with_unique_ids(self, message: AssistantMessage) -> AssistantMessage:
        calls = [self._with_unique_id(call) for call in message.tool_calls or ()]
        return message.model_copy(update={"tool_calls": calls or None})

    def _with_unique_id(self, call: AssistantToolCall) -> AssistantToolCall:
        unique = call.id
        while not unique or unique in self._ids:
            unique = f"call_{len(self._ids) + 1}" if not unique else f"{unique}_{len(self._ids) + 1}"
        self._ids.add(unique)
        return call if unique == call.id else call.model_copy(update={"id": unique})

    def _tokens(self) -> TokenParts:
        for message in self.messages[len(self._sizes) :]:
            self._sizes.append((message.role == "tool", message_tokens(message)))
        return TokenParts(
            system=self._system_tokens,
            manifest=self.view.manifest_tokens,
            tools=self.view.loaded_tokens + self.view.search_tool_tokens + sum(t.tokens for t in self.discovered.values()),
            history=sum(size for is_result, size in self._sizes if not is_result),
            results=sum(size for is_result, size in self._sizes if is_result),
        )


# A conversation sends the same system prompt in each turn.
_prompt_tokens = lru_cache(maxsize=8)(estimate_tokens)


def message_tokens(message: ChatMessage) -> int:
    """Estimated price of one message, its calls included."""
    content = message.content if isinstance(message.content, str) else ""
    parts = message.content if isinstance(message.content, list) else []
    texts = [content, *(part.text for part in parts if part.type == "text")]
    for call in getattr(message, "tool_calls", None) or ():
        texts += [call.function.name, call.function.arguments]
    return 4 + sum(estimate_tokens(text) for text in texts if text)


def _query_in_words(arguments: dict[str, Any]) -> str:
    names = arguments.get("tool_names") or arguments.get("names")
    parts = [
        str(arguments["query"]) if arguments.get("query") else "",
        f"server {arguments['server_name']}" if arguments.get("server_name") else "",
        f"named {', '.join(map(str, names))}" if isinstance(names, list) and names else "",
    ]
    return ", ".join(part for part in parts if part)[:1000]
