"""Prepare a turn in three steps, each of which needs the one before: its conversation, what is
offered to which model, and the prompt.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.config_base import NO_OPTIONS, TOOL_CHOICES, RequestOptions
from casual_mcp_nb.base.limits import check_parts
from casual_mcp_nb.base.mcp import TaskReport
from casual_mcp_nb.cassettes.tape import Tape, TurnSettings
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    RUN_CODE,
    Event,
    Notice,
    StepStarted,
    TaskReported,
    TurnStarted,
)
from casual_mcp_nb.conversation.repair import repaired
from casual_mcp_nb.engine.conversation_state import ConversationState
from casual_mcp_nb.engine.deliveries import Deliveries
from casual_mcp_nb.engine.dispatch import Dispatcher
from casual_mcp_nb.engine.instructions import Instructions
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.options import TurnLimits, TurnOptions
from casual_mcp_nb.engine.passed_results import ResultPasser
from casual_mcp_nb.engine.prefix import PromptPrefix
from casual_mcp_nb.engine.preflight import PreflightChecks
from casual_mcp_nb.engine.run import Run
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.engine.system_prompt import system_prompt, unused_system_notices
from casual_mcp_nb.engine.task_reports import due_reports, handles_of
from casual_mcp_nb.engine.tool_view import ToolView, cut_notices
from casual_mcp_nb.engine.tools import ChatNames, ChatTools
from casual_mcp_nb.engine.turn_fields import IN_CASSETTES
from casual_mcp_nb.engine.turn_tools import TurnTools
from casual_mcp_nb.engine.window import ContextWindow
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.own_tools.toolbox import Mocks
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.providers.spending import Account


class Chat(Protocol):
    """What preparing a turn needs of a chat. See `McpToolChat`."""

    server_manager: ServerManager
    state: ConversationState
    tool_sets: dict[str, ToolSetConfig]
    templates: TemplateLibrary
    limits: TurnLimits
    system: str | None
    context: Mapping[str, Any]
    tools: ChatTools
    checks: PreflightChecks
    mocks: Mocks
    names: ChatNames
    deliveries: Deliveries
    instructions: Instructions
    tape: Tape

    def account(self, turn: str = "", tell: Callable[[str], object] | None = None) -> Account:
        """Count what a turn's requests take."""

    async def ready_model(self, name: str | Model | ChatModel | None) -> ChatModel:
        """Get a model that is ready for calls."""


async def build_run(chat: Chat, setup: TurnSetup, emit: Callable[[Event], None]) -> Run:
    """Prepare a turn's run, and begin the turn, see `McpToolChat.run`.

    Everything that can fail comes before the turn begins, and changes nothing.
    """
    now = setup.clock()

    def on_notice(notice: Notice) -> None:
        emit(replace(notice, at=now()))

    conversation = _conversation(chat, setup)
    ready = await _ready(chat, setup, conversation, on_notice)
    prompt = await _prompt(chat, setup, conversation, ready)
    run = Run(
        setup=setup,
        emit=emit,
        now=now,
        # Where calls are only planned, the provider must not run its own tools.
        model=ready.model.without_hosted_tools() if setup.plan_only else ready.model,
        offered=ready.offered,
        dispatcher=ready.dispatcher,
        messages=conversation.so_far,
        system=prompt.system,
        window=prompt.window,
        prefix=prompt.prefix,
        limits=chat.limits,
        large_results=chat.state.large_results,
        seen_notices=chat.state.seen_notices,
        account=chat.account(uuid.uuid4().hex, lambda text: on_notice(Notice(text))),
    )
    _begin(chat, conversation, ready, prompt, run)
    return run


def _begin(
    chat: Chat, conversation: _Conversation, ready: _Ready, prompt: _Prompt, run: Run
) -> None:
    """Begin the turn: have a cassette record that, and emit its start, the notices for the person,
    and the recorded steps.
    """
    setup, emit = run.setup, run.emit
    started = _turn_started(conversation.messages, run)
    chat.state.last_selection = ready.offered.view.selection_key
    if setup.in_history:
        servers = chat.server_manager.names
        settings = partial(_settings, run, prompt.own_system, conversation.earlier, servers)
        chat.tape.begin_turn(started, settings)
    chat.tape.record_task_reports(len(setup.history), conversation.reports)
    emit(started)
    for report in conversation.reports:
        emit(TaskReported(step=0, number=report.number, text=report.text, at=run.now()))
    notices = _new_notices(chat, conversation, ready, prompt)
    for notice in notices:
        emit(notice)
    if notices:
        ready.offered.remember(notices)
    if setup.recorded is not None:
        for event in setup.recorded.trace.since(1):
            emit(event)


class _Conversation(NamedTuple):
    """A conversation as a turn continues it.

    Args:
        earlier: How many of its messages are from earlier turns.
        messages: Those with which this turn begins.
        so_far: All of them, with those of recorded steps.
        has_steps: Whether there are recorded steps.
        repairs: What was repaired, for the person.
        reports: Reports on tasks that have ended, for the first request.
    """

    earlier: int
    messages: Sequence[ChatMessage]
    so_far: list[ChatMessage]
    has_steps: bool
    repairs: tuple[str, ...]
    reports: Sequence[TaskReport]


def _conversation(chat: Chat, setup: TurnSetup) -> _Conversation:
    """Repair a conversation, and put reports on tasks before the person's messages."""
    messages, recorded = setup.messages, setup.recorded
    check_parts(messages)
    reports: Sequence[TaskReport] = ()
    if setup.tasks is not None and recorded is None:
        # Recorded steps have their reports. Later ones follow the next result.
        reports = due_reports(setup.tasks, chat.tape, len(setup.history))
    if reports:
        from casual_mcp_nb.conversation.messages import TaskReportMessage

        text = "\n\n".join(report.text for report in reports)
        handles = handles_of(reports)
        told = TaskReportMessage(content=text, handles=tuple(handles), origins=handles)
        messages = [told, *messages]
    ids: set[str] = set()
    history, history_repairs = repaired(setup.history, ids)
    messages, repairs = repaired(messages, ids)
    steps: Sequence[ChatMessage] = ()
    if recorded is not None:
        steps = recorded.messages[len(recorded.prompt_messages) :]
    return _Conversation(
        earlier=len(history),
        messages=messages,
        so_far=[*history, *messages, *steps],
        has_steps=bool(steps),
        repairs=(*history_repairs, *repairs),
        reports=reports,
    )


class _Ready(NamedTuple):
    """A model that is ready, and the tools that it is offered.

    Args:
        notices: Those on servers and tools.
    """

    model: ChatModel
    offered: TurnTools
    dispatcher: Dispatcher
    notices: tuple[Notice, ...]


async def _ready(
    chat: Chat,
    setup: TurnSetup,
    conversation: _Conversation,
    on_notice: Callable[[Notice], None],
) -> _Ready:
    """Get the model ready and connect the servers.

    Raises:
        UsageError: A name in the options or in the selection does not exist.
        ConnectError: No server could connect.
    """
    options = setup.options
    model = await chat.ready_model(options.given.get("model"))
    view = await chat.tools.connected_view(options.applied_to(chat.state.selection), model)
    for custom_tool in chat.tools.custom:
        custom_tool.check(view.catalog)
    notices = _notices_on_servers(chat, view)
    offered = TurnTools(
        view,
        model,
        conversation.so_far,
        source=chat.tools,
        deliveries=chat.deliveries,
        large_results=chat.state.large_results,
        result_tokens=chat.limits.result_tokens,
        on_notice=on_notice,
    )
    dispatcher = build_dispatcher(
        chat,
        offered,
        options,
        on_notice=on_notice,
        aid=SmallModelAid(model.small),
        messages=conversation.so_far,
    )
    if options.request is not NO_OPTIONS or model.wanted.tool_choice is not None:
        model = with_turn_options(model, options.request, offered)
    return _Ready(model, offered, dispatcher, notices)


class _Prompt(NamedTuple):
    """The system prompt of the first request, and what the request is compared with.

    Args:
        own_system: The system prompt without the servers' instructions.
        system: The whole system prompt.
        window: The context window.
        prefix: The request before, if the conversation goes on after one.
        notices: The texts of those on the prompt and the model's options.
    """

    own_system: str
    system: str
    window: ContextWindow
    prefix: PromptPrefix
    notices: tuple[str, ...]


async def _prompt(
    chat: Chat, setup: TurnSetup, conversation: _Conversation, ready: _Ready
) -> _Prompt:
    """Render the system prompt, and compare with the request before."""
    model, view, state = ready.model, ready.offered.view, chat.state
    own_system = await system_prompt(setup.options, model, view, chat.templates, chat.system)
    has_tools = bool(view.definitions or ready.offered.discovered)
    new_selection = state.last_selection not in ("", view.selection_key)
    before = setup.recorded if conversation.has_steps else setup.before
    return _Prompt(
        own_system=own_system,
        system=chat.instructions.added(own_system, view, chat.server_manager),
        window=await state.windows.of(model, conversation.earlier),
        prefix=PromptPrefix.after(before, model, conversation.so_far, new_selection),
        notices=(
            *unused_system_notices(setup.options, model, chat.system),
            *model.sendable(tools=has_tools).notices,
        ),
    )


def _new_notices(
    chat: Chat, conversation: _Conversation, ready: _Ready, prompt: _Prompt
) -> list[Notice]:
    """Collect what the person was not told in an earlier turn of the conversation."""
    first, told = not conversation.earlier, chat.state.seen_notices
    notices = list(map(Notice, conversation.repairs))
    notices += [Notice(text) for text in told.new(prompt.notices, first=first)]
    notices += told.changed(ready.notices, first=first)
    notices += chat.tools.changes.notices()
    notices += ready.offered.view.notices
    if ready.offered.discovered:
        notices += cut_notices(ready.offered.discovered.values())
    return notices


def _notices_on_servers(chat: Chat, view: ToolView) -> tuple[Notice, ...]:
    """Collect the notices on servers without tools, and on names in the config that match no
    tool.
    """
    return (
        *chat.checks.missing(view, chat.server_manager, chat.tool_sets),
        *chat.state.consent.unknown_tools(),
        *chat.tools.exclusions.notices(view.catalog),
        *chat.tools.written_texts.notices(),
        *chat.tools.skill_notices(),
    )


def build_dispatcher(
    chat: Chat,
    offered: OfferedTools,
    options: TurnOptions,
    *,
    on_notice: Callable[[Notice], None],
    aid: SmallModelAid | None = None,
    messages: Sequence[ChatMessage] | None = None,
) -> Dispatcher:
    """Build the dispatcher that runs calls of these tools.

    Calls can pass the large results in `messages`, the conversation, if it is given.
    """
    passer = None
    if messages is not None:
        passer = ResultPasser(messages, chat.state.large_results)
    stubs = options.given.get("mock")
    if stubs:
        chat.names.check_stubs(stubs)
    return Dispatcher(
        offered,
        caller=chat.server_manager,
        consent=chat.state.consent,
        meta=options.given.get("meta"),
        mocks=chat.mocks.with_stubs(stubs) if stubs else chat.mocks,
        context={**chat.context, **(options.given.get("context") or {})},
        on_notice=on_notice,
        worker=chat.server_manager.worker,
        tape=chat.tape,
        aid=aid or SmallModelAid(),
        passer=passer,
        past_questions=chat.state.past_questions,
    )


def with_turn_options(
    model: ChatModel, options: RequestOptions, offered: OfferedTools
) -> ChatModel:
    """Apply a turn's options to a model, with the tool in `tool_choice` by its wire name."""
    model = model.with_options(options)
    choice = model.wanted.tool_choice
    if choice in (None, *TOOL_CHOICES) or choice in offered.synthetic:
        return model
    tool = offered.find(choice)
    if tool is None:
        raise UnknownNameError("tool_choice", choice, [*TOOL_CHOICES, *offered.names()])
    name = tool.wire_name
    if RUN_CODE in offered.synthetic:
        name = RUN_CODE
    elif offered.is_bridged(tool):
        name = CALL_TOOL
    return model.with_options(RequestOptions(tool_choice=name))


def _turn_started(messages: Sequence[ChatMessage], run: Run) -> TurnStarted:
    model, view, recorded = run.model, run.offered.view, run.setup.recorded
    tool_set = view.selection.tool_set
    return TurnStarted(
        messages=tuple(messages),
        model=model.name,
        provider=model.provider,
        tool_set="custom" if isinstance(tool_set, ToolSetConfig) else tool_set,
        discovery=view.selection.discovery is True,
        loaded=run.offered.count,
        deferred=len(view.deferred) - len(run.offered.discovered),
        undeferred_tokens=view.undeferred_tokens,
        price=model.price,
        began=time.time() - run.now(),
        recorded=len(recorded.trace.of(StepStarted)) if recorded is not None else 0,
    )


def _settings(run: Run, system: str, earlier: int, servers: Iterable[str]) -> TurnSettings:
    """Collect how a turn is set up, for a cassette."""
    options = run.setup.options
    sent = options.request.without(["extra_body"]).shown()
    for name in IN_CASSETTES:
        if (value := options.given.get(name)) is not None:
            sent[name] = value
    if run.repair_calls:
        sent["repair_calls"] = True
    selection = run.offered.view.selection.model_dump(mode="json")
    return TurnSettings(
        system=system, after=earlier, selection=selection, options=sent, servers=servers
    )
