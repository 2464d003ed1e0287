"""The tools that a conversation offers, whatever its delivery, and the calls that it made.

Tools that a text describes are called through the tool for that: `run_code` runs a program, here of
one call, and `call_tool` takes a name and arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.content import bare_result, says_failed
from casual_mcp_nb.base.tool import ToolAnnotations, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import CALL_TOOL, FINDING, RUN_CODE
from casual_mcp_nb.conversation.step import read_call, text_of
from casual_mcp_nb.discovery.manifest import definitions_in
from casual_mcp_nb.discovery.signatures import functions_in

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
        self._defined = {str(definition["name"]): _tool(definition) for definition in definitions}
        self._programs = self._defined.pop(RUN_CODE, None)
        bridge = self._defined.pop(CALL_TOOL, None)
        found = [one for one in messages if one.role == "tool" and one.name in FINDING]
        texts = [text_of(message.content) for message in found]
        described: list[Mapping[str, Any]] = []
        if self._programs is not None:
            texts.insert(0, self._programs.description.partition("<functions>\n")[2])
            for text in texts:
                described += functions_in(text).values()
        elif bridge is not None:
            for text in texts:
                described += definitions_in(text)
        self.tools = [*map(_tool, described), *self._defined.values()]

    def delivered(self, call: NextCall) -> NextCall:
        """Make a call as the conversation's delivery wants it."""
        if call.name in self._defined:
            return call
        if self._programs is not None:
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
    made: dict[str, NextCall] = {}
    past: list[PastCall] = []
    for message in messages:
        if message.role == "assistant":
            for each in message.tool_calls or ():
                name, arguments, _ = read_call(each.function.name, each.function.arguments)
                made[each.id] = NextCall(name, arguments if isinstance(arguments, dict) else {})
        elif message.role == "tool" and message.tool_call_id in made:
            call = made[message.tool_call_id]
            past.append(PastCall(call, bare_result(text_of(message.content), call.name)))
    return past
