"""Makes turns of what was collected of a foreign session."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage, message_tokens
from casual_mcp_nb.base.tool import SYNTHETIC
from casual_mcp_nb.base.wire_names import accepted_name
from casual_mcp_nb.conversation.event import (
    CallStatus,
    Event,
    Notice,
    Request,
    SearchRow,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftCall, DraftStep, DraftTurn
from casual_mcp_nb.conversation.repair import unique_id
from casual_mcp_nb.conversation.step import EMPTY_RESULT, UNANSWERED, ModelResponse
from casual_mcp_nb.conversation.turn import Trace, Turn

MAX_MESSAGES = 100
"""How many messages of the conversation a request has: the last ones."""
_NO_PROMPT = "[The file has no message of the person here.]"
_NAMED_CALLS = 5
_UNKNOWN_MODEL = "unknown"


def turns_of(draft: Draft) -> list[Turn]:
    """Make turns of a draft, which is used up."""
    writer = _Writer(draft)
    turns: list[Turn] = []
    draft.turns.reverse()
    while draft.turns:
        turns.append(Turn(Trace(writer.events(draft.turns.pop()))))
    return turns


def notes_on(draft: Draft) -> tuple[str, ...]:
    """Say what a draft is, what was not understood, and what is not kept."""
    notes = [
        f"Read from a file of {draft.agent}. Each request is shown with the messages that the file"
        " has before it. Whatever else was reported counts as system prompt."
    ]
    if draft.unread:
        notes.append(str(draft.unread))
    if draft.cut:
        notes.append(f"Cut, because they are long: {count(draft.cut, 'text')}.")
    if draft.too_many:
        kinds = ", ".join(count(number, kind) for kind, number in draft.too_many.items())
        notes.append(f"Not kept, because there are too many in one place: {kinds}.")
    if draft.left_out:
        answers = count(draft.left_out, "answer")
        notes.append(f"Not kept, because the file is large: {answers}, except for the tokens.")
    return tuple(notes)


class _Writer:
    """Writes events. It knows the messages so far, which each request repeats."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._messages: deque[ChatMessage] = deque(maxlen=MAX_MESSAGES)
        self._system = [SystemMessage(content=text) for text in filter(None, [draft.system])]
        self._first = TokenParts(system=sum(map(message_tokens, self._system)))
        self._sent = self._first
        self._ids: set[str] = set()
        self._began = self._at = 0.0
        self._steps = 0
        self._model = ""

    def events(self, turn: DraftTurn) -> Iterator[Event]:
        """Yield the events of a turn."""
        self._began, self._at, self._steps = turn.began or 0.0, 0.0, 0
        if turn.compacted is not None:
            self._messages.clear()
            self._sent = self._first
        texts = list(filter(None, (turn.compacted, *turn.texts)))
        messages = [UserMessage(content=text) for text in texts or [_NO_PROMPT]]
        self._model = next((step.model for step in turn.steps if step.model), "")
        if turn.steps:
            self._model = self._model or _UNKNOWN_MODEL
        yield TurnStarted(
            tuple(messages),
            self._model,
            provider=self._draft.provider or None,
            began=turn.began,
            agent=self._draft.agent,
        )
        for message in messages:
            self._add(message)
        for text in turn.notices:
            yield Notice(text)
        for step in turn.steps:
            yield from self._step(step)
        if turn.stopped:
            yield TurnFinished("stopped", "The person stopped it.", self._at)
        else:
            yield TurnFinished("done", at=self._at)

    def _time(self, at: float | None) -> float:
        """Seconds since the turn began. Never earlier than the event before."""
        if at is not None and self._began:
            self._at = max(self._at, at - self._began)
        return self._at

    def _step(self, step: DraftStep, parent: DraftCall | None = None) -> Iterator[Event]:
        number = self._steps
        self._steps += 1
        yield StepStarted(number, self._request(step), self._time(step.began))
        self._name(step.calls)
        message = _message(step)
        response = ModelResponse(message, step.usage, step.finish)
        # Providers refuse an empty message in a history.
        is_dropped = step.aside or not (message.content or message.tool_calls)
        yield StepFinished(
            number,
            message,
            step.usage,
            step.finish,
            self._time(step.ended),
            truncated=response.truncated,
            hosted_calls=tuple(step.hosted),
            dropped=is_dropped,
        )
        if not is_dropped:
            self._add(message)
        for call in step.calls:
            yield from self._call(call, number, parent)
            if not step.aside:
                self._add(_result(call))

    def _name(self, calls: Iterable[DraftCall]) -> None:
        """Give calls an id that no other call has: it may be missing, cut or masked."""
        for call in calls:
            call.id = unique_id(call.id, self._ids)

    def _request(self, step: DraftStep) -> Request:
        options = {}
        if step.model and step.model != self._model:
            options["model"] = step.model
        messages: tuple[ChatMessage, ...] = ()
        known = TokenParts()
        if not step.aside:
            messages, known = (*self._system, *self._messages), self._sent
        known = self._parts(step.usage, replace(known, tools=step.tool_tokens))
        return Request(messages, step.tools, known, options=options)

    def _parts(self, usage: TokenUsage | None, known: TokenParts) -> TokenParts:
        """Say how the tokens of a request are made up: what is known of it, and the rest.

        The rest is the system prompt with the tools, which the file may not hold.
        """
        reported = usage.prompt_tokens if usage is not None else None
        if not reported and self._draft.usage.prompt_tokens is not None:
            # Its tokens are those of another answer: an estimate would be too much.
            return TokenParts(origin="reported")
        if reported is None:
            return known
        unknown = max(reported - known.total, 0)
        return replace(known, system=known.system + unknown).scaled_to(reported)

    def _call(self, call: DraftCall, step: int, parent: DraftCall | None) -> Iterator[Event]:
        name = accepted_name(call.name)
        yield ToolStarted(
            step,
            call.id,
            name,
            call.tool,
            call.arguments,
            self._time(call.began),
            wire_name=name,
            parent=parent.id if parent is not None else None,
        )
        for inner in call.steps:
            yield from self._step(inner, call)
        self._name(call.calls)
        for nested in call.calls:
            yield from self._call(nested, step, call)
        at, result = self._time(call.ended), call.result
        if result is None:
            return
        if call.tool.server == SYNTHETIC:
            found = [SearchRow(self._draft.tool(name), None, True) for name in result.found]
            yield ToolsSearched(step, call.id, call.query, tuple(found), len(found), at)
        content = ToolResult((ContentPart("text", result.text),), is_error=result.failed)
        status: CallStatus = "error" if result.failed else "ok"
        yield ToolFinished(step, call.id, call.tool, status, result.text, content, at)

    def _add(self, message: ChatMessage) -> None:
        self._messages.append(message)
        tokens = message_tokens(message)
        if message.role == "tool":
            self._sent += TokenParts(results=tokens)
        else:
            self._sent += TokenParts(history=tokens)


def _message(step: DraftStep) -> AssistantMessage:
    """Make the message of an answer. The calls of a subagent belong to the call that started it."""
    text = "\n\n".join(step.texts)
    if step.aside:
        named = ", ".join(str(call.tool) for call in step.calls[:_NAMED_CALLS])
        if text or named:
            text = f"[subagent] {text or f'calls {named}'}"
        return AssistantMessage(content=text)
    calls: list[AssistantToolCall] = []
    for call in step.calls:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        written = json.dumps(arguments, ensure_ascii=False)
        function = AssistantToolCallFunction(name=accepted_name(call.name), arguments=written)
        calls.append(AssistantToolCall(id=call.id, function=function))
    return AssistantMessage(content=text, tool_calls=calls or None)


def _result(call: DraftCall) -> ToolResultMessage:
    text = UNANSWERED
    if call.result is not None:
        text = call.result.text or EMPTY_RESULT
    return ToolResultMessage(name=accepted_name(call.name), tool_call_id=call.id, content=text)
