"""Prepare a turn: check it, then build its model, its tools, its conversation and the system
prompt.

`build_run` goes through these in the order in which one needs the other, and its helpers follow in
the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.config_base import NO_OPTIONS, TOOL_CHOICES, RequestOptions
from casual_mcp_nb.base.limits import check_parts
from casual_mcp_nb.cassettes.replayer import Recorder
from casual_mcp_nb.conversation.conversation import repaired
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    RUN_CODE,
    Event,
    Notice,
    StepStarted,
    TaskReported,
    TurnStarted,
)
from casual_mcp_nb.engine.conversation_state import Chat
from casual_mcp_nb.engine.dispatch import Dispatcher, TaskReport, due_reports
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.prefix import PromptPrefix
from casual_mcp_nb.engine.run import Run
from casual_mcp_nb.engine.setup import TurnSetup
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.engine.system_prompt import system_prompt, unused_system_notices
from casual_mcp_nb.engine.tool_view import ToolView, cut_notices
from casual_mcp_nb.engine.turn_tools import TurnTools
from casual_mcp_nb.errors import UnknownNameError

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel


async def build_run(chat: Chat, setup: TurnSetup, emit: Callable[[Event], None]) -> Run:
    """Prepare a turn's run, see `McpToolChat.run`.

    Emit its start and the notices for the person.
    """
    options, state, before = setup.options, chat.state, setup.before
    check_parts(setup.messages)
    reports = _reports(chat, setup)
    conversation = _conversation(setup, reports)
    model = await chat.ready_model(options.given.get("model"))
    view = await chat.tools.connected_view(options.applied_to(state.selection), model)
    for own_tool in chat.tools.own:
        own_tool.check(view.catalog)
    on_servers = _notices_on_servers(chat, view)

    now = setup.clock()

    def on_notice(notice: Notice) -> None:
        emit(replace(notice, at=now()))

    tools = TurnTools(chat, view, model, conversation.so_far, on_notice)
    dispatcher = build_dispatcher(
        chat, tools, options, on_notice=on_notice, aid=SmallModelAid(model.small)
    )
    if options.request is not NO_OPTIONS or model.wanted.tool_choice is not None:
        model = with_turn_options(model, options.request, tools)
    system = await system_prompt(chat, options, model, view)
    own_notices = (
        *unused_system_notices(chat, options, model),
        *model.sendable(tools=bool(view.definitions or tools.discovered)).notices,
    )
    new_selection = state.last_selection not in ("", view.selection_key)
    state.last_selection = view.selection_key
    if conversation.has_steps:
        before = setup.recorded
    run = Run(
        chat=chat,
        setup=setup,
        emit=emit,
        now=now,
        # Where the calls are only planned, the provider does not run anything either.
        model=model.without_hosted_tools() if setup.plan_only else model,
        tools=tools,
        dispatcher=dispatcher,
        messages=conversation.so_far,
        system=chat.instructions.added(system, view, chat.server_manager),
        context=await state.contexts.of(model, conversation.earlier),
        prefix=PromptPrefix.after(before, model, conversation.so_far, new_selection),
    )
    started = _turn_started(conversation.messages, model, view, run)
    if setup.in_history and isinstance(chat.tape, Recorder):
        _record_start(chat.tape, started, system, run, conversation.earlier)

    emit(started)
    for report in reports:
        emit(TaskReported(0, report.number, report.text, at=now()))
    first, history = not conversation.earlier, state.notice_history
    notices = list(map(Notice, conversation.repairs))
    notices += map(Notice, history.new(own_notices, first=first))
    notices += history.changed(on_servers, first=first)
    notices += chat.tools.changes.notices()
    notices += view.notices
    if tools.discovered:
        notices += cut_notices(tools.discovered.values())
    for notice in notices:
        emit(notice)
    tools.remember(notices)
    if setup.recorded is not None:
        for event in setup.recorded.trace.since(1):
            emit(event)
    return run


def _reports(chat: Chat, setup: TurnSetup) -> Sequence[TaskReport]:
    """List the tasks of which the turn's first request tells."""
    if setup.tasks is None or setup.recorded is not None:
        # Recorded steps have theirs, and those that came later are told with the next result.
        return ()
    return due_reports(setup.tasks, chat.tape, len(setup.history))


class _Conversation(NamedTuple):
    """A conversation as a turn continues it.

    Args:
        earlier: How many of its messages are from earlier turns.
        messages: Those with which this turn begins.
        so_far: All of them, with those of recorded steps.
        has_steps: Whether there are recorded steps.
        repairs: What was repaired, for the person.
    """

    earlier: int
    messages: Sequence[ChatMessage]
    so_far: list[ChatMessage]
    has_steps: bool
    repairs: tuple[str, ...]


def _conversation(setup: TurnSetup, reports: Sequence[TaskReport]) -> _Conversation:
    """Repair a conversation, and put reports on tasks before the person's messages."""
    messages, recorded = setup.messages, setup.recorded
    if reports:
        from casual_llm.messages import UserMessage

        text = "\n\n".join(report.text for report in reports)
        messages = [UserMessage(content=text), *messages]
    ids: set[str] = set()
    history, history_repairs = repaired(setup.history, ids)
    messages, repairs = repaired(messages, ids)
    steps: Sequence[ChatMessage] = ()
    if recorded is not None:
        steps = recorded.messages[len(recorded.prompt_messages) :]
    so_far = [*history, *messages, *steps]
    return _Conversation(len(history), messages, so_far, bool(steps), (*history_repairs, *repairs))


def _notices_on_servers(chat: Chat, view: ToolView) -> tuple[Notice, ...]:
    """Collect the notices on servers without tools, and on names in the config that match no
    tool.
    """
    return (
        *chat.checks.missing(view, chat.server_manager, chat.tool_sets),
        *chat.state.consent.unknown_tools(),
        *chat.tools.exclusions.notices(view.catalog),
        *chat.tools.meanings.notices(),
        *chat.tools.skill_notices(),
    )


def build_dispatcher(
    chat: Chat,
    tools: OfferedTools,
    options: TurnOptions,
    *,
    on_notice: Callable[[Notice], None],
    aid: SmallModelAid | None = None,
) -> Dispatcher:
    """Build the dispatcher that runs calls of these tools."""
    stubs = options.given.get("mock")
    if stubs:
        chat.names.check_stubs(stubs)
    return Dispatcher(
        tools,
        chat.server_manager,
        chat.state.consent,
        options.given.get("meta"),
        chat.mocks.with_stubs(stubs) if stubs else chat.mocks,
        {**chat.context, **(options.given.get("context") or {})},
        on_notice=on_notice,
        worker=chat.server_manager.worker,
        tape=chat.tape,
        aid=aid or SmallModelAid(),
    )


def with_turn_options(model: ChatModel, options: RequestOptions, tools: OfferedTools) -> ChatModel:
    """Apply a turn's options to a model, with the tool in `tool_choice` by its wire name."""
    model = model.with_options(options)
    choice = model.wanted.tool_choice
    if choice in (None, *TOOL_CHOICES) or choice in tools.synthetic:
        return model
    tool = tools.offered(choice)
    if tool is None:
        raise UnknownNameError("tool_choice", choice, [*TOOL_CHOICES, *tools.names()])
    name = tool.wire_name
    if RUN_CODE in tools.synthetic:
        name = RUN_CODE
    elif tools.is_bridged(tool):
        name = CALL_TOOL
    return model.with_options(RequestOptions(tool_choice=name))


def _turn_started(
    messages: Sequence[ChatMessage], model: ChatModel, view: ToolView, run: Run
) -> TurnStarted:
    tool_set, recorded = view.selection.tool_set, run.setup.recorded
    return TurnStarted(
        messages=tuple(messages),
        model=model.name,
        provider=model.provider,
        tool_set="custom" if isinstance(tool_set, ToolSetConfig) else tool_set,
        discovery=view.selection.discovery is True,
        loaded=run.tools.count,
        deferred=len(view.deferred) - len(run.tools.discovered),
        undeferred_tokens=view.undeferred_tokens,
        price=model.price,
        began=time.time() - run.now(),
        recorded=len(recorded.trace.of(StepStarted)) if recorded is not None else 0,
    )


def _record_start(
    recorder: Recorder, started: TurnStarted, system: str, run: Run, earlier: int
) -> None:
    """Have a cassette record how a turn of the conversation begins."""
    options = run.setup.options
    sent = options.request.without(["extra_body"]).shown()
    for name in ("max_steps", "stream"):
        if (value := options.given.get(name)) is not None:
            sent[name] = value
    if run.repair_calls:
        sent["repair_calls"] = True
    recorder.turn(
        started,
        system,
        earlier,
        run.tools.view.selection.model_dump(mode="json"),
        sent,
        run.chat.server_manager.names,
    )
