"""Sessions as spans of OpenTelemetry.

The outermost span of an agent is a turn, a span of a model is an answer, and that of a tool a call.
Children can come before parents, so turns are made when all has been read. Tokens are counted on the
spans of models only: those of agents repeat them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from casual_mcp_nb.base.tokens import definition_tokens
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName
from casual_mcp_nb.conversation.event import SEARCH_TOOLS
from casual_mcp_nb.conversation.foreign import otel_attributes as names
from casual_mcp_nb.conversation.foreign.draft import (
    Draft,
    DraftCall,
    DraftStep,
    DraftTurn,
    Reader,
)
from casual_mcp_nb.conversation.foreign.lines import Fields, text_in
from casual_mcp_nb.conversation.foreign.messages import (
    Call,
    Result,
    messages_in,
    text_of,
    unwrapped,
)
from casual_mcp_nb.conversation.foreign.otel_attributes import value_of
from casual_mcp_nb.conversation.foreign.otel_spans import Span, has_spans, spans_in

_MAX_SPANS = 100_000
_MAX_AROUND = 100
_MAX_NESTED = 20
"""How deep calls are nested in calls."""
_MAX_TOOLS = 1_000
_MAX_DEFINITIONS = 1_000_000
_MAX_TOOLSETS = 50
_MAX_CALLS = 200
_LOOK_BACK = 5


class SpanReader(Reader):
    """Reads spans into a draft."""

    agent = "OpenTelemetry"
    can_read = staticmethod(has_spans)

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self._spans: dict[int, Span] = {}
        self._definitions: dict[str, tuple[tuple[Fields, ...], int]] = {}
        self._turns: dict[Span, DraftTurn] = {}
        self._conversation = ""

    def read(self, record: Fields) -> None:
        """Read an object with spans."""
        for span in spans_in(record):
            if span.attributes.get("logfire.span_type") != "pending_span":
                self._read(span)

    def _read(self, span: Span) -> None:
        if span.id in self._spans:
            # It was exported twice.
            return
        draft, kind = self.draft, names.kind_of(span)
        if kind is None:
            draft.unread.add(draft.text(span.name) or "span without a name")
        span.kind = kind or "other"
        span.conversation = text_in(span.attributes, *names.CONVERSATION)[:200]
        span.stopped = span.attributes.get("casual_mcp_nb.status") == "stopped"
        if len(self._spans) >= _MAX_SPANS:
            draft.keep_no_more()
        else:
            self._spans[span.id] = span
        if kind == "model" or (kind == "agent" and not draft.is_full):
            self._read_answer(span)
        elif kind == "tool" and not draft.is_full:
            span.call = self._read_call(span)
        span.attributes, span.events = {}, []

    def _read_answer(self, span: Span) -> None:
        draft, attributes = self.draft, span.attributes
        if span.kind == "model":
            draft.provider = draft.provider or text_in(attributes, *names.PROVIDER)[:40]
        step = span.answer = draft.answer(str(span.id))
        draft.report(step, names.usage_of(attributes))
        if not step.kept:
            return
        step.began, step.ended = span.began, span.ended
        step.model = text_in(attributes, *names.MODEL)[:100]
        reasons = value_of(attributes, names.FINISH) or ""
        if isinstance(reasons, list):
            reasons = reasons[0]
        step.finish = str(reasons)[:40] or None
        step.tools, step.tool_tokens = self._tools(attributes)
        self._read_input(span)
        said = names.messages_of(span, names.OUTPUT, "assistant")
        called = messages_in(value_of(attributes, names.MORE_OUTPUT), "assistant")
        calls: dict[object, Call] = {}
        for message in chain(said, called):
            if message.role == "assistant":
                draft.say(step, message.text)
                for call in message.calls:
                    calls.setdefault(call.id or len(calls), call)
        for call in islice(calls.values(), _MAX_CALLS):
            step.calls.append(draft.new_call(*call))
        if len(calls) > _MAX_CALLS:
            draft.too_many["call"] += len(calls) - _MAX_CALLS

    def _read_input(self, span: Span) -> None:
        """Find what the person wrote last, and the results after it."""
        draft = self.draft
        prompt, is_asked, span.is_new = "", False, True
        results: list[Result] = []
        system = messages_in(value_of(span.attributes, names.SYSTEM), "system")
        for message in chain(system, names.messages_of(span, names.INPUT, "user")):
            results += message.results
            if message.role == "assistant":
                is_asked, span.is_new, results = False, False, message.results
            elif message.role in ("system", "developer"):
                draft.system = draft.system or draft.text(message.text)
            elif message.role == "user" and message.text:
                prompt, is_asked = message.text, True
        span.prompt, span.continues = draft.text(prompt), not is_asked
        span.is_new = span.is_new and is_asked
        span.results = tuple(map(draft.bounded, results))

    def _read_call(self, span: Span) -> DraftCall:
        draft, attributes = self.draft, span.attributes
        name = text_in(attributes, *names.TOOL_NAME) or span.name.removeprefix("execute_tool ")
        call = draft.new_call(
            text_in(attributes, *names.CALL_ID), name, value_of(attributes, names.ARGUMENTS)
        )
        server = text_in(attributes, *names.TOOL_SERVER)[:200]
        if server:
            call.tool = ToolName(server, call.name.removeprefix(f"{server}__"))
        if call.tool == ToolName(SYNTHETIC, SEARCH_TOOLS):
            call.query = text_in(call.arguments, "query")
        result = value_of(attributes, names.RESULT)
        if isinstance(result, dict) and len(result) == 1:
            result = result.get("output", result)
        text, failed = text_of(result) or span.error or "", span.error is not None
        call.result = draft.bounded(Result("", text, failed))
        call.began, call.ended = span.began, span.ended
        return call

    def _tools(self, attributes: Fields) -> tuple[tuple[Fields, ...], int]:
        """Read the definitions that a request offered, and estimate their tokens. Equal ones are
        kept once.
        """
        offered = names.definitions_in(attributes)
        key = json.dumps(offered)
        if key not in self._definitions:
            if len(key) > _MAX_DEFINITIONS or len(self._definitions) >= _MAX_TOOLSETS:
                self.draft.too_many["toolset"] += 1
                return (), 0
            definitions = tuple(_definitions(offered, self.draft))
            self._definitions[key] = definitions, sum(map(definition_tokens, definitions))
        return self._definitions[key]

    # What was read.

    def close(self) -> None:
        """Make turns: by conversation, and in each by time."""
        for span in self._spans.values():
            self._surround(span)
        spans = sorted(self._spans.values(), key=_order)
        answered = {span.root for span in spans if span.kind == "model"}
        for span in spans:
            # Some libraries say only with the model's requests which conversation it is.
            span.root.conversation = span.root.conversation or span.conversation
        conversations: dict[str, list[Span]] = {}
        for span in spans:
            span.conversation = span.conversation or span.root.conversation
            conversations.setdefault(span.conversation, []).append(span)
        for span in chain.from_iterable(conversations.values()):
            if span.call is not None:
                self._place_call(span.call, span)
            elif span.answer is not None:
                if span.kind == "model" or not (span.around or span in answered):
                    self._place_answer(span.answer, span)
                    continue
                # The answers of models in this agent say the same.
                self.draft.drop(span.answer)
                if not span.around:
                    self._turn_of(span)
        self._spans.clear()
        self._turns.clear()
        super().close()

    def _surround(self, span: Span) -> None:
        """Find the spans around a span, and its conversation."""
        path = [span]
        while len(path) < _MAX_AROUND and path[-1].parent in self._spans:
            path.append(self._spans[path[-1].parent])
        span.conversation = next((each.conversation for each in path if each.conversation), "")
        agents = [number for number, each in enumerate(path, 1) if each.kind == "agent"]
        span.around = path[1 : max(agents, default=None)]

    def _turn_of(self, span: Span) -> DraftTurn:
        """Find the turn that a span belongs to, or begin one."""
        if span.root not in self._turns:
            self._turns[span.root] = self._begin(span)
        turn = self._turns[span.root]
        if span.prompt and not turn.texts:
            turn.texts.append(span.prompt)
            self.draft.name(span.prompt)
        if span.error and span.kind != "tool":
            turn.notices.append(self.draft.text(span.error))
        return turn

    def _begin(self, span: Span) -> DraftTurn:
        turns, is_other = self.draft.turns, span.conversation != self._conversation
        self._conversation = span.conversation
        continues = span.kind == "model" and span.continues and not span.around
        if turns and continues and not is_other:
            return turns[-1]
        turn = DraftTurn(began=span.root.began, stopped=span.root.stopped)
        if turns and (is_other or (span.is_new and not span.conversation)):
            turn.compacted = ""
            turn.notices.append("Another conversation begins here.")
        turns.append(turn)
        return turn

    def _place_answer(self, step: DraftStep, span: Span) -> None:
        outer = next((each.answer for each in span.around if each.kind == "model"), None)
        if outer is not None:
            # Two libraries recorded the same answer.
            if outer.usage is None:
                self.draft.report(outer, step.usage)
            outer.texts, outer.calls = outer.texts or step.texts, outer.calls or step.calls
            self.draft.drop(step)
        elif step.kept:
            parent, steps = self._steps_around(span)
            step.aside = parent is not None
            for result in span.results:
                for calls, number in _open_calls(steps, result.id, ""):
                    calls[number].result = result
                    break
            steps.append(step)

    def _place_call(self, call: DraftCall, span: Span) -> None:
        parent, steps = self._steps_around(span)
        for calls, number in _open_calls(steps, call.id, call.name):
            asked, calls[number] = calls[number], call
            call.id, call.name = asked.id, asked.name
            call.arguments = call.arguments or asked.arguments
            if call.tool.server == self.draft.server:
                call.tool = asked.tool
            return
        if steps:
            steps[-1].calls.append(call)
        elif parent is not None:
            parent.calls.append(call)
        else:
            steps.append(DraftStep(calls=[call]))

    def _steps_around(self, span: Span) -> tuple[DraftCall | None, list[DraftStep]]:
        """Find the innermost call around a span, and its steps. Those of the turn, if there is none,
        or if it is nested too deep.
        """
        turn = self._turn_of(span)
        calls = [each.call for each in span.around if each.call is not None]
        if 0 < len(calls) <= _MAX_NESTED:
            return calls[0], calls[0].steps
        return None, turn.steps


def _order(span: Span) -> tuple[float, int]:
    return span.began or 0.0, len(span.around)


def _open_calls(
    steps: list[DraftStep], id: str, name: str
) -> Iterator[tuple[list[DraftCall], int]]:
    """Find the calls of the last answers that have no result yet, by their id, or else their name.

    Yields:
        The calls of an answer, and the number of the one that was found.
    """
    for step in reversed(steps[-_LOOK_BACK:]):
        for number, call in enumerate(step.calls):
            if call.result is None and (call.id == id if id else call.name == name):
                yield step.calls, number


def _definitions(value: Any, draft: Draft) -> Iterator[Fields]:
    """Yield tool definitions with `name`, `description` and `parameters`."""
    tools = value if isinstance(value, list) else []
    if len(tools) > _MAX_TOOLS:
        draft.too_many["tool"] += len(tools) - _MAX_TOOLS
    for each in tools[:_MAX_TOOLS]:
        fields = unwrapped(each)
        name = text_in(fields, "name")
        if name:
            schemas = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
            schema = {"inputSchema": value_of(fields, schemas) or {}}
            small = draft.arguments(schema)
            yield {
                "name": draft.text(name)[:200],
                "description": draft.text(text_in(fields, "description")),
                "parameters": small["inputSchema"] if isinstance(small, dict) else {},
            }
