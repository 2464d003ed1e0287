"""Sessions as spans of OpenTelemetry.

The outermost span of an agent is a turn, a span of a model is an answer, and that of a tool a call.
Children can come before parents, so turns are made when all has been read. Tokens are counted on the
spans of models only: those of agents repeat them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName
from casual_mcp_nb.conversation.event import SEARCH_TOOLS
from casual_mcp_nb.conversation.foreign import otel_attributes as names
from casual_mcp_nb.conversation.foreign.draft import Draft, DraftCall, DraftStep, DraftTurn, tool_of
from casual_mcp_nb.conversation.foreign.lines import text_in
from casual_mcp_nb.conversation.foreign.otel_messages import messages_in, unwrapped, value_of
from casual_mcp_nb.conversation.foreign.otel_spans import Span, spans_in

_SERVER = "agent"
"""The server of a tool whose span names none."""
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
    error: str | None
    prompt: str = ""
    continues: bool = False
    is_new: bool = False
    results: tuple[tuple[str, str], ...] = ()
    answer: DraftStep | None = None
    call: DraftCall | None = None
    stopped: bool = False


class SpanReader:
    """Reads spans into a draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
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
        draft, attributes = self._draft, span.attributes
        kind = names.kind_of(span)
        if kind is None:
            draft.unread.add(draft.text(span.name) or "span without a name")
        key = hash((span.trace, span.id))
        node = _Node(
            kind or "other",
            hash((span.trace, span.parent)) if span.parent else 0,
            span.began,
            text_in(attributes, *names.CONVERSATION)[:200],
            None if span.error is None else span.error[:1_000],
        )
        if len(self._nodes) < (_MAX_OTHERS if node.kind == "other" else _MAX_SPANS):
            self._nodes.setdefault(key, node)
        elif node.kind != "other":
            draft.keep_no_more()
        content: dict[str, Any] = {}
        for _name, inner in span.events:
            if not inner.keys().isdisjoint((*names.INPUT, *names.OUTPUT)):
                # Content is in events, so that it can be stored elsewhere.
                content |= inner
        span.attributes = {**content, **attributes}
        if kind == "model":
            self._read_model(span, node)
        elif kind == "tool" and not draft.is_full:
            node.call = self._read_call(span)
        elif kind == "agent":
            self._read_input(span, node)
            node.stopped = attributes.get("casual_mcp_nb.status") == "stopped"
            if not draft.is_full:
                node.answer = DraftStep(usage=names.usage_of(attributes))
                self._read_output(span, node.answer, calls=False)

    def _read_model(self, span: Span, node: _Node) -> None:
        draft, attributes = self._draft, span.attributes
        draft.provider = draft.provider or text_in(attributes, *names.PROVIDER)[:40]
        step = node.answer = draft.answer(f"{span.trace} {span.id}")
        draft.report(step, names.usage_of(attributes))
        if not step.kept:
            return
        step.began, step.ended = span.began, span.ended
        step.model = text_in(attributes, *names.MODEL)[:100]
        reasons = value_of(attributes, names.FINISH)
        step.finish = str(reasons[0] if isinstance(reasons, list) else reasons or "")[:40] or None
        step.tools = self._tools(attributes)
        self._read_input(span, node)
        self._read_output(span, step)

    def _read_input(self, span: Span, node: _Node) -> None:
        """Find what the person wrote last, and the results after it."""
        draft = self._draft
        if draft.is_full:
            return
        prompt = ""
        is_asked = False
        results: list[tuple[str, str]] = []
        messages = list(names.messages_of(span, names.INPUT, "user"))
        for message in messages_in(value_of(span.attributes, names.SYSTEM), "system"):
            draft.system = draft.system or draft.text(message.text)
        for message in messages:
            if message.role == "assistant":
                is_asked, results = False, []
            results += message.results
            if message.role in ("system", "developer"):
                draft.system = draft.system or draft.text(message.text)
            elif message.role == "user" and message.text:
                prompt, is_asked = message.text, True
        node.prompt, node.continues = draft.text(prompt), not is_asked
        node.is_new = is_asked and not any(message.role == "assistant" for message in messages)
        node.results = tuple([(id, draft.text(text)) for id, text in results])

    def _read_output(self, span: Span, step: DraftStep, *, calls: bool = True) -> None:
        draft = self._draft
        messages = list(names.messages_of(span, names.OUTPUT, "assistant"))
        messages += messages_in(value_of(span.attributes, names.MORE_OUTPUT), "assistant")
        for message in messages:
            if message.role != "assistant":
                continue
            draft.say(step, message.text)
            for call in message.calls if calls else ():
                key = f"{span.trace} {span.id} {call.id or len(step.calls)}"
                draft.call(step, call.id, call.name, call.arguments, _SERVER, key=key)

    def _read_call(self, span: Span) -> DraftCall:
        draft, attributes = self._draft, span.attributes
        name = text_in(attributes, *names.TOOL_NAME) or span.name.removeprefix("execute_tool ")
        name = encodable(name[:200], "replace") or "unnamed"
        id = draft.text(text_in(attributes, *names.CALL_ID))[:200]
        call = DraftCall(id, name, tool_of(name, _SERVER), {})
        server = text_in(attributes, *names.TOOL_SERVER)[:200]
        if server:
            call.tool = ToolName(server, call.name.removeprefix(f"{server}__"))
        call.began, call.ended = span.began, span.ended
        call.done, call.failed = True, span.error is not None
        call.arguments = draft.arguments(value_of(attributes, names.ARGUMENTS))
        result = value_of(attributes, names.RESULT)
        if isinstance(result, dict) and len(result) == 1:
            result = result.get("output", result)
        if not isinstance(result, str):
            result = json.dumps(result) if result is not None else span.error or ""
        call.text = draft.text(result)
        if call.tool == ToolName(SYNTHETIC, SEARCH_TOOLS):
            call.query = text_in(call.arguments, "query")
        return call

    def _tools(self, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Read the definitions that a request offered. Equal ones are kept once."""
        texts = (attributes.get(name) for name in (*names.DEFINITIONS, names.PARAMETERS))
        key = next((text for text in texts if isinstance(text, str)), "")
        key = key or json.dumps(names.definitions_in(attributes))
        if key not in self._definitions:
            if len(key) > _MAX_DEFINITIONS or len(self._definitions) >= _MAX_TOOLSETS:
                return ()
            definitions = _definitions(names.definitions_in(attributes), self._draft)
            self._definitions[key] = tuple(definitions)
        return self._definitions[key]

    # What was read.

    def close(self) -> None:
        """Make turns: by conversation, and in each by time."""
        begun: dict[str, float] = {}
        paths: list[list[_Node]] = []
        for node in self._nodes.values():
            path = [node, *self._around(node)]
            node.conversation = next((each.conversation for each in path if each.conversation), "")
            at = node.began or 0.0
            begun[node.conversation] = min(at, begun.get(node.conversation, at))
            paths.append(path)
        paths.sort(key=lambda path: (begun[path[0].conversation], path[0].began or 0.0, len(path)))
        # Whether any answer of a turn is kept, where it has answers.
        kept: dict[_Node, bool] = {}
        for path in paths:
            step, root = path[0].answer, _root(path)
            if path[0].kind == "model" and step is not None:
                kept[root] = kept.get(root, False) or step.kept
        for path in paths:
            node, root = path[0], _root(path)
            around = path[1 : path.index(root) + 1]
            if node.kind == "model":
                self._place_answer(node, root, around)
            elif node.call is not None:
                self._place_call(node.call, node, root, around)
            elif node is root and node.kind == "agent":
                self._place_agent(node, kept.get(node))
        known: set[str] = set()
        for turn in self._draft.turns:
            _name_calls(turn.steps, known)
        self._nodes.clear()
        self._turns.clear()

    def _around(self, node: _Node) -> Iterator[_Node]:
        """Yield the spans around a span, the innermost first."""
        for _ in range(_MAX_AROUND):
            parent = self._nodes.get(node.parent)
            if parent is None:
                return
            yield parent
            node = parent

    def _turn_of(self, node: _Node, root: _Node) -> DraftTurn:
        """Find the turn that a span belongs to, or begin one."""
        draft = self._draft
        turn = self._turns.get(root)
        is_other = node.conversation != self._conversation
        continues = node is root and node.kind == "model" and node.continues
        if turn is None and continues and draft.turns and not is_other:
            turn = draft.turns[-1]
        if turn is None:
            turn = DraftTurn(began=root.began)
            draft.turns.append(turn)
        self._turns[root] = turn
        self._conversation = node.conversation
        is_first = len(draft.turns) == 1 or turn.steps or turn.compacted is not None
        is_new = node.kind == "model" and node.is_new and not node.conversation
        if (is_other or is_new) and not is_first:
            turn.compacted = ""
            turn.notices.append("Another conversation begins here.")
        if node.prompt and not turn.texts:
            turn.texts.append(node.prompt)
            draft.name(node.prompt)
        if node.error and node.kind != "tool":
            turn.notices.append(draft.text(node.error))
        return turn

    def _place_agent(self, node: _Node, is_kept: bool | None) -> None:
        """Begin an agent's turn. `is_kept` is None if nothing else says what it answered."""
        if is_kept or (is_kept is None and node.answer is not None):
            turn = self._turn_of(node, node)
            turn.stopped = node.stopped
            if is_kept is None and node.answer is not None:
                self._draft.adopt(node.answer)
                turn.steps.append(node.answer)

    def _place_answer(self, node: _Node, root: _Node, around: list[_Node]) -> None:
        step = node.answer
        if step is None:
            return
        parent = _caller(around)
        outer = next((each.answer for each in around if each.kind == "model"), None)
        if outer is None and root in self._turns:
            steps = self._turns[root].steps if parent is None else parent.steps
            outer = next((each for each in steps[-1:] if _is_within(step, each)), None)
        if outer is not None:
            # Two libraries recorded the same answer.
            if outer.usage is None:
                self._draft.report(outer, step.usage)
            outer.texts, outer.calls = outer.texts or step.texts, outer.calls or step.calls
            self._draft.drop(step)
            return
        if not step.kept:
            return
        turn = self._turn_of(node, root)
        step.aside = parent is not None
        steps = turn.steps if parent is None else parent.steps
        for id, text in node.results:
            call = _open_call(steps, id, "")
            if call is not None:
                call.done, call.text = True, text
        steps.append(step)

    def _place_call(self, call: DraftCall, node: _Node, root: _Node, around: list[_Node]) -> None:
        parent = _caller(around)
        steps = self._turn_of(node, root).steps if parent is None else parent.steps
        asked = _open_call(steps, call.id, call.name)
        if asked is not None:
            call.id, call.name = asked.id, asked.name
            call.arguments = call.arguments or asked.arguments
            if not call.tool.server or call.tool.server == _SERVER:
                call.tool = asked.tool
            for step in steps[-_LOOK_BACK:]:
                step.calls = [call if each is asked else each for each in step.calls]
            return
        if parent is not None and not steps:
            parent.calls.append(call)
        elif steps:
            steps[-1].calls.append(call)
        else:
            steps.append(DraftStep(calls=[call]))


def _name_calls(steps: Iterable[DraftStep], known: set[str]) -> None:
    """Give calls an id that no other call has."""
    for step in steps:
        for call in step.calls:
            while not call.id or call.id in known:
                call.id = f"{call.id or 'call'}_{len(known) + 1}"
            known.add(call.id)
            _name_calls([*call.steps, DraftStep(calls=call.calls)], known)


def _caller(around: list[_Node]) -> DraftCall | None:
    """Find the innermost call around a span. None if there is none, or if it is nested too deep."""
    calls = [node.call for node in around if node.call is not None]
    return calls[0] if 0 < len(calls) <= _MAX_NESTED else None


def _root(path: list[_Node]) -> _Node:
    """Find the span that is the turn: the outermost of an agent, or of all."""
    agents = [node for node in path if node.kind == "agent"]
    return agents[-1] if agents else path[-1]


def _is_within(step: DraftStep, other: DraftStep) -> bool:
    """Check whether an answer is another one again, from another library."""
    times = (other.began, step.began, step.ended, other.ended)
    known = [at for at in times if at is not None]
    if len(known) < len(times) or known != sorted(known) or step.texts != other.texts:
        return False
    called = [call.name for call in step.calls]
    is_same = called == [call.name for call in other.calls] and bool(called or step.texts)
    return is_same and (step.usage == other.usage or step.usage is None or other.usage is None)


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
