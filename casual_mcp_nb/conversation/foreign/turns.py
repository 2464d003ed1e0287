"""Makes turns of what was collected of a foreign session."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

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
from casual_mcp_nb.base.tokens import TokenParts, definition_tokens, message_tokens
from casual_mcp_nb.base.tool import SYNTHETIC
from casual_mcp_nb.base.wire_names import accepted_name
from casual_mcp_nb.conversation.event import (
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
from casual_mcp_nb.conversation.step import EMPTY_RESULT, UNANSWERED, ModelResponse
from casual_mcp_nb.conversation.turn import Trace, Turn

MAX_MESSAGES = 100
"""How many messages of the conversation a request has: the last ones."""
_NO_PROMPT = "[The file has no message of the person here.]"
_NAMED_CALLS = 5
_UNKNOWN_MODEL = "unknown"


def turns_of(draft: Draft) -> list[Turn]:
    """Make turns of a draft, which is used up."""
    known: set[str] = set()
    for turn in draft.turns:
        _name_calls(turn.steps, known)
    writer = _Writer(draft)
    turns: list[Turn] = []
    drafts = deque(draft.turns)
    draft.turns.clear()
    while drafts:
        turn = drafts.popleft()
        turns.append(Turn(Trace(writer.events(turn))))
    return turns


def _name_calls(steps: Iterable[DraftStep], known: set[str]) -> None:
    """Give calls an id that no other call has: it may be missing, cut or masked."""
    for step in steps:
        for call in step.calls:
            while not call.id or call.id in known:
                call.id = f"{call.id or 'call'}_{len(known) + 1}"
            known.add(call.id)
            _name_calls([*call.steps, DraftStep(calls=call.calls)], known)


def notes_on(draft: Draft) -> tuple[str, ...]:
    """Say what a draft is, what was not understood, and what is not kept."""
    notes = [
        f"Read from a file of {draft.agent}. Each request is shown with the messages that the file"
        " has before it. Whatever else was reported counts as system prompt."
    ]
    if draft.unread.kinds:
        notes.append(str(draft.unread))
    if draft.cut:
        notes.append(f"Cut, because they are long: {count(draft.cut, 'text')}.")
    if draft.left_out:
        answers = count(draft.left_out, "answer")
        notes.append(f"Not kept, because the file is large: {answers}, except for the tokens.")
    return tuple(notes)


class _Writer:
    """Writes events. It knows the messages so far, which each request repeats."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._messages: deque[ChatMessage] = deque(maxlen=MAX_MESSAGES)
        self._system: tuple[ChatMessage, ...] = ()
        if draft.system:
            self._system = (SystemMessage(content=draft.system),)
        self._system_tokens = sum(map(message_tokens, self._system))
        self._history = self._results = 0
        self._tool_tokens: dict[int, int] = {}
        self._began = self._at = 0.0
        self._steps = 0
        self._model = ""

    def events(self, turn: DraftTurn) -> Iterator[Event]:
        """Yield the events of a turn."""
        self._began, self._at, self._steps = turn.began or 0.0, 0.0, 0
        if turn.compacted is not None:
            self._messages.clear()
            self._history = self._results = 0
            if turn.compacted:
                turn.texts.insert(0, turn.compacted)
        self._model = next((step.model for step in turn.steps if step.model), "")
        if turn.steps:
            self._model = self._model or _UNKNOWN_MODEL
        messages = [UserMessage(content=text) for text in filter(None, turn.texts)]
        messages = messages or [UserMessage(content=_NO_PROMPT)]
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

    def _request(self, step: DraftStep) -> Request:
        options = {}
        if step.model and step.model != self._model:
            options["model"] = step.model
        known = TokenParts(tools=self._tokens_of(step.tools))
        messages: tuple[ChatMessage, ...] = ()
        if not step.aside:
            messages = (*self._system, *self._messages)
            known = replace(
                known,
                system=self._system_tokens,
                history=self._history,
                results=self._results,
            )
        return Request(messages, step.tools, self._parts(step, known), options=options)

    def _tokens_of(self, tools: tuple[dict[str, Any], ...]) -> int:
        """Estimate the tokens of definitions. Those of an earlier request are not counted again."""
        if id(tools) not in self._tool_tokens:
            self._tool_tokens[id(tools)] = sum(map(definition_tokens, tools))
        return self._tool_tokens[id(tools)]

    def _parts(self, step: DraftStep, known: TokenParts) -> TokenParts:
        """Say how the tokens of a request are made up: what is known of it, and the rest.

        The rest is the system prompt with the tools, which the file may not hold.
        """
        reported = step.usage.prompt_tokens if step.usage is not None else None
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
        for nested in call.calls:
            yield from self._call(nested, step, call)
        at = self._time(call.ended)
        if call.tool.server == SYNTHETIC and call.done:
            rows = tuple(SearchRow(tool, None, newly_loaded=True) for tool in call.found)
            yield ToolsSearched(step, call.id, call.query, rows, len(rows), at)
        if call.done:
            result = ToolResult((ContentPart("text", call.text),), is_error=call.failed)
            status = "error" if call.failed else "ok"
            yield ToolFinished(
                step,
                call.id,
                call.tool,
                status,  # type: ignore[arg-type]
                call.text,
                result,
                at,
            )

    def _add(self, message: ChatMessage) -> None:
        self._messages.append(message)
        if isinstance(message, ToolResultMessage):
            self._results += message_tokens(message)
        else:
            self._history += message_tokens(message)


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
    text = (call.text or EMPTY_RESULT) if call.done else UNANSWERED
    return ToolResultMessage(name=accepted_name(call.name), tool_call_id=call.id, content=text)
