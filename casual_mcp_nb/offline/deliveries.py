"""The tools that a conversation offers, whatever its delivery, and the calls that it made.

Tools that a text describes are called through the tool for that: `run_code` runs a program, here of
one call, and `call_tool` takes a name and arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.content import bare_result, says_failed
from casual_mcp_nb.base.tool import Catalog, ToolAnnotations, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import CALL_TOOL, FINDING, RUN_CODE
from casual_mcp_nb.conversation.step import read_call, text_of
from casual_mcp_nb.discovery.manifest import definitions_in
from casual_mcp_nb.discovery.signatures import functions_in
from casual_mcp_nb.discovery.synthetic import discovered_in

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


class NextCall(NamedTuple):
    """A call to make: the tool's wire name and its arguments."""

    name: str
    arguments: dict[str, Any]


class PastCall(NamedTuple):
    """A call that was made, and its result's text."""

    call: NextCall
    result: str

    @property
    def failed(self) -> bool:
        """Whether the result reports a failed call."""
        return says_failed(self.result)


class Offered:
    """The tools that a request offers: defined, or described in a text.

    Attributes:
        tools: All of them, without the way to those described.
    """

    def __init__(
        self, messages: Sequence[ChatMessage], definitions: Sequence[Mapping[str, Any]]
    ) -> None:
        defined = {str(definition["name"]): _tool(definition) for definition in definitions}
        programs, bridge = defined.pop(RUN_CODE, None), defined.pop(CALL_TOOL, None)
        self._programs = programs is not None
        described: list[Mapping[str, Any]] = []
        if programs is not None:
            described += functions_in(programs.description.partition("<functions>\n")[2]).values()
        found: dict[str, Mapping[str, Any]] = {}
        for message in messages:
            if message.role == "tool" and message.name in FINDING:
                text = text_of(message.content)
                if programs is not None:
                    found |= functions_in(text)
                elif bridge is not None:
                    found |= {each["name"]: each for each in definitions_in(text)}
        new = [replace(_tool(each), wire_name=name) for name, each in found.items()]
        for tool in discovered_in(messages, Catalog(new)):
            if tool.wire_name not in defined:
                described.append(found[tool.wire_name])
        self._described = {str(each["name"]): _tool(each) for each in described}
        self.tools = [*defined.values(), *self._described.values()]

    def delivered(self, call: NextCall) -> NextCall:
        """Make a call as the conversation's delivery wants it."""
        if call.name not in self._described:
            return call
        if self._programs:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            return NextCall(RUN_CODE, {"code": f"{call.name}({arguments})"})
        return NextCall(CALL_TOOL, call._asdict())


def _tool(definition: Mapping[str, Any]) -> ToolSpec:
    wire_name = str(definition["name"])
    # A server's tool has the server in its name.
    owner = ToolName.split(wire_name)
    return ToolSpec(
        owner.server,
        owner.tool,
        str(definition.get("description") or ""),
        definition.get("parameters") or {},
        annotations=ToolAnnotations(read_only=getattr(definition, "read_only", None)),
        wire_name=wire_name,
    )


def calls_in(messages: Sequence[ChatMessage]) -> list[PastCall]:
    """Collect the calls that were made, in order, with their results."""
    results: dict[str, str] = {}
    made: list[Any] = []
    for message in messages:
        if message.role == "tool":
            results[message.tool_call_id] = text_of(message.content)
        elif message.role == "assistant":
            made += message.tool_calls or ()
    past: list[PastCall] = []
    for each in made:
        name, arguments, _ = read_call(each.function.name, each.function.arguments)
        call = NextCall(name, arguments if isinstance(arguments, dict) else {})
        if name == RUN_CODE:
            call = _call_in(call)
        past.append(PastCall(call, bare_result(results.get(each.id, ""), name)))
    return past


def _call_in(program: NextCall) -> NextCall:
    """Find the call in a program of the planner; any other program is itself."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, AttributeError):
        call: Any = ast.parse(str(program.arguments.get("code")), mode="eval").body
        arguments = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        return NextCall(str(call.func.id), arguments)
    return program
