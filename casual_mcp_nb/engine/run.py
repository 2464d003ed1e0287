"""One turn: call the model, run the tools that it calls, give it the results, until it answers.

`build_run` prepares a `Run`. `Run.run_steps` is the turn. Each step of it goes like this:

1. `request` assembles the model's input: the system prompt, as much of the conversation as its
   context window holds, and the definitions that `TurnTools` collects.
2. The options' `gate`, if the caller passed one, pauses here and may edit text that the model has
   not read yet.
3. `_complete` calls the model. `ResponseMessages` makes of its response the conversation's next
   message. Without tool calls, the turn is over.
4. `Calls.run_calls` runs the calls, each through `Dispatcher.dispatch`: at the same time, as far as
   `CallOrder` allows. `_add_results` adds the results to the conversation, and loads the tools
   that a search found.
5. Before the next step, `TurnTools.refresh` applies any changes that servers have made.

Every step emits events. Their trace is the turn's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.tokens import TokenParts, estimate_tokens
from casual_mcp_nb.cassettes.interaction import plain_message
from casual_mcp_nb.conversation.event import (
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    Request,
    RequestEdited,
    StepFinished,
    StepStarted,
    TaskReported,
    TextDelta,
    TextEdited,
)
from casual_mcp_nb.conversation.step import EMPTY_RESULT, text_of
from casual_mcp_nb.discovery.synthetic import HARMLESS_TOOLS
from casual_mcp_nb.engine.answers import (
    CALL_CHARACTERS,
    MAX_PIECE,
    TextPieces,
    too_long,
    within,
)
from casual_mcp_nb.engine.calls import Calls
from casual_mcp_nb.engine.cut_answers import CutAnswers
from casual_mcp_nb.engine.dispatch import Dispatcher
from casual_mcp_nb.engine.edits import (
    BeforeModelCall,
    MessageEdit,
    RequestEdit,
    SystemEdit,
    ToolsEdit,
    index_of,
)
from casual_mcp_nb.engine.large_results import LargeResults
from casual_mcp_nb.engine.missed_search import missed_tool
from casual_mcp_nb.engine.native_check import NativeCheck
from casual_mcp_nb.engine.notices import SeenNotices, ServerLogs
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.outcomes import FinishedCall, ModelText
from casual_mcp_nb.engine.prefix import PromptPrefix
from casual_mcp_nb.engine.response_messages import ResponseMessages
from casual_mcp_nb.engine.searches import as_presented, search_event
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.engine.task_reports import due_reports, handles_of, report_with
from casual_mcp_nb.engine.turn_tools import TurnTools
from casual_mcp_nb.engine.window import ContextWindow
from casual_mcp_nb.errors import (
    ContextOverflowError,
    MaxIterationsError,
    NativeDeferralError,
    shown,
)
from casual_mcp_nb.providers.limits import RateLimitWait, RequestAdapted

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

    from casual_mcp_nb.base.tokens import TokenUsage
    from casual_mcp_nb.conversation.step import ModelResponse
    from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
    from casual_mcp_nb.engine.small_models import SmallModelAid
    from casual_mcp_nb.engine.tool_view import ToolView
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.providers.limits import RetryScheduled
    from casual_mcp_nb.providers.spending import Account

_MAX_OVERFLOWS = 1
"""How often a request is made shorter after the provider has refused it as too long."""


@dataclass(eq=False)
class Run:
    """One turn while it runs.

    Args:
        setup: What the turn was set up with.
        emit: Records an event.
        now: The turn's clock, see `TurnSetup.clock`.
        offered: What the model is offered. The dispatcher has it too.
        dispatcher: Runs single calls.
        messages: The conversation so far, including the new message but no system message, and the
            messages of recorded steps. Grows.
        window: Trims the conversation to the model's context window.
        prefix: The previous request, to compare with the next one.
        seen_notices: What the person was told in this conversation.
        account: Counts what the turn's requests take.

    Attributes:
        logs: Records what servers log while the turn runs.
        repair_calls: Whether calls that the model writes as text are run.
    """

    setup: TurnSetup
    emit: Callable[[Event], None]
    now: Callable[[], float]
    model: ChatModel
    offered: TurnTools
    dispatcher: Dispatcher
    messages: list[ChatMessage]
    system: str
    window: ContextWindow
    prefix: PromptPrefix
    limits: TurnLimits
    large_results: LargeResults
    seen_notices: SeenNotices
    account: Account

    # Derived from the fields above, once.
    repair_calls: bool = field(init=False)
    logs: ServerLogs = field(init=False)
    _calls: Calls = field(init=False)
    _responses: ResponseMessages = field(init=False)
    _native_check: NativeCheck = field(init=False)
    _max_steps: int = field(init=False)
    _stream: bool = field(init=False)
    _first_step: int = field(init=False)
    _first_view: ToolView = field(init=False)

    # These change while the turn runs.
    _next_step: int = field(init=False)
    _system_tokens: int = field(init=False)
    _has_called: bool = field(init=False)
    _cut_answers: CutAnswers = field(init=False, default_factory=CutAnswers)
    _answered: bool = field(init=False, default=False)
    _last_sent: Request | None = field(init=False, default=None)
    _overflows: int = field(init=False, default=0)
    _questions: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        given, recorded = self.setup.options.given, self.setup.recorded
        self._max_steps = given.get("max_steps") or self.limits.max_steps
        self._stream = given.get("stream") is not False
        repair = given.get("repair_calls")
        self.repair_calls = self.model.repair_calls if repair is None else bool(repair)
        self._first_step = 0
        if recorded is not None and (steps := recorded.trace.of(StepStarted)):
            self._first_step = steps[-1].step + 1
        self._next_step = self._first_step
        self._has_called = self._first_step > 0
        self._first_view = self.offered.view
        self._system_tokens = _prompt_tokens(self.system)
        self.logs = ServerLogs(self.emit, self.now)
        self._calls = Calls(
            self.dispatcher,
            self.limits,
            self.emit,
            self.now,
            large_results=self.large_results,
            tasks=self.setup.tasks,
        )
        self._responses = ResponseMessages(
            self.model, self.offered, self._aid, self.messages, self.repair_calls
        )
        self._native_check = NativeCheck(self.model, self.offered)

    @property
    def _aid(self) -> SmallModelAid:
        return self.dispatcher.aid

    def waiting_for_person(
        self, kind: QuestionKind, server: str | None = None
    ) -> Callable[[], None]:
        """Record a question to the person. Return the function that records the answer."""
        self._questions += 1
        name = f"question-{self._questions}"
        self.emit(QuestionAsked(name, kind, server=server, at=self.now()))

        def answered() -> None:
            self.emit(QuestionAnswered(name, at=self.now()))

        return answered

    def is_calling(self, server: str) -> bool:
        """Check whether a call to this server is running."""
        return server in self._calls.servers

    async def run_steps(self) -> None:
        """Run steps until the model calls no more tools.

        A step is an answer of the model, with the calls in it.

        Raises:
            LimitError: The turn reached its step limit, a response does not end, or a call keeps
                failing for the same reason. Everything before that stays on the trace.
            ProviderError: The model failed.
            SpendLimitError: The next request could pass a spend limit.
        """
        if self._first_step and self.messages[-1].role == "assistant":
            # The recorded steps end with an answer.
            return
        if not self._first_step and (
            fitting := await self._aid.tools_for(self.messages, self.offered)
        ):
            self.offered.load_for_message(fitting)
        for count in range(1, self._max_steps + 1):
            if 1 < count == self._max_steps:
                self._aid.begin_last_step()
            step, message = await self._next_answer()
            if not message.tool_calls:
                if not text_of(message.content):
                    self._notify("The model's answer was empty: no text and no tool call.")
                if not self._has_called:
                    await self._notify_of_missed_search()
                return
            self._has_called = True
            calls = message.tool_calls
            if self.setup.plan_only and not _are_harmless(calls):
                return
            refusals = self._cut_answers.refusals(calls, whole=self._responses.written)
            taped = self._taped_texts(calls)
            if self.setup.tasks is not None:
                await self.setup.tasks.settled()
            finished = await self._calls.run_calls(step, calls, refusals, taped)
            self._add_results(step, calls, finished)
        problem = f"The model was still calling tools after {self._max_steps} steps."
        if useful := self._calls.repeats.last_useful:
            problem += f" The last result, of {useful}"
        raise MaxIterationsError(
            problem,
            hint="Completed steps are kept. Ask the model to continue, or raise max_steps.",
        )

    async def _next_answer(self) -> tuple[int, AssistantMessage]:
        """Call the model until it answers, with a request in another form after a refusal that
        calls for one. Return the answer with its step's number.

        Each request has its own number in the record, but only the one that is answered counts as
        a step. The loop ends: a turn gives up native deferral once, and shortens a request at most
        `_MAX_OVERFLOWS` times before an answer.
        """
        while True:
            step = self._next_step
            self._next_step += 1
            if step > self._first_step:
                await self.offered.refresh()
            try:
                return step, await self.call_model(step)
            except NativeDeferralError:
                if self.offered.delivery != "native":
                    raise
                self._give_up_native()
            except ContextOverflowError as error:
                if not self._leave_out_more(error):
                    raise

    async def call_model(self, step: int) -> AssistantMessage:
        """Call the model once and add its response to the conversation."""
        model = self._sent_model
        request = self.request(step, model)
        gate = self.setup.options.gate
        if gate is not None and (edits := await self._paused(gate, step, request)):
            for edit in edits:
                await self._edit(step, edit)
            request = self.request(step, model)
        view = self.offered.view
        undeferred_tokens = None if view is self._first_view else view.undeferred_tokens
        if change := self.prefix.sent(request, view, step, self.now):
            self.emit(change)
        self.emit(StepStarted(step, request, at=self.now(), undeferred_tokens=undeferred_tokens))
        self._last_sent = request
        if self.setup.ahead is not None:
            await self.setup.ahead()
        response = await self._complete(step, request, model)
        if request.delivery == "native" and model.tries_natively:
            self._check_native(step, request, response)
        self._overflows = 0
        self._native_check.remember(request, response.usage)
        if response.usage is not None:
            self._read_usage(request.tokens.total, response.usage)
        if (response.truncated or self._cut_answers.where) and (
            notice := self._cut_answers.notice(step, request, response)
        ):
            self._notify(notice)
        self.prefix.response_id = response.response_id
        message = self._responses.read(response, self._notify)
        self.messages.append(message)
        self._finish_step(step, message, response)
        return message

    def _check_native(self, step: int, request: Request, response: ModelResponse) -> None:
        """Check that the provider has deferred the tools, and drop its response if not."""
        try:
            self._native_check.check(request, response)
        except NativeDeferralError:
            from casual_llm.messages import AssistantMessage

            # It is paid for, so the record has it.
            self._finish_step(step, AssistantMessage(content=""), response, dropped=True)
            raise

    def _finish_step(
        self, step: int, message: AssistantMessage, response: ModelResponse, dropped: bool = False
    ) -> None:
        self.emit(
            StepFinished(
                step,
                message,
                usage=response.usage,
                finish_reason=response.finish_reason,
                at=self.now(),
                truncated=response.truncated,
                hosted_calls=response.hosted_calls,
                response_id=response.response_id,
                request_id=response.request_id,
                dropped=dropped,
            )
        )

    def request(self, step: int = 0, model: ChatModel | None = None) -> Request:
        """Build the next request. An event reports any omitted part of the conversation."""
        offered = self.offered
        definitions = offered.definitions()
        other_tokens = self._system_tokens + offered.view.manifest_tokens
        trimmed = self.window.trim(self.messages, other_tokens + definitions.tokens)
        left_out = trimmed.left_out
        if left_out or trimmed.over is not None:
            for event in self.window.events(step, trimmed, self.now()):
                self.emit(event)
        if left_out:
            offered.leave_out(left_out)
            definitions = offered.definitions(left_out)
        sendable = (model or self._sent_model).sendable(tools=bool(definitions.tools))
        request = Request(
            messages=(
                *_system_messages(self.system),
                *(self.messages[left_out:] if left_out else self.messages),
            ),
            tools=definitions.tools,
            tokens=TokenParts(
                system=self._system_tokens,
                manifest=offered.view.manifest_tokens,
                tools=definitions.tokens,
                history=trimmed.text_tokens,
                results=trimmed.result_tokens,
            ),
            left_out=left_out,
            options=sendable.options.shown(),
            delivery=offered.delivery,
            found=definitions.found,
        )
        if self.prefix.before is None:
            return request
        return self.prefix.compared(request, offered.tokens_of, self._first_message_tokens)

    def _taped_texts(self, calls: Sequence[AssistantToolCall]) -> Mapping[str, str]:
        """Find the results' texts in the cassette that is replayed, by the calls' ids."""
        if self._last_sent is None:
            return {}
        read = map(plain_message, (*self._last_sent.messages, self.messages[-1]))
        texts = self.dispatcher.tape.texts_after(read, self._last_sent.tools)
        if not texts:
            return {}
        return {call.id: text for call, text in zip(calls, texts, strict=False)}

    def _add_results(
        self, step: int, calls: Sequence[AssistantToolCall], finished: Sequence[FinishedCall]
    ) -> None:
        """Add call results to the conversation, in the calls' order, and load the tools that a
        search found.
        """
        from casual_mcp_nb.conversation.messages import result_message

        carrier, report, reported = self._report_tasks(step, calls)
        for call, ended in zip(calls, finished, strict=True):
            layers, handles = ended.text, ended.handles
            origins: Mapping[str, str] = {}
            if call.id == carrier:
                layers = layers._replace(report=report)
                handles, origins = (*handles, *reported), reported
            text, failed = layers.in_message, ended.outcome.status != "ok"
            message = result_message(
                call.function.name,
                call.id,
                text,
                failed=failed,
                result=ended.result,
                handles=handles,
                origins=origins,
            )
            self.messages.append(message)
            self.setup.turn.trace.results[call.id] = message
            if ended.outcome.synthetic is not None:
                self._load_found(step, call, ended.outcome.synthetic, layers)
        self.offered.offer_reader(self.messages[-len(calls) :])
        self._calls.repeats.check()
        self._cut_answers.check()

    def _report_tasks(
        self, step: int, calls: Sequence[AssistantToolCall]
    ) -> tuple[str, str, Mapping[str, str]]:
        """Collect the reports on tasks that have ended, for the next request.

        Returns:
            The id of the call to whose result they are added, their text, and the handles of their
            large results with the ids of the tasks' calls. All are empty if there are none.
        """
        if self.setup.tasks is None:
            return "", "", {}
        tape, after = self.dispatcher.tape, len(self.messages)
        reports = due_reports(self.setup.tasks, tape, after)
        tape.record_task_reports(after, reports)
        if not reports:
            return "", "", {}
        carrier, text = report_with(calls, reports)
        for each in reports:
            self.emit(
                TaskReported(step + 1, each.number, text=each.text, call_id=carrier, at=self.now())
            )
        return carrier, text, handles_of(reports)

    def _load_found(
        self, step: int, call: AssistantToolCall, search: SyntheticToolResult, text: ModelText
    ) -> None:
        """Load the tools that a search found, and unload those that it unloaded."""
        offered = self.offered
        if text.taped is not None:
            deferred = offered.view.deferred_by_name
            search = as_presented(search, text.in_message, deferred, offered.discovered)
        offered.load(search.newly_loaded_tools)
        offered.unload(search.unloaded)
        if event := search_event(step, call, search, offered.count, self.now()):
            self.emit(event)

    async def _complete(self, step: int, request: Request, model: ChatModel) -> ModelResponse:
        limit = self.limits.answer_characters
        emit, now = self.emit, self.now
        # Not every response has text that comes before it is whole.
        pieces: TextPieces | None = None

        def emit_text(text: str) -> None:
            emit(TextDelta(step, text, at=now()))

        def on_event(event: str | RetryScheduled | RateLimitWait | RequestAdapted) -> None:
            nonlocal pieces
            if not isinstance(event, str):
                self._report_delay(step, event)
                return
            if pieces is None:
                pieces = TextPieces(emit_text, limit)
            pieces.add(event)

        found_definitions = request.found if request.delivery == "native" else None
        try:
            completion = model.complete(
                request.messages,
                request.tools,
                found_tools=found_definitions,
                before=self.prefix.response_id,
                on_event=on_event,
                stream=self._stream,
                account=self.account,
                tokens=request.tokens.total,
            )
            response = await within(self.limits, completion)
        finally:
            if pieces is not None:
                pieces.close()
        self._answered = True
        text = text_of(response.message.content)
        characters = len(text)
        for call in response.message.tool_calls or ():
            characters += CALL_CHARACTERS + len(call.function.arguments)
        if characters > limit:
            raise too_long(limit)
        if pieces is None:
            # It was not streamed. Those who read the turn's events get its text all the same.
            for start in range(0, len(text), MAX_PIECE):
                emit_text(text[start : start + MAX_PIECE])
        return response

    @property
    def _sent_model(self) -> ChatModel:
        if self._aid.must_answer:
            return self.model.with_options(RequestOptions(tool_choice="none"))
        # A tool that the caller forces is forced once: otherwise the model could never answer.
        return self.model.unforced() if self._answered else self.model

    def _leave_out_more(self, error: ContextOverflowError) -> bool:
        """Prepare to repeat a request that was too long. Return whether it will be shorter."""
        sent = self._last_sent
        self._overflows += 1
        if sent is None or self._overflows > _MAX_OVERFLOWS:
            return False
        self.window.shrink(self.model, sent.tokens.total, error.tokens)
        other_tokens = (
            self._system_tokens
            + self.offered.view.manifest_tokens
            + self.offered.definitions(sent.left_out).tokens
        )
        if self.window.trim(self.messages, other_tokens).left_out <= sent.left_out:
            return False
        stated = f", which reads {error.window:,} tokens" if error.window else ""
        self._notify_once(
            f"The conversation is too long for model {shown(self.model.name)}{stated}. Its oldest"
            " exchanges are left out."
        )
        return True

    def _give_up_native(self) -> None:
        self.model.remember_native(False)
        self.offered.refuse_native()
        self._notify_once(
            f"Model {shown(self.model.name)} cannot load deferred tools by itself, so their"
            " definitions are sent."
        )

    def _report_delay(
        self, step: int, event: RetryScheduled | RateLimitWait | RequestAdapted
    ) -> None:
        if isinstance(event, RequestAdapted):
            self._notify_once(event.notice)
        elif isinstance(event, RateLimitWait):
            self.emit(ModelWait(step, event.seconds, reason=event.reason, at=self.now()))
        else:
            self.emit(
                ModelRetry(
                    step, event.attempt, seconds=event.seconds, reason=event.reason, at=self.now()
                )
            )

    async def _paused(
        self, gate: BeforeModelCall, step: int, request: Request
    ) -> Sequence[RequestEdit] | None:
        answered: list[Callable[[], None]] = []

        def ask() -> None:
            answered.append(self.waiting_for_person("step"))

        # A gate that returns without waiting asks nobody.
        asking = asyncio.get_running_loop().call_soon(ask)
        try:
            return await gate(step, request)
        finally:
            asking.cancel()
            for answer in answered:
                answer()

    async def _edit(self, step: int, edit: RequestEdit) -> None:
        match edit:
            case MessageEdit():
                self._edit_text(step, edit)
            case SystemEdit() if edit.text != self.system:
                self.system, self._system_tokens = edit.text, _prompt_tokens(edit.text)
                self.emit(RequestEdited(step, system=edit.text, at=self.now()))
            case ToolsEdit() if edit.off or edit.loaded:
                await self.offered.edit(edit)
                self.emit(RequestEdited(step, off=edit.off, loaded=edit.loaded, at=self.now()))

    def _edit_text(self, step: int, edit: MessageEdit) -> None:
        index = index_of(edit, self.messages)
        before = text_of(self.messages[index].content)
        text = edit.text if edit.text or edit.call_id is None else EMPTY_RESULT
        if text == before:
            return
        self.messages[index] = self.messages[index].model_copy(update={"content": text})
        self.window.forget(index)
        self.emit(TextEdited(step, edit.call_id, text=text, before=before, at=self.now()))

    def _notify(self, text: str) -> None:
        self.emit(Notice(text, at=self.now()))

    def _notify_once(self, text: str) -> None:
        for new in self.seen_notices.new([text]):
            self._notify(new)

    async def _notify_of_missed_search(self) -> None:
        if tool := await missed_tool(self.offered.view, self.messages, self.offered.discovered):
            self._notify(
                f"The model did not search for tools, although {shown(str(tool.tool_name))} would"
                " have fit the message."
            )

    def _read_usage(self, estimated: int, usage: TokenUsage) -> None:
        self.window.calibration.learn(estimated, usage)
        if notice := self.window.cut_by_server(estimated, usage.prompt_tokens):
            self._notify_once(notice)

    def _first_message_tokens(self, messages: int) -> int:
        """Estimate the tokens in a request's first messages."""
        system = 1 if self.system and messages else 0
        return self._system_tokens * system + self.window.tokens_of(messages - system)


def _are_harmless(calls: Sequence[AssistantToolCall]) -> bool:
    """Check whether calls only search for tools, so that a plan runs them."""
    return all(call.function.name in HARMLESS_TOOLS for call in calls)


# A conversation sends the same system prompt in each turn.
_prompt_tokens = lru_cache(maxsize=8)(estimate_tokens)


@lru_cache(maxsize=8)
def _system_messages(system: str) -> tuple[ChatMessage, ...]:
    from casual_llm.messages import SystemMessage

    return (SystemMessage(content=system),) if system else ()
