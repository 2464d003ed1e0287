"""Prepare a turn: check it, then build its model, its tools, its conversation and the system
prompt.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from casual_mcp_nb.base.config import ServerConfig, ToolSetConfig
from casual_mcp_nb.base.config_base import NO_OPTIONS, TOOL_CHOICES, RequestOptions
from casual_mcp_nb.base.limits import check_parts
from casual_mcp_nb.base.model_options import Delivery
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.cassettes.replayer import Recorder, Replayer
from casual_mcp_nb.cassettes.servers import RecordedServer, ReplayedServer
from casual_mcp_nb.config.templates import TemplateLibrary
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
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.synthetic import IN_CARDS, discovered_in, schemas_presented, used_in
from casual_mcp_nb.discovery.toolsets import check_tool_set, missing_servers, resolve_tool_set
from casual_mcp_nb.engine.consent import ApprovalRequest, Approver, Consent, Decision, NoOneToAsk
from casual_mcp_nb.engine.deliveries import Deliveries
from casual_mcp_nb.engine.dispatch import Dispatcher, TaskDesk, due_reports
from casual_mcp_nb.engine.instructions import Instructions
from casual_mcp_nb.engine.large_results import LargeResults
from casual_mcp_nb.engine.notices import NoticeHistory
from casual_mcp_nb.engine.options import TurnLimits, TurnOptions
from casual_mcp_nb.engine.prefix import PromptPrefix
from casual_mcp_nb.engine.run import Run
from casual_mcp_nb.engine.tool_view import ToolView, cut_notices
from casual_mcp_nb.engine.tools import ChatNames, ChatTools
from casual_mcp_nb.engine.window import ContextWindows
from casual_mcp_nb.errors import ConnectError, UnknownNameError, shown
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK, Mocks, Toolbox
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager
from casual_mcp_nb.servers.tasks import FollowedTask

if TYPE_CHECKING:
    from casual_llm import Model
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel


def put_in_place(
    tape: Recorder | Replayer,
    server_manager: ServerManager,
    consent: Consent,
    toolbox: Toolbox,
    log: Callable[[str, str, str], None],
    notify: Callable[[str, str], None],
) -> Callable[[str], None]:
    """Have a cassette record a chat's servers and approvals, or answer in their place.

    Returns:
        A function that adds a server from the cassette by its name. While a cassette records, it
        does nothing.
    """
    if isinstance(tape, Recorder):
        server_manager.substitute(lambda server: cast("Any", _recording(server, tape)))
        if consent.approver is not None:
            consent.approver = _recorded(consent.approver, tape)
        return lambda name: None
    replayer = tape

    entries = replayer.cassette.servers

    def replaying(name: str, config: ServerConfig | None = None) -> ReplayedServer:
        server = ReplayedServer(name, entries.get(name), replayer, config)
        server.on_log, server.on_notice, server.on_change = log, notify, server_manager.changed
        server.task = lambda tool, number: FollowedTask(tool, "", time.time(), number)
        return server

    others = [
        replaying(name)
        for name, entry in entries.items()
        if name not in server_manager.names and not entry.added
    ]
    server_manager.substitute(
        lambda server: server if server is toolbox else replaying(server.name, server.config),
        others,
    )
    consent.runs_nothing = lambda tool: (
        tool.server != toolbox.name and replayer.has("call", server=tool.server, tool=tool.name)
    )
    approver, can_ask = consent.approver, consent.can_ask
    consent.approver = _replayed(approver, can_ask, replayer, toolbox)
    if replayer.has("approval"):
        consent.can_ask = lambda: True
    else:
        # Nobody was asked then. A function of the notebook is really run, and needs an answer where
        # one can be given.
        consent.can_ask = lambda: bool(toolbox.tools) and can_ask()
    return lambda name: server_manager.add_substitute(cast("Any", replaying(name)))


def _recording(server: Any, recorder: Recorder) -> RecordedServer:
    recorder.add(server)
    return RecordedServer(server, recorder)


def _request(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "server": request.tool.server,
        "tool": request.tool.name,
        "arguments": request.arguments,
    }


def _recorded(approver: Approver, recorder: Recorder) -> Approver:
    async def ask(request: ApprovalRequest) -> Any:
        recording = recorder.start("approval", _request(request))
        try:
            answer = await approver(request)
        except BaseException as error:
            recording.failed(error)
            raise
        decision = answer if isinstance(answer, Decision) else Decision(answer)
        recording.done(
            {"verdict": decision.verdict, "scope": decision.scope, "answered": decision.answered}
        )
        return answer

    return ask


def _replayed(
    approver: Approver | None, can_ask: Callable[[], bool], replayer: Replayer, toolbox: Toolbox
) -> Approver:
    async def ask(request: ApprovalRequest) -> Any:
        if request.tool.server == toolbox.name and toolbox.tools:
            if approver is None or not can_ask():
                raise NoOneToAsk
            return await approver(request)
        interaction = replayer.find("approval", _request(request))
        if interaction is None:
            # Nothing is run.
            raise NoOneToAsk
        return Decision(*interaction.answer())

    return ask


class PreflightChecks:
    """The checks before a turn, which hold for every conversation.

    Cached until a server or the view changes.
    """

    def __init__(self) -> None:
        self._view: ToolView | None = None
        self._version = 0
        self._missing: tuple[Notice, ...] = ()

    def missing(
        self, view: ToolView, server_manager: ServerManager, tool_sets: Mapping[str, ToolSetConfig]
    ) -> tuple[Notice, ...]:
        """Build a notice for each server in use whose tools are missing."""
        if view is not self._view or server_manager.version != self._version:
            version, statuses = server_manager.version, server_manager.statuses
            _check_selection(view.selection, statuses, view.catalog, tool_sets)
            tool_set = resolve_tool_set(view.selection.tool_set, tool_sets)
            self._missing = missing_servers(tool_set, _in_use(view.selection, statuses))
            self._view, self._version = view, version
        return self._missing


def _check_selection(
    selection: Selection,
    statuses: Mapping[str, ServerStatus],
    catalog: Catalog,
    tool_sets: Mapping[str, ToolSetConfig],
) -> None:
    for name in selection.servers:
        if name not in statuses:
            raise UnknownNameError("server", name, statuses)
    in_use = _in_use(selection, statuses).values()
    if in_use and all(status.state == "failed" for status in in_use):
        reasons = "\n".join(map(_reason, in_use))
        raise ConnectError(
            f"No server could be connected:\n{reasons}\n",
            hint="Fix one and reconnect it, or turn them off to chat without tools.",
        )
    tool_set = resolve_tool_set(selection.tool_set, tool_sets)
    if tool_set is not None:
        tool_set_name = selection.tool_set if isinstance(selection.tool_set, str) else None
        check_tool_set(
            tool_set,
            {NOTEBOOK: ServerStatus(NOTEBOOK, "ready"), **statuses},
            catalog,
            name=tool_set_name,
        )


def _in_use(selection: Selection, statuses: Mapping[str, ServerStatus]) -> dict[str, ServerStatus]:
    return {
        name: status for name, status in statuses.items() if selection.servers.get(name) != "off"
    }


def _reason(status: ServerStatus) -> str:
    tail = status.stderr_tail.splitlines()[-3:]
    return "\n".join([f"- {status.name}: {status.error}", *(f"    {line}" for line in tail)])


DEFAULT_TEMPLATE = "default"


@dataclass(eq=False)
class ConversationState:
    """One conversation's state. The conversations with its servers share everything else.

    Args:
        last_selection: The key of the last turn's selection, or empty before it.
    """

    selection: Selection
    consent: Consent
    large_results: LargeResults
    contexts: ContextWindows = field(default_factory=ContextWindows)
    notice_history: NoticeHistory = field(default_factory=NoticeHistory)
    last_selection: str = ""
    last_turn: Turn | None = None
    running: set[Run] = field(default_factory=set)
    _shared: tuple[str, Selection] | None = None

    def apart(self, consent: Consent | None = None, *, private: bool = False) -> ConversationState:
        """Create another conversation's, see `McpToolChat.apart`."""
        selection = self._shared_snapshot() if private else self.selection.snapshot()
        other = ConversationState(selection, consent or self.consent.apart(), self.large_results)
        if private:
            other.large_results = self.large_results.apart()
        else:
            other.running = self.running
        return other

    def _shared_snapshot(self) -> Selection:
        """Copy the selection once for all clients of a service: each turn has its own where its
        options differ.
        """
        key = self.selection.key()
        if self._shared is None or self._shared[0] is not key:
            self._shared = key, self.selection.snapshot()
        return self._shared[1]


class Chat(Protocol):
    """The parts of a chat that a turn needs. See `McpToolChat`."""

    server_manager: ServerManager
    models: ModelFactory
    state: ConversationState
    tool_sets: dict[str, ToolSetConfig]
    templates: TemplateLibrary
    limits: TurnLimits
    system: str | None
    context: Mapping[str, Any]
    tools: ChatTools
    checks: PreflightChecks
    mocks: Mocks
    toolbox: Toolbox
    names: ChatNames
    deliveries: Deliveries
    instructions: Instructions
    tape: Recorder | Replayer | None

    async def ready_model(self, name: str | Model | ChatModel | None) -> ChatModel:
        """Get a model that is ready for calls."""


async def build_run(
    chat: Chat,
    messages: Sequence[ChatMessage],
    options: TurnOptions,
    history: Sequence[ChatMessage],
    emit: Callable[[Event], None],
    before: Turn | None = None,
    recorded: Turn | None = None,
    asked_at: float | None = None,
    *,
    in_history: bool = False,
    plan_only: bool = False,
    ahead: Callable[[], Awaitable[None]] | None = None,
    results: dict[str, ChatMessage] | None = None,
    tasks: TaskDesk | None = None,
) -> Run:
    """Prepare a turn's run, see `McpToolChat.run`.

    Emit its start and the notices for the person.
    """
    check_parts(messages)
    # Recorded steps have theirs, and those that came later are told with the next result.
    reports = (
        due_reports(tasks, chat.tape, len(history))
        if tasks is not None and recorded is None
        else []
    )
    if reports:
        from casual_llm.messages import UserMessage

        messages = [UserMessage(content="\n\n".join(report.text for report in reports)), *messages]
    ids: set[str] = set()
    (history, history_repairs), (messages, repairs) = (
        repaired(history, ids),
        repaired(messages, ids),
    )
    steps = recorded.messages[len(recorded.prompt_messages) :] if recorded else []
    so_far = [*history, *messages, *steps]
    model = await chat.ready_model(options.given.get("model"))
    view = await chat.tools.connected_view(options.applied_to(chat.state.selection), model)
    for each in chat.tools.own:
        each.check(view.catalog)
    # The notices on servers without tools, and on names in the config that match no tool.
    missing = (
        *chat.checks.missing(view, chat.server_manager, chat.tool_sets),
        *chat.state.consent.unknown_tools(),
        *chat.tools.exclusions.notices(view.catalog),
        *chat.tools.meanings.notices(),
        *chat.tools.skill_notices(),
    )
    own = {spec.name for spec in view.own_specs} if view.own else frozenset[str]()
    # Also what was found in a conversation that is given as a whole.
    loaded_tools = discovered_in(so_far, view.catalog, own)
    discovered = {
        tool.wire_name: tool for tool in loaded_tools if tool.wire_name in view.deferred_by_name
    }
    delivery = chat.deliveries.of(view, model)
    used = used_in(so_far, view.catalog)

    def on_notice(notice: Notice) -> None:
        # A call is made when the run has begun. It is not named here: it would wait for the garbage
        # collector.
        emit(replace(notice, at=now()))

    presented = (
        schemas_presented(so_far, loaded_tools, own, delivery) if delivery in IN_CARDS else ()
    )
    dispatcher = build_dispatcher(
        chat, view, discovered, options, used, delivery, presented, on_notice=on_notice
    )
    if options.request is not NO_OPTIONS or model.wanted.tool_choice is not None:
        model = with_turn_options(model, options.request, dispatcher)
    system = await _system(chat, options, model, view)
    unsent_options = model.sendable(tools=bool(view.definitions or discovered)).notices
    own_notices = (*_unused_system(chat, options, model), *unsent_options)
    max_steps = options.given.get("max_steps")
    new_selection = chat.state.last_selection not in ("", view.selection_key)
    chat.state.last_selection = view.selection_key
    run = Run(
        # Where the calls are only planned, the provider does not run anything either.
        model=model.without_hosted_tools() if plan_only else model,
        view=view,
        dispatcher=dispatcher,
        messages=so_far,
        recorded=recorded,
        started=asked_at,
        discovered=discovered,
        system=chat.instructions.added(system, view, chat.server_manager),
        limits=replace(chat.limits, max_steps=max_steps) if max_steps else chat.limits,
        emit=emit,
        stream=options.given.get("stream") is not False,
        repair_calls=(
            model.repair_calls
            if options.given.get("repair_calls") is None
            else bool(options.given["repair_calls"])
        ),
        gate=options.gate,
        context=await chat.state.contexts.of(model, len(history)),
        select=chat.tools.view,
        refresh_view=chat.tools.refreshed_view,
        change_notices=chat.tools.change_notices,
        large_results=chat.state.large_results,
        history=chat.state.notice_history,
        deliveries=chat.deliveries,
        delivery=delivery,
        plan_only=plan_only,
        ahead=ahead,
        results=results if results is not None else {},
        tasks=tasks,
        prefix=PromptPrefix.after(recorded if steps else before, model, so_far, new_selection),
    )
    now = run.now
    started = _turn_started(messages, model, view, discovered, time.time() - now(), recorded)
    if in_history and isinstance(chat.tape, Recorder):
        selection = view.selection.model_dump(mode="json")
        limits = {
            name: value
            for name in ("max_steps", "stream")
            if (value := options.given.get(name)) is not None
        }
        limits |= {"repair_calls": True} if run.repair_calls else {}
        sent = options.request.without(["extra_body"]).shown() | limits
        chat.tape.turn(started, system, len(history), selection, sent, chat.server_manager.names)
    emit(started)
    for report in reports:
        emit(TaskReported(0, report.number, report.text, at=now()))
    given = chat.state.notice_history
    texts = (*history_repairs, *repairs, *given.new(own_notices, first=not history))
    on_servers = (*given.changed(missing, first=not history), *chat.tools.changes.notices())
    on_definitions = (
        (*view.notices, *cut_notices(discovered.values())) if discovered else view.notices
    )
    for notice in (*map(Notice, texts), *on_servers, *on_definitions):
        emit(notice)
        run.notices.append(notice)
    if recorded:
        for event in recorded.trace.since(1):
            emit(event)
    return run


def build_dispatcher(
    chat: Chat,
    view: ToolView,
    discovered: dict[str, ToolSpec],
    options: TurnOptions,
    used: Iterable[ToolName] = (),
    delivery: Delivery | None = None,
    presented: Iterable[ToolName] = (),
    *,
    on_notice: Callable[[Notice], None],
) -> Dispatcher:
    """Build the dispatcher that runs a turn's calls."""
    used = set(used)
    stubs = options.given.get("mock")
    if stubs:
        chat.names.check_stubs(stubs)
    return Dispatcher(
        view,
        discovered,
        view.synthetic_tools(
            [tool.tool_name for tool in discovered.values()], delivery, used, presented
        ),
        chat.server_manager,
        chat.state.consent,
        options.given.get("meta"),
        chat.mocks.with_stubs(stubs) if stubs else chat.mocks,
        {**chat.context, **(options.given.get("context") or {})},
        on_notice=on_notice,
        worker=chat.server_manager.worker,
        used=used,
        tape=chat.tape,
    )


def with_turn_options(
    model: ChatModel, options: RequestOptions, dispatcher: Dispatcher
) -> ChatModel:
    """Apply a turn's options to a model, with the tool in `tool_choice` by its wire name."""
    model = model.with_options(options)
    choice = model.wanted.tool_choice
    if choice in (None, *TOOL_CHOICES) or choice in dispatcher.synthetic:
        return model
    tool = dispatcher.offered(choice)
    if tool is None:
        offered = [*dispatcher.view.loaded_by_name, *dispatcher.discovered, *dispatcher.synthetic]
        raise UnknownNameError("tool_choice", choice, [*TOOL_CHOICES, *offered])
    if RUN_CODE in dispatcher.synthetic:
        return model.with_options(RequestOptions(tool_choice=RUN_CODE))
    bridged = (
        CALL_TOOL in dispatcher.synthetic and tool.wire_name not in dispatcher.view.loaded_by_name
    )
    return model.with_options(RequestOptions(tool_choice=CALL_TOOL if bridged else tool.wire_name))


async def _system(chat: Chat, options: TurnOptions, model: ChatModel, view: ToolView) -> str:
    """Render the system prompt, without the server instructions."""
    given = options.given
    system, template = prompt_source(
        given.get("system"), given.get("template"), model.template, chat.system
    )
    if system is None:
        system = await chat.templates.render_async(
            template, tools=view.offered, variables=given.get("variables")
        )
    return system


def prompt_source(
    system: str | None, template: str | None, model_template: str | None, default: str | None
) -> tuple[str | None, str]:
    """Choose a system prompt's text, or None and the name of the template that generates it."""
    if system is None and template is None and not model_template:
        system = default
    return system, model_template or DEFAULT_TEMPLATE if template is None else template


def _unused_system(chat: Chat, options: TurnOptions, model: ChatModel) -> tuple[str, ...]:
    """Build a notice if the model's template replaces the chat's system prompt."""
    if not (chat.system and model.template) or any(
        options.given.get(name) is not None for name in ("system", "template")
    ):
        return ()
    return (
        (
            f"Model {shown(model.name)} has the template {shown(model.template)}, which comes"
            " before the chat's system prompt. For another one, name it in the call: system=… or"
            " template=…."
        ),
    )


def _turn_started(
    messages: Sequence[ChatMessage],
    model: ChatModel,
    view: ToolView,
    discovered: Mapping[str, ToolSpec],
    began: float,
    recorded: Turn | None = None,
) -> TurnStarted:
    tool_set = view.selection.tool_set
    return TurnStarted(
        messages=tuple(messages),
        model=model.name,
        provider=model.provider,
        tool_set="custom" if isinstance(tool_set, ToolSetConfig) else tool_set,
        discovery=view.selection.discovery is True,
        loaded=len(view.loaded) + len(discovered),
        deferred=len(view.deferred) - len(discovered),
        undeferred_tokens=view.undeferred_tokens,
        price=model.price,
        began=began,
        recorded=len(recorded.trace.of(StepStarted)) if recorded else 0,
    )
