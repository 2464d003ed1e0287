"""Sessions as spans of OpenTelemetry.

The outermost span of an agent is a turn, a span of a model is an answer, and that of a tool a call.
Children can come before parents, so turns are made when all has been read. Tokens are counted on the
spans of models only: those of agents repeat them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

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
from casual_mcp_nb.conversation.foreign.lines import text_in
from casual_mcp_nb.conversation.foreign.messages import (
    Call,
    Result,
    messages_in,
    text_of,
    unwrapped,
)
from casual_mcp_nb.conversation.foreign.otel_attributes import value_of
from casual_mcp_nb.conversation.foreign.otel_spans import Span, spans_in

_MAX_SPANS = 60_000
_MAX_OTHERS = 30_000
"""After so many spans, those are not kept that only connect others."""
_MAX_AROUND = 100
_MAX_NESTED = 20
"""How deep calls are nested in calls."""
_MAX_TOOLS = 1_000
_MAX_DEFINITIONS = 1_000_000
_MAX_TOOLSETS = 50
_LOOK_BACK = 5


@dataclass(slots=True, eq=False)
class _Node:
    """What is kept of a span. `continues` says that the model was asked about results of tools.

    `is_new` says that its request has no earlier messages. `answer` is a model's, or an agent's.
    """

    kind: names.Kind
    parent: int
    began: float | None
    conversation: str
    error: str
    prompt: str = ""
    continues: bool = False
    is_new: bool = False
    results: tuple[tuple[str, str], ...] = ()
    answer: DraftStep | None = None
    call: DraftCall | None = None
    stopped: bool = False


class SpanReader(Reader):
    """Reads spans into a draft."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self._nodes: dict[int, _Node] = {}
        self._definitions: dict[str, tuple[dict[str, Any], ...]] = {}
        self._turns: dict[_Node, DraftTurn] = {}
        self._conversation = ""

    def read(self, record: dict[str, Any]) -> None:
        """Read an object with spans."""
        for span in spans_in(record):
            if span.attributes.get("logfire.span_type") != "pending_span":
                self._read(span)

    def _read(self, span: Span) -> None:
        draft, attributes = self.draft, span.attributes
        kind = names.kind_of(span)
        if kind is None:
            draft.unread.add(draft.text(span.name) or "span without a name")
        node = _Node(
            kind or "other",
            hash((span.trace, span.parent)) if span.parent else 0,
            span.began,
            text_in(attributes, *names.CONVERSATION)[:200],
            (span.error or "")[:1_000],
        )
        if len(self._nodes) < (_MAX_OTHERS if node.kind == "other" else _MAX_SPANS):
            self._nodes.setdefault(hash((span.trace, span.id)), node)
        elif node.kind != "other":
            draft.keep_no_more()
        if kind == "model":
            self._read_model(span, node)
        elif kind == "tool" and not draft.is_full:
            node.call = self._read_call(span)
        elif kind == "agent" and not draft.is_full:
            node.stopped = attributes.get("casual_mcp_nb.status") == "stopped"
            node.answer = DraftStep(usage=names.usage_of(attributes))
            self._read_input(span, node)
            self._read_output(span, node.answer)

    def _read_model(self, span: Span, node: _Node) -> None:
        draft, attributes = self.draft, span.attributes
        draft.provider = draft.provider or text_in(attributes, *names.PROVIDER)[:40]
        step = node.answer = draft.answer(f"{span.trace} {span.id}")
        draft.report(step, names.usage_of(attributes))
        if not step.kept:
            return
        step.began, step.ended = span.began, span.ended
        step.model = text_in(attributes, *names.MODEL)[:100]
        reasons = value_of(attributes, names.FINISH) or ""
        if isinstance(reasons, list):
            reasons = reasons[0]
        step.finish = str(reasons)[:40] or None
        step.tools = self._tools(attributes)
        self._read_input(span, node)
        for call in self._read_output(span, step):
            key = f"{span.trace} {span.id} {call.id or len(step.calls)}"
            draft.call(step, call.id, call.name, call.arguments, key=key)

    def _read_input(self, span: Span, node: _Node) -> None:
        """Find what the person wrote last, and the results after it."""
        draft = self.draft
        prompt, is_asked, node.is_new = "", False, True
        results: list[Result] = []
        system = messages_in(value_of(span.attributes, names.SYSTEM), "system")
        for message in chain(system, names.messages_of(span, names.INPUT, "user")):
            results += message.results
            if message.role == "assistant":
                is_asked, node.is_new, results = False, False, message.results
            elif message.role in ("system", "developer"):
                draft.system = draft.system or draft.text(message.text)
            elif message.role == "user" and message.text:
                prompt, is_asked = message.text, True
        node.prompt, node.continues = draft.text(prompt), not is_asked
        node.is_new = node.is_new and is_asked
        node.results = tuple([(each.id, draft.text(each.text)) for each in results])

    def _read_output(self, span: Span, step: DraftStep) -> list[Call]:
        """Add what the model said to its answer, and list the calls that it asked for."""
        calls: list[Call] = []
        said = names.messages_of(span, names.OUTPUT, "assistant")
        called = messages_in(value_of(span.attributes, names.MORE_OUTPUT), "assistant")
        for message in chain(said, called):
            if message.role == "assistant":
                self.draft.say(step, message.text)
                calls += message.calls
        return calls

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
        call.text = draft.text(text_of(result) or span.error or "")
        call.began, call.ended = span.began, span.ended
        call.done, call.failed = True, span.error is not None
        return call

    def _tools(self, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Read the definitions that a request offered. Equal ones are kept once."""
        key = text_in(attributes, *names.DEFINITIONS, names.PARAMETERS)
        key = key or json.dumps(names.definitions_in(attributes))
        if key not in self._definitions:
            if len(key) > _MAX_DEFINITIONS or len(self._definitions) >= _MAX_TOOLSETS:
                return ()
            definitions = _definitions(names.definitions_in(attributes), self.draft)
            self._definitions[key] = tuple(definitions)
        return self._definitions[key]

    # What was read.

    def close(self) -> None:
        """Make turns: by conversation, and in each by time."""
        paths = sorted(map(self._path, self._nodes.values()), key=_order)
        answered = {path[-1] for path in paths if path[0].kind == "model"}
        conversations: dict[str, list[list[_Node]]] = {}
        for path in paths:
            conversations.setdefault(path[0].conversation, []).append(path)
        for node, *around in chain.from_iterable(conversations.values()):
            if node.call is not None:
                self._place_call(node.call, node, around)
            elif node.answer is not None and node.kind == "model":
                self._place_answer(node.answer, node, around)
            elif node.answer is not None and not around and node not in answered:
                # Nothing else says what the agent answered.
                self.draft.adopt(node.answer)
                self._turn_of(node, node).steps.append(node.answer)
        self._nodes.clear()
        self._turns.clear()
        super().close()

    def _path(self, node: _Node) -> list[_Node]:
        """List a span and those around it, the last one being its turn: the outermost span of an
        agent, or of all.
        """
        path = [node]
        while len(path) < _MAX_AROUND and path[-1].parent in self._nodes:
            path.append(self._nodes[path[-1].parent])
        node.conversation = next((each.conversation for each in path if each.conversation), "")
        agents = [number for number, each in enumerate(path, 1) if each.kind == "agent"]
        return path[: agents[-1]] if agents else path

    def _turn_of(self, node: _Node, root: _Node) -> DraftTurn:
        """Find the turn that a span belongs to, or begin one."""
        turn = self._turns.get(root)
        if turn is None:
            turn = self._turns[root] = self._begin(node, root)
            if root.kind == "agent" and root is not node:
                self._tell(root, turn)
        self._tell(node, turn)
        return turn

    def _begin(self, node: _Node, root: _Node) -> DraftTurn:
        turns, is_other = self.draft.turns, node.conversation != self._conversation
        self._conversation = node.conversation
        continues = node is root and node.kind == "model" and node.continues
        if turns and continues and not is_other:
            return turns[-1]
        turn = DraftTurn(began=root.began, stopped=root.stopped)
        if turns and (is_other or (node.is_new and not node.conversation)):
            turn.compacted = ""
            turn.notices.append("Another conversation begins here.")
        turns.append(turn)
        return turn

    def _tell(self, node: _Node, turn: DraftTurn) -> None:
        if node.prompt and not turn.texts:
            turn.texts.append(node.prompt)
            self.draft.name(node.prompt)
        if node.error and node.kind != "tool":
            turn.notices.append(self.draft.text(node.error))

    def _place_answer(self, step: DraftStep, node: _Node, around: list[_Node]) -> None:
        outer = next((each.answer for each in around if each.kind == "model"), None)
        if outer is not None:
            # Two libraries recorded the same answer.
            if outer.usage is None:
                self.draft.report(outer, step.usage)
            outer.texts, outer.calls = outer.texts or step.texts, outer.calls or step.calls
            self.draft.drop(step)
        elif step.kept:
            parent, steps = self._steps_around(node, around)
            step.aside = parent is not None
            for id, text in node.results:
                call = _open_call(steps, id, "")
                if call is not None:
                    call.done, call.text = True, text
            steps.append(step)

    def _place_call(self, call: DraftCall, node: _Node, around: list[_Node]) -> None:
        parent, steps = self._steps_around(node, around)
        asked = _open_call(steps, call.id, call.name)
        if asked is not None:
            call.id, call.name = asked.id, asked.name
            call.arguments = call.arguments or asked.arguments
            if call.tool.server == self.draft.server:
                call.tool = asked.tool
            for step in steps[-_LOOK_BACK:]:
                step.calls = [call if each is asked else each for each in step.calls]
        elif steps:
            steps[-1].calls.append(call)
        elif parent is not None:
            parent.calls.append(call)
        else:
            steps.append(DraftStep(calls=[call]))

    def _steps_around(
        self, node: _Node, around: list[_Node]
    ) -> tuple[DraftCall | None, list[DraftStep]]:
        """Find the innermost call around a span, and its steps. Those of the turn, if there is none,
        or if it is nested too deep.
        """
        turn = self._turn_of(node, [node, *around][-1])
        calls = [each.call for each in around if each.call is not None]
        if 0 < len(calls) <= _MAX_NESTED:
            return calls[0], calls[0].steps
        return None, turn.steps


def _order(path: list[_Node]) -> tuple[float, int]:
    return path[0].began or 0.0, len(path)


def _open_call(steps: list[DraftStep], id: str, name: str) -> DraftCall | None:
    """Find a call of the last answers that has no result yet, by its id, or else by its name."""
    for step in reversed(steps[-_LOOK_BACK:]):
        for call in step.calls:
            if not call.done and (call.id == id if id else call.name == name):
                return call
    return None


def _definitions(value: Any, draft: Draft) -> Iterator[dict[str, Any]]:
    """Yield tool definitions with `name`, `description` and `parameters`."""
    for each in (value if isinstance(value, list) else [])[:_MAX_TOOLS]:
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
