"""One turn: ask the model, run the calls it asks for, give it the results, until it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.context import Context, Fit
from casual_mcp_nb.engine.dispatch import Dispatcher, Outcome, parse_arguments
from casual_mcp_nb.engine.gate import Edit, Gate, place_of
from casual_mcp_nb.engine.results import ResultFormat, cut_text, encodable, format_result
from casual_mcp_nb.engine.view import cut_notices
from casual_mcp_nb.errors import MaxIterationsError
from casual_mcp_nb.providers.limits import Waiting
from casual_mcp_nb.types.event import (
    ApprovalAnswered,
    ApprovalAsked,
    ContextTrimmed,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    Request,
    ServerLog,
    StepFinished,
    StepStarted,
    TextDelta,
    TextEdited,
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
        gate: Is awaited before each call of the model; None for no pause.
        clock: Seconds, from any start.
        context: Chooses how much of the conversation is sent.
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
    gate: Gate | None = None
    clock: Callable[[], float] = time.monotonic
    context: Context = field(default_factory=Context)
    _logged: int = 0
    _trimmed: ContextTrimmed | None = None
    _too_large: bool = False

    def __post_init__(self) -> None:
        self._start = self.clock()
        self._slots = asyncio.Semaphore(self.limits.parallel_calls)
        self._system_tokens = _prompt_tokens(self.system)
        asked = (message.tool_calls or () for message in self.messages if message.role == "assistant")
        self._ids = {call.id for calls in asked for call in calls}

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
        request = self.request(step)
        if self.gate is not None and (edits := await self.gate(step, request)):
            for edit in edits:
                self._edit(step, edit)
            request = self.request(step)
        self.emit(StepStarted(step, request, self.now()))
        answer = await self.model.complete(
            request.messages, request.tools, on_event=lambda event: self._from_model(step, event), stream=self.stream
        )
        self.context.measure.learn(request.tokens.total, answer.usage)
        message = self._with_unique_ids(answer.message)
        self.messages.append(message)
        self.emit(StepFinished(step, message, answer.usage, answer.finish_reason, self.now()))
        return message

    async def call_tools(self, step: int, calls: Sequence[AssistantToolCall]) -> None:
        """Run the calls side by side and take their results into the conversation, in the order of the calls."""
        from casual_llm.messages import ToolResultMessage

        outcomes = await _side_by_side([self._call(step, call) for call in calls])
        for call, outcome in zip(calls, outcomes, strict=True):
            self.messages.append(ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=outcome.text))
            if outcome.search is not None:
                self._load(step, call, outcome)

    def request(self, step: int = 0) -> Request:
        """What the model is given next; where something of the conversation is left out, an event says so."""
        from casual_llm.messages import SystemMessage

        found = [tool.definition for tool in self.discovered.values()]
        system = [SystemMessage(content=self.system)] if self.system else []
        rest = self._tokens()
        fit = self.context.fit(self.messages, rest.total)
        self._say_what_fits(step, fit)
        return Request(
            messages=(*system, *self.messages[fit.left_out :]),
            tools=(*self.view.definitions, *found),
            tokens=replace(rest, history=fit.history, results=fit.results),
            left_out=fit.left_out,
        )

    def _edit(self, step: int, edit: Edit) -> None:
        place = place_of(edit, self.messages)
        before = text_of(self.messages[place].content)
        if edit.text == before:
            return
        self.messages[place] = self.messages[place].model_copy(update={"content": edit.text})
        self.context.forget(place)
        self.emit(TextEdited(step, edit.call_id, edit.text, before, self.now()))

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
                    name,
                    arguments,
                    lambda done, total, said: self.emit(ToolProgress(call.id, done, total, said, self.now())),
                    lambda asked: self.emit((ApprovalAsked if asked else ApprovalAnswered)(call.id, self.now())),
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

    def _from_model(self, step: int, event: str | Retrying | Waiting) -> None:
        if isinstance(event, str):
            self.emit(TextDelta(step, event, self.now()))
        elif isinstance(event, Waiting):
            self.emit(ModelWait(step, event.seconds, event.reason, self.now()))
        else:
            self.emit(ModelRetry(step, event.attempt, event.seconds, event.reason, self.now()))

    def _with_unique_ids(self, message: AssistantMessage) -> AssistantMessage:
        calls = [self._with_unique_id(call) for call in message.tool_calls or ()] or None
        return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})

    def _with_unique_id(self, call: AssistantToolCall) -> AssistantToolCall:
        unique = call.id
        while not unique or unique in self._ids:
            unique = f"call_{len(self._ids) + 1}" if not unique else f"{unique}_{len(self._ids) + 1}"
        self._ids.add(unique)
        return call if unique == call.id else call.model_copy(update={"id": unique})

    def _say_what_fits(self, step: int, fit: Fit) -> None:
        window = self.context.window or 0
        if fit.left_out and (self._trimmed is None or self._trimmed.messages != fit.left_out):
            self._trimmed = ContextTrimmed(step, fit.left_out, fit.exchanges, window, self.now())
            self.emit(self._trimmed)
        if fit.over is not None and not self._too_large:
            self._too_large = True
            room = f"the model can read {window:,}, of which {self.context.reserve:,} are for its answer"
            said = f"The request is about {fit.over:,} tokens, and {room}: it is sent as it is."
            self.emit(Notice(said, at=self.now()))

    def _tokens(self) -> TokenParts:
        """Of all in a request but the conversation."""
        return TokenParts(
            system=self._system_tokens,
            manifest=self.view.manifest_tokens,
            tools=self.view.loaded_tokens + self.view.search_tool_tokens + sum(t.tokens for t in self.discovered.values()),
        )


# A conversation sends the same system prompt in each turn.
_prompt_tokens = lru_cache(maxsize=8)(estimate_tokens)


async def _side_by_side(calls: Sequence[Coroutine[Any, Any, Outcome]]) -> list[Outcome]:
    # Most steps make one call, which needs no task of its own.
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


def _query_in_words(arguments: dict[str, Any]) -> str:
    names = arguments.get("tool_names") or arguments.get("names")
    parts = [
        str(arguments["query"]) if arguments.get("query") else "",
        f"server {arguments['server_name']}" if arguments.get("server_name") else "",
        f"named {', '.join(map(str, names))}" if isinstance(names, list) and names else "",
    ]
    return ", ".join(part for part in parts if part)[:1000]
