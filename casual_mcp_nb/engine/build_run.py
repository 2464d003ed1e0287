"""How a turn is put together: the model, what it sees, what it was told before, the system prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from casual_mcp_nb.discovery import discovered_in
from casual_mcp_nb.engine.dispatch import Dispatcher
from casual_mcp_nb.engine.instructions import with_instructions
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.preflight import PreflightChecks, Told, turn_started
from casual_mcp_nb.engine.read_on import CutResults, Recall
from casual_mcp_nb.engine.run import Run
from casual_mcp_nb.engine.view import ToolView, cut_notices
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.event import Event, Notice
from casual_mcp_nb.types.history import repaired
from casual_mcp_nb.types.options import TOOL_CHOICES, RequestOptions

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.config.templates import TemplateLibrary
    from casual_mcp_nb.connections import ServerManager
    from casual_mcp_nb.engine.consent import Consent
    from casual_mcp_nb.engine.context import ContextWindows
    from casual_mcp_nb.engine.exclusions import Exclusions
    from casual_mcp_nb.engine.limits import TurnLimits
    from casual_mcp_nb.providers import ModelFactory
    from casual_mcp_nb.providers.chat_model import ChatModel
    from casual_mcp_nb.types.config import ToolSetConfig
    from casual_mcp_nb.types.selection import Selection

DEFAULT_TEMPLATE = "default"


class RunParts(Protocol):
    """What a run is built from: the parts of a `McpToolChat`."""

    server_manager: ServerManager
    models: ModelFactory
    selection: Selection
    tool_sets: dict[str, ToolSetConfig]
    templates: TemplateLibrary
    limits: TurnLimits
    system: str | None
    contexts: ContextWindows
    checks: PreflightChecks
    told: Told
    consent: Consent
    cut_results: CutResults
    exclusions: Exclusions

    async def view(self, selection: Selection) -> ToolView:
        """Return what the model sees with a selection."""
        ...

    async def followed(self, view: ToolView) -> ToolView:
        """Return the view after what servers changed meanwhile."""
        ...

    def change_notices(self) -> list[Notice]:
        """Return what there is to say about tools that changed."""
        ...


async def build_run(
    chat: RunParts,
    messages: Sequence[ChatMessage],
    options: TurnOptions,
    history: Sequence[ChatMessage],
    emit: Callable[[Event], None],
    recall: Recall,
) -> Run:
    """The run of a turn, ready to start; tells how the turn begins and what the person should know.

    Args:
        chat: Whose turn it is.
        messages: What the person adds.
        options: What this turn does differently.
        history: The conversation so far.
        emit: Takes each event.
        recall: Finds the full text of a result of the conversation that was cut.

    Raises:
        UsageError: A name in the options or in the selection does not exist.
        ConnectError: No server could be connected.
    """
    taken: set[str] = set()
    (history, history_repairs), (messages, repairs) = repaired(history, taken), repaired(messages, taken)
    model = await chat.models.ready(options.given.get("model"))
    view = await chat.view(options.applied_to(chat.selection))
    named = (*chat.consent.unknown_tools(), *chat.exclusions.notices(view.catalog))
    missing = (*chat.checks.missing(view, chat.server_manager, chat.tool_sets), *named)
    discovered = {t.wire_name: t for t in discovered_in(history, view.catalog) if t.wire_name in view.deferred_by_name}
    synthetic = view.synthetic_tools(tool.tool_name for tool in discovered.values())
    dispatcher = Dispatcher(
        view,
        discovered,
        synthetic,
        chat.server_manager,
        chat.consent,
        options.given.get("meta"),
        on_notice=lambda notice: emit(replace(notice, at=run.now())),
    )
    model = asked_with(model, options.request, dispatcher)
    unsent = model.sendable(tools=bool(view.definitions or discovered)).notices
    run = Run(
        model=model,
        view=view,
        dispatcher=dispatcher,
        messages=[*history, *messages],
        discovered=discovered,
        system=await _system(chat, options, model, view),
        limits=replace(chat.limits, max_steps=options.given.get("max_steps") or chat.limits.max_steps),
        emit=emit,
        stream=options.given.get("stream") is not False,
        gate=options.given.get("gate"),
        context=await chat.contexts.of(model),
        followed=chat.followed,
        change_notices=chat.change_notices,
        cut_results=chat.cut_results,
        recall=recall,
        once=chat.told,
    )
    emit(turn_started(messages, model, view.selection, view, discovered))
    missing = chat.checks.news(missing, first=not history)
    untold = chat.told.new(unsent, first=not history)
    told = tuple(map(Notice, (*history_repairs, *repairs, *untold)))
    for notice in (*told, *missing, *chat.change_notices(), *view.notices, *cut_notices(discovered.values())):
        emit(notice)
        run.told.append(notice)
    return run


def asked_with(model: ChatModel, options: RequestOptions, dispatcher: Dispatcher) -> ChatModel:
    """The model with the options of a turn, a tool in `tool_choice` by its name on the wire.

    Raises:
        UnknownNameError: No such tool is offered.
    """
    asked = model.with_options(options)
    choice = asked.wanted.tool_choice
    if choice in (None, *TOOL_CHOICES) or choice in dispatcher.synthetic:
        return asked
    tool = dispatcher.offered(choice)
    if tool is None:
        offered = [*dispatcher.view.loaded_by_name, *dispatcher.discovered, *dispatcher.synthetic]
        raise UnknownNameError("tool_choice", choice, [*TOOL_CHOICES, *offered])
    return asked.with_options(RequestOptions(tool_choice=tool.wire_name))


async def _system(chat: RunParts, options: TurnOptions, model: ChatModel, view: ToolView) -> str:
    system, template = options.given.get("system"), options.given.get("template")
    system = chat.system if system is None and template is None else system
    if system is None:
        template = model.template or DEFAULT_TEMPLATE if template is None else template
        system = await chat.templates.render_async(template, tools=view.offered, variables=options.given.get("variables"))
    return with_instructions(system, view, chat.server_manager)
