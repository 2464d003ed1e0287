"""Plan a turn: collect the model's calls, run some later without the model, and continue the
turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.arguments_by_schema import problems
from casual_mcp_nb.base.iterables import by_id, by_name
from casual_mcp_nb.base.passed import handles_passed
from casual_mcp_nb.base.tool import ToolChange, ToolName, by_tool_name
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    RUN_CODE,
    SYNTHETIC,
    UNKNOWN,
    Event,
    Notice,
    StepFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from casual_mcp_nb.conversation.planned import PlannedCall
from casual_mcp_nb.conversation.step import ToolCall, read_call
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.discovery.synthetic import HARMLESS_TOOLS
from casual_mcp_nb.engine.build_run import build_dispatcher
from casual_mcp_nb.engine.calls import Calls
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.offered_tools import OfferedTools
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.programs import program_spec
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.isolation.worker import Worker

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

    from casual_mcp_nb.base.tool import Catalog, ToolSpec


LEFT_OUT = "Error: this call was not run: the person left it out."
"""The result, for the model, of a planned call that did not run."""
_MAX_DIFF_LINES = 60


def planned_calls(
    turn: Turn, catalog: Catalog, custom: Sequence[ToolSpec], worker: Worker
) -> list[PlannedCall]:
    """List the calls in a turn's last answer that did not run."""
    answers = turn.trace.of(StepFinished)
    if not answers:
        return []
    ended = {event.call_id for event in turn.trace.of(ToolFinished)}
    own = {RUN_CODE: program_spec(()), **by_name(custom)}

    def check(tool: ToolSpec, arguments: Mapping[str, Any]) -> Sequence[str]:
        if any(handles_passed(arguments)):
            # They are checked when the results are filled in.
            return ()
        errors = problems(tool.input_schema, arguments, worker)
        return ("The arguments could not be checked.",) if errors is None else errors

    def plan(call: AssistantToolCall) -> PlannedCall:
        name, arguments, _ = read_call(call.function.name, call.function.arguments)
        tool = own.get(name) or catalog.get(name)
        return PlannedCall(call.id, name, tool=tool, arguments=arguments, check=check)

    planned = []
    for call in answers[-1].message.tool_calls or ():
        if call.id not in ended and call.function.name not in HARMLESS_TOOLS:
            planned.append(plan(call))
    return planned


async def run_planned(
    chat: McpToolChat,
    calls: Sequence[PlannedCall],
    options: TurnOptions,
    step: int,
    on_event: Callable[[Event], None],
    messages: Sequence[ChatMessage] = (),
) -> list[ToolCall]:
    """Run planned calls like those in one model answer. They can pass the results in `messages`.

    Raises:
        UsageError: A tool's definition is not the one that the model read. No call ran.
    """
    with chat.toolbox.injecting(options.given.get("context") or ()):
        view = await chat.tools.connected_view(options.applied_to(chat.state.selection))
        tools = by_tool_name(view.catalog)
        for custom_tool in chat.tools.custom:
            tools[custom_tool.spec.tool_name] = custom_tool.spec
        _check_unchanged(calls, tools)
        discovered = {}
        for call in calls:
            if call.tool is not None and call.tool.wire_name in view.deferred_by_name:
                # A search while planning has loaded it.
                name = call.tool.wire_name
                discovered[name] = view.deferred_by_name[name]
        offered = OfferedTools.of(view, discovered)
        trace, start = Trace(), time.monotonic()

        def now() -> float:
            return time.monotonic() - start

        def emit(event: Event) -> None:
            trace.append(event)
            on_event(event)

        def on_notice(notice: Notice) -> None:
            emit(replace(notice, at=now()))

        dispatcher = build_dispatcher(
            chat, offered, options, on_notice=on_notice, messages=messages
        )
        runner = Calls(
            dispatcher,
            replace(chat.limits, max_calls_per_step=len(calls)),
            emit=emit,
            now=now,
            large_results=chat.state.large_results,
        )
        try:
            await runner.run_calls(step, _as_model_calls(calls), {})
        finally:
            # Also when it is interrupted: what was run is not to be run again.
            trace.append(TurnFinished("done", at=now()))
            run = _record_runs(trace, calls)
        return [run[call.id] for call in calls]


def _as_model_calls(calls: Sequence[PlannedCall]) -> list[AssistantToolCall]:
    from casual_llm.messages import AssistantToolCall, AssistantToolCallFunction

    model_calls = []
    for call in calls:
        name = call.tool.wire_name if call.tool else call.name
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        function = AssistantToolCallFunction(name=name, arguments=arguments)
        model_calls.append(AssistantToolCall(id=call.id, function=function))
    return model_calls


def _record_runs(trace: Trace, calls: Sequence[PlannedCall]) -> dict[str, ToolCall]:
    """Record in each planned call how it ran, and return all calls of the trace by their ids."""
    run = {each.id: replace(each, planned=True) for each in Turn(trace).tool_calls}
    allowed = set()
    for end in trace.of(ToolFinished):
        if end.permission is not None and end.permission.allowed:
            allowed.add(end.call_id)
    for call in calls:
        call.call = run.get(call.id, call.call)
        call.ran = call.id in allowed and not run[call.id].mocked
        call.events = tuple(_of_call(trace, call.id))
    return run


def resumed(turn: Turn, calls: Sequence[PlannedCall]) -> Turn:
    """Convert a planned turn and its call results to the steps with which the conversation's turn
    begins.
    """
    events = [event for event in turn.trace if not isinstance(event, TurnFinished)]
    answer, last = None, 0
    for number, event in enumerate(events):
        if isinstance(event, StepFinished):
            answer, last = event, number
    if answer is None or not answer.message.tool_calls:
        return Turn(Trace(events))
    message, edited = _as_run(answer.message, calls)
    events[last] = replace(answer, message=message)
    trace, now = Trace(events), turn.seconds
    for name in edited:
        text = f"The arguments of the call of {shown(name)} were edited by hand."
        trace.append(Notice(text, at=now))
    named = by_id(calls)
    for each in answer.message.tool_calls:
        call = named.get(each.id)
        if call is None or not call.events:
            _leave_out(trace, answer.step, each, call, now)
            continue
        for of_call in call.events:
            trace.append(replace(of_call, at=now + of_call.at))
    return Turn(trace)


def _leave_out(
    trace: Trace, step: int, model_call: AssistantToolCall, call: PlannedCall | None, at: float
) -> None:
    """Record that a call did not run, as denied by the person.

    Args:
        trace: Gets the events.
        step: The step of the model's answer.
        model_call: The call as the model made it.
        call: The planned call, or None for one of this package's own tools.
        at: The time in the turn.
    """
    name, arguments, _ = read_call(model_call.function.name, model_call.function.arguments)
    wire_name = ""
    if call is None:
        tool = ToolName(SYNTHETIC, name)
    elif call.tool is None:
        tool = ToolName(UNKNOWN, name)
    else:
        tool, wire_name = call.tool.tool_name, call.tool.wire_name
    trace.append(
        ToolStarted(
            step,
            model_call.id,
            name=name,
            tool=tool,
            arguments=arguments,
            at=at,
            wire_name=wire_name,
        )
    )
    trace.append(ToolFinished(step, model_call.id, tool, status="denied", text=LEFT_OUT, at=at))


def _as_run(
    message: AssistantMessage, calls: Sequence[PlannedCall]
) -> tuple[AssistantMessage, list[str]]:
    """Edit a model's answer to match the arguments that ran, and list the tools whose arguments
    changed.
    """
    from casual_llm.messages import AssistantMessage

    ran = {call.id: call for call in calls if call.events}
    calls_run, edited = [], []
    for each in message.tool_calls or ():
        call = ran.get(each.id)
        name, arguments, bridged = read_call(each.function.name, each.function.arguments)
        if call is not None and call.call is not None and call.call.arguments != arguments:
            run = call.call.arguments
            if isinstance(run, str):
                text = run
            elif bridged:
                text = json.dumps({"name": name, "arguments": run})
            else:
                text = json.dumps(run)
            function = each.function.model_copy(
                update={"name": CALL_TOOL if bridged else name, "arguments": text}
            )
            each = each.model_copy(update={"function": function})
            edited.append(call.name)
        calls_run.append(each)
    if not edited:
        return message, []
    # What a provider has signed would have the old arguments in it.
    return AssistantMessage(content=message.content, tool_calls=calls_run), edited


def _of_call(trace: Trace, call_id: str) -> Iterator[Event]:
    """Yield the events for a call and its nested calls."""
    ids = {call_id}
    for event in trace:
        if isinstance(event, ToolStarted) and event.parent in ids:
            ids.add(event.call_id)
        if getattr(event, "call_id", None) in ids:
            yield event


def _check_unchanged(calls: Sequence[PlannedCall], tools: Mapping[ToolName, ToolSpec]) -> None:
    for call in calls:
        if call.tool is None:
            continue
        now = tools.get(call.tool.tool_name)
        if now is None or now.as_listed == call.tool.as_listed:
            # A tool that is gone cannot be run; its call says so.
            continue
        lines = ToolChange(call.tool, now).diff.splitlines()
        more = len(lines) - _MAX_DIFF_LINES
        if more > 0:
            lines = [*lines[:_MAX_DIFF_LINES], f"… {more:,} more lines"]
        difference = "\n".join(lines)
        raise UsageError(
            f"Tool {shown(str(now.tool_name))} has changed since the model planned its call."
            f" Nothing was run:\n{difference}\n",
            hint="Read the change, and plan again: session.plan(…).",
            server=now.server,
            tool=now.wire_name,
        )
