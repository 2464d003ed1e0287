"""Plan a turn: what the model would call, and how some of that is run later, without the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery.synthetic import BUILT_IN
from casual_mcp_nb.engine.argument_check import problems
from casual_mcp_nb.engine.build_run import Chat, build_dispatcher
from casual_mcp_nb.engine.calls import Calls
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.types.bridged_call import read_call
from casual_mcp_nb.types.event import Event, StepFinished, ToolFinished, TurnFinished
from casual_mcp_nb.types.plan import PlannedCall
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.types.tool import Catalog, ToolSpec


def planned_calls(turn: Turn, catalog: Catalog, own: Sequence[ToolSpec], worker: Worker) -> list[PlannedCall]:
    """Return the calls of a turn's last answer that were not run.

    Args:
        turn: The turn.
        catalog: All tools of servers.
        own: The person's own synthetic tools.
        worker: Checks their arguments.
    """
    answers, ended = turn.trace.of(StepFinished), {event.call_id for event in turn.trace.of(ToolFinished)}
    calls = (answers[-1].message.tool_calls or ()) if answers else ()

    by_name = {tool.name: tool for tool in own}

    def check(tool: ToolSpec, arguments: Mapping[str, Any]) -> Sequence[str]:
        found = problems(tool, arguments, worker)
        return ("The arguments could not be checked.",) if found is None else found

    def plan(call: AssistantToolCall) -> PlannedCall:
        name, arguments, _ = read_call(call.function.name, call.function.arguments)
        tool = by_name.get(name) or catalog.get(name)
        return PlannedCall(call.id, name, tool, arguments, check)

    return [plan(call) for call in calls if call.id not in ended and call.function.name not in BUILT_IN]


async def run_planned(
    chat: Chat, calls: Sequence[PlannedCall], options: TurnOptions, on_event: Callable[[Event], None]
) -> list[ToolCall]:
    """Run planned calls as those of one answer of a model.

    Args:
        chat: The chat.
        calls: The calls as they are now.
        options: The options of the turn that was planned.
        on_event: Called with each event.

    Returns:
        The calls with their results, in order.
    """
    from casual_llm.messages import AssistantToolCall, AssistantToolCallFunction

    view = await chat.tools.connected_view(options.applied_to(chat.selection))
    tools = (call.tool.wire_name for call in calls if call.tool is not None)
    # A search while planning has loaded them.
    discovered = {name: view.deferred_by_name[name] for name in tools if name in view.deferred_by_name}
    dispatcher = build_dispatcher(chat, view, discovered, options)
    trace, start = Trace(), time.monotonic()

    def now() -> float:
        return time.monotonic() - start

    def emit(event: Event) -> None:
        trace.append(event)
        on_event(event)

    dispatcher.on_notice = lambda notice: emit(replace(notice, at=now()))
    runner = Calls(dispatcher, replace(chat.limits, max_calls_per_step=len(calls)), emit, now, chat.large_results)
    made = []
    for call in calls:
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        function = AssistantToolCallFunction(name=call.tool.wire_name if call.tool else call.name, arguments=arguments)
        made.append(AssistantToolCall(id=call.id, function=function))
    try:
        await runner.run(0, made, {})
    finally:
        # Also when it is interrupted: what was run is not to be run again.
        trace.append(TurnFinished("done", at=now()))
        run = {each.id: replace(each, planned=True) for each in Turn(trace).tool_calls}
        for call in calls:
            call.call = run.get(call.id, call.call)
    return [run[call.id] for call in calls]
