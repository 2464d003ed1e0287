"""One turn: ask the model, run the calls it asks for, give it the results, until it answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.answers import CallNames, TextPieces, too_long, within
from casual_mcp_nb.engine.before_model_call import BeforeModelCall, MessageEdit, place_of
from casual_mcp_nb.engine.calls import Calls
from casual_mcp_nb.engine.context import ContextWindow, TrimResult
from casual_mcp_nb.engine.cut import CutAnswers
from casual_mcp_nb.engine.dispatch import CallOutcome, Dispatcher
from casual_mcp_nb.engine.follow import changes, news
from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.engine.preflight import Told
from casual_mcp_nb.engine.read_on import DEFINITION as READ_ON
from casual_mcp_nb.engine.read_on import TOKENS as READ_ON_TOKENS
from casual_mcp_nb.engine.read_on import CutResults, ReadResultTool, Recall, was_cut
from casual_mcp_nb.engine.view import cut_notices
from casual_mcp_nb.errors import MaxIterationsError
from casual_mcp_nb.providers.base import RequestAdapted
from casual_mcp_nb.providers.limits import RateLimitWait
from casual_mcp_nb.types.event import (
    READ_RESULT,
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
    ToolsSearched,
)
from casual_mcp_nb.types.nesting import parse_arguments
from casual_mcp_nb.types.step import EMPTY_RESULT, text_of
from casual_mcp_nb.types.tokens import TokenParts, estimate_tokens
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

    from casual_mcp_nb.engine.view import ToolView
    from casual_mcp_nb.providers.base import RetryScheduled
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.types.model_response import ModelResponse

MAX_LOGS = 1_000
"""How many log messages of servers a turn keeps."""
MAX_LOG_CHARACTERS = 500_000
"""How long they may be together."""


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
        followed: Gives the view as it is after what servers changed meanwhile; None where nothing changes.
        change_notices: Gives what there is to say about tools whose definitions changed.
        told: What the person was told about tools in this turn.
        cut_results: Takes the full text of each result that the model reads only a part of, and has those of earlier turns.
        recall: Finds such a text where that has it not.
        once: What they were told in this conversation, and are not told again.
    """

    model: ChatModel
    view: ToolView
    dispatcher: Dispatcher
    messages: list[ChatMessage]
    discovered: dict[str, ToolSpec]
    system: str
    limits: TurnLimits
    emit: Callable[[Event], None]
    stream: bool = True
    gate: BeforeModelCall | None = None
    clock: Callable[[], float] = time.monotonic
    context: ContextWindow = field(default_factory=ContextWindow)
    followed: Callable[[ToolView], Awaitable[ToolView]] | None = None
    change_notices: Callable[[], Sequence[Notice]] = tuple
    told: list[Notice] = field(default_factory=list)
    cut_results: CutResults = field(default_factory=CutResults)
    recall: Recall = lambda _: None
    once: Told = field(default_factory=Told)
    _logged: int = 0
    _log_room: int = MAX_LOG_CHARACTERS
    _logs_left_out: bool = False
    _trimmed: ContextTrimmed | None = None
    _too_large: bool = False
    _cut: CutAnswers = field(default_factory=CutAnswers)

    def __post_init__(self) -> None:
        self._start = self.clock()
        self._first_view = self.view
        self.dispatcher.follow = self._follow
        self._calls = Calls(self.dispatcher, self.limits, self.emit, self.now, self.cut_results)
        self._reader = ReadResultTool(self._full_result, self._result_ids, self.limits.result_tokens)
        self._offer_to_read_on(self.messages)
        self._system_tokens = _prompt_tokens(self.system)
        asked = (message.tool_calls or () for message in self.messages if message.role == "assistant")
        self._names = CallNames((call.id for calls in asked for call in calls), self.dispatcher.wire_name)

    async def run(self) -> None:
        """Take step after step until the model asks for no more tools.

        Raises:
            LimitError: The step limit was reached, an answer has no end, or a call fails again and again in the same way;
                everything up to there stays on the trace.
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
        if step:
            await self._follow()
        request = self.request(step)
        if self.gate is not None and (edits := await self.gate(step, request)):
            for edit in edits:
                self._edit(step, edit)
            request = self.request(step)
        without = None if self.view is self._first_view else self.view.undeferred_tokens
        self.emit(StepStarted(step, request, self.now(), without))
        answer = await self._answer(step, request)
        self.context.measure.learn(request.tokens.total, answer.usage)
        self._say_what_was_cut(step, request, answer)
        message = self._names.clean(answer.message)
        self.messages.append(message)
        self.emit(StepFinished(step, message, answer.usage, answer.finish_reason, self.now(), answer.truncated))
        return message

    async def call_tools(self, step: int, calls: Sequence[AssistantToolCall]) -> None:
        """Run the calls side by side and take their results into the conversation, in the order of the calls."""
        from casual_mcp_nb.types.provider_state import result_message

        outcomes = await self._calls.run(step, calls, self._cut.refusals(calls))
        for call, outcome in zip(calls, outcomes, strict=True):
            failed = outcome.status != "ok"
            self.messages.append(
                result_message(call.function.name, call.id, outcome.text, failed=failed, result=outcome.result)
            )
            if outcome.search is not None:
                self._load(step, call, outcome)
        self._offer_to_read_on(self.messages[-len(calls) :])
        self._calls.repeats.check()
        self._cut.check()

    def request(self, step: int = 0) -> Request:
        """What the model is given next; where something of the conversation is left out, an event says so."""
        from casual_llm.messages import SystemMessage

        found = [tool.definition for tool in self.discovered.values()]
        system = [SystemMessage(content=self.system)] if self.system else []
        rest = self._tokens()
        fit = self.context.fit(self.messages, rest.total)
        self._say_what_fits(step, fit)
        tools = (*self.view.definitions, *found, *([READ_ON] if self._can_read_on else []))
        return Request(
            messages=(*system, *self.messages[fit.left_out :]),
            tools=tools,
            tokens=replace(rest, history=fit.history, results=fit.results),
            left_out=fit.left_out,
            options=self._asked(step).sendable(tools=bool(tools)).options.shown(),
        )

    async def _follow(self) -> None:
        if self.followed is None:
            return
        before, self.view = self.view, await self.followed(self.view)
        if self.view is before:
            return
        self.dispatcher.view = self.view
        for name in tuple(self.discovered):
            tool = self.view.deferred_by_name.get(name)
            if tool is None:
                del self.discovered[name]
            else:
                self.discovered[name] = tool
        own = self.view.synthetic_tools(tool.tool_name for tool in self.discovered.values())
        self.dispatcher.synthetic = {**own, READ_RESULT: self._reader} if self._can_read_on else own
        for notice in (*changes(before, self.view), *news((*self.change_notices(), *self.view.notices), self.told)):
            self.told.append(notice)
            self.emit(replace(notice, at=self.now()))

    @property
    def _can_read_on(self) -> bool:
        return READ_RESULT in self.dispatcher.synthetic

    def _offer_to_read_on(self, messages: Sequence[ChatMessage]) -> None:
        if not self._can_read_on and was_cut(messages):
            self.dispatcher.synthetic = {**self.dispatcher.synthetic, READ_RESULT: self._reader}

    def _result_ids(self) -> set[str]:
        return {message.tool_call_id for message in self.messages if message.role == "tool"}

    def _full_result(self, call_id: str) -> str | None:
        text = self.cut_results(call_id)
        return self.recall(call_id) if text is None else text

    def _asked(self, step: int) -> ChatModel:
        return self.model if step == 0 else self.model.unforced()

    def _edit(self, step: int, edit: MessageEdit) -> None:
        place = place_of(edit, self.messages)
        before = text_of(self.messages[place].content)
        text = edit.text if edit.text or edit.call_id is None else EMPTY_RESULT
        if text == before:
            return
        self.messages[place] = self.messages[place].model_copy(update={"content": text})
        self.context.forget(place)
        self.emit(TextEdited(step, edit.call_id, text, before, self.now()))

    def now(self) -> float:
        """Seconds since the turn began."""
        return self.clock() - self._start

    def log(self, server: str, level: str, text: str) -> None:
        """Take a log message of a server, unless there were too many already."""
        self._logged += 1
        self._log_room -= len(text)
        if self._logged <= MAX_LOGS and self._log_room >= 0:
            self.emit(ServerLog(server, level, text, self.now()))
        elif not self._logs_left_out:
            self._logs_left_out = True
            most = f"{MAX_LOGS:,} log messages, or {MAX_LOG_CHARACTERS:,} characters of them"
            self.emit(Notice(f"There were more than {most}; the rest is left out.", server, self.now()))

    def _load(self, step: int, call: AssistantToolCall, outcome: CallOutcome) -> None:
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

    async def _answer(self, step: int, request: Request) -> ModelResponse:
        most = self.limits.answer_characters
        pieces = TextPieces(lambda text: self.emit(TextDelta(step, text, self.now())), most)

        def took(event: str | RetryScheduled | RateLimitWait | RequestAdapted) -> None:
            pieces.take(event) if isinstance(event, str) else self._waits(step, event)

        asking = self._asked(step).complete(request.messages, request.tools, on_event=took, stream=self.stream)
        try:
            answer = await within(self.limits, asking)
        finally:
            pieces.flush()
        calls = answer.message.tool_calls or ()
        if len(text_of(answer.message.content)) + sum(len(call.function.arguments) for call in calls) > most:
            raise too_long(most)
        return answer

    def _waits(self, step: int, event: RetryScheduled | RateLimitWait | RequestAdapted) -> None:
        if isinstance(event, RequestAdapted):
            self._tell(event.notice)
        elif isinstance(event, RateLimitWait):
            self.emit(ModelWait(step, event.seconds, event.reason, self.now()))
        else:
            self.emit(ModelRetry(step, event.attempt, event.seconds, event.reason, self.now()))

    def _tell(self, text: str) -> None:
        for new in self.once.new([text]):
            self.emit(Notice(new, at=self.now()))

    def _say_what_was_cut(self, step: int, request: Request, answer: ModelResponse) -> None:
        cut = self._cut.notice(step, answer, request.options.get("max_tokens"))
        if cut is not None:
            self.emit(Notice(cut, at=self.now()))
        read = answer.usage.prompt_tokens if answer.usage else None
        if read is not None and self.context.seems_cut(request.tokens.total, read):
            size = f"The model read {read:,} tokens of a request of about {request.tokens.total:,}"
            advice = "its server seems to have cut the beginning. Set context_window in the model's config."
            self._tell(f"{size}: {advice}")

    def _say_what_fits(self, step: int, fit: TrimResult) -> None:
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
        tools = self.view.loaded_tokens + self.view.search_tool_tokens + sum(t.tokens for t in self.discovered.values())
        return TokenParts(
            system=self._system_tokens,
            manifest=self.view.manifest_tokens,
            tools=tools + (READ_ON_TOKENS if self._can_read_on else 0),
        )


# A conversation sends the same system prompt in each turn.
_prompt_tokens = lru_cache(maxsize=8)(estimate_tokens)


def _query_in_words(arguments: dict[str, Any]) -> str:
    names = arguments.get("tool_names") or arguments.get("names")
    parts = [
        str(arguments["query"]) if arguments.get("query") else "",
        f"server {arguments['server_name']}" if arguments.get("server_name") else "",
        f"named {', '.join(map(str, names))}" if isinstance(names, list) and names else "",
    ]
    return ", ".join(part for part in parts if part)[:1000]
