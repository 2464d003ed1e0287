"""The first steps of a turn as they were recorded, which a turn that is forked from it begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from casual_mcp_nb.errors import UnknownNameError, UsageError, brief
from casual_mcp_nb.types.event import (
    FINDING,
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    RequestEdited,
    StepFinished,
    StepStarted,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolStarted,
)
from casual_mcp_nb.types.step import UNANSWERED, Step, ToolCall
from casual_mcp_nb.types.trace import Trace, Turn


def recorded_steps(turn: Turn, step: int, *, result: str | Mapping[str, str] | None = None, text: str | None = None) -> Turn:
    """Cut a turn to the part that is to be repeated.

    Args:
        turn: The turn.
        step: Index of the step from which it goes on; negative ones count from the end. Without `result` and `text`, that step
            is the first one that is left out.
        result: What the model reads instead of the result of that step's call; a mapping by tool or call id for several.
        text: What the model is to have said in that step; its calls and their results stay.

    Raises:
        UsageError: There is no such step, or it has nothing that is replaced by that.
        UnknownNameError: `result` names a call that the step did not make.
    """
    steps = turn.steps
    if not -len(steps) <= step < len(steps):
        hint = f"There are {len(steps):,}, counted from 0." if steps else "The model was not asked in this turn."
        raise UsageError(f"There is no steps[{step}] in this turn.", hint=hint)
    at = steps[step]
    changed = result is not None or text is not None
    if changed and at.response is None:
        raise UsageError("The model did not finish this step.", hint="Without result and text, it is asked again.")
    edits = _edits(at, result)
    events: list[Event] = [turn.started if not turn.edits else replace(turn.started, messages=tuple(turn.prompt_messages))]
    events += _until(turn, at.index + changed, None if text is None else _checked(at, text))
    recorded = Trace(events)
    # A call that was stopped is not still running in the new turn.
    ended = {event.call_id for event in recorded.of(ToolFinished)}
    for started in recorded.of(ToolStarted):
        if started.call_id not in ended:
            end = ToolFinished(started.step, started.call_id, started.tool, "stopped", UNANSWERED, at=recorded.last_at)
            recorded.append(end)
    for call, new in edits:
        recorded.append(TextEdited(at.index + 1, call.id, new, call.result, recorded.last_at))
    return Turn(recorded)


def _until(turn: Turn, end: int, text: str | None) -> Iterator[Event]:
    """Yield the events of the steps before `end`, the last of which says `text` instead, unless it is None."""
    step, calls = -1, set()
    for event in turn.trace:
        if isinstance(event, StepStarted):
            step = event.step
        if isinstance(event, ToolStarted) and step < end:
            calls.add(event.call_id)
        if isinstance(event, RequestEdited) and event.step >= end:
            continue
        # A pause before the first step does not count as time taken; what was unloaded later stays unloaded.
        is_pause = isinstance(event, QuestionAsked | QuestionAnswered) and step < end
        if 0 <= step < end or is_pause or (isinstance(event, TextEdited) and event.call_id in calls):
            if text is None or step < end - 1:
                yield event
            elif isinstance(event, StepFinished):
                yield _saying(event, text)
                yield Notice("The text of this step was replaced.", at=event.at)
            elif not isinstance(event, TextDelta):
                yield event


def _saying(event: StepFinished, text: str) -> StepFinished:
    from casual_llm.messages import AssistantMessage

    # Without the provider's state, which has the old text in it, and which may be signed.
    message = AssistantMessage(content=text, tool_calls=event.message.tool_calls)
    return replace(event, message=message, truncated=False, response_id=None, request_id=None)


def _checked(step: Step, text: str) -> str:
    if not isinstance(text, str) or not (text.strip() or step.tool_calls):
        raise UsageError(f"text cannot be {brief(text)}.", hint="It is what the model is to have said.")
    return text


def _edits(step: Step, result: str | Mapping[str, str] | None) -> list[tuple[ToolCall, str]]:
    if result is None:
        return []
    calls = {call.id: call for call in step.tool_calls if call.name not in FINDING}
    if not calls:
        what = "only searched for tools" if step.tool_calls else "called no tool"
        raise UsageError(f"This step {what}: there is no result to replace.")
    if isinstance(result, str):
        if len(calls) > 1:
            names = ", ".join(f"{call.tool}" for call in calls.values())
            raise UsageError(f"This step made {len(calls):,} calls: {names}.", hint='Say which: result={"server:tool": "…"}.')
        result = dict.fromkeys(calls, result)
    edits = []
    for name, new in result.items():
        named = [call for call in calls.values() if name in (call.id, str(call.tool), call.name)]
        if len(named) != 1:
            raise UnknownNameError("call of this step", str(name), list(calls if named else map(str, _tools(calls))))
        if not isinstance(new, str):
            raise UsageError(f"A result cannot be {brief(new)}.", hint="It is the text that the model reads.")
        edits.append((named[0], new))
    return edits


def _tools(calls: Mapping[str, ToolCall]) -> list[str]:
    return [str(call.tool) for call in calls.values()]
