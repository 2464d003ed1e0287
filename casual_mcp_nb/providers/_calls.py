"""Read the tool calls in an answer: one reader for all wires, and for the pieces in which gateways
stream them.

Gateways leave out ids, number all calls 0, repeat a call's whole name or id in each piece, give
each piece another id, or send arguments as an object. What can only mean one call is that call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.arguments import arguments_text, one_object
from casual_mcp_nb.providers._streamed_fields import StreamedFields

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

_MAX_CHECKED = 65_536
"""Arguments up to this length are checked for whether they are complete."""


def call_of(call_id: object, name: object, arguments: object) -> AssistantToolCall:
    """Build a tool call. See `arguments_text` for the arguments."""
    from casual_llm import AssistantToolCall, AssistantToolCallFunction

    function = AssistantToolCallFunction(name=_text(name), arguments=arguments_text(arguments))
    return AssistantToolCall(id=_text(call_id), function=function)


def calls_in(message: object) -> Sequence[AssistantToolCall]:
    """List a message's calls, none if it is not the model's."""
    return getattr(message, "tool_calls", None) or ()


def next_number(messages: Iterable[object]) -> int:
    """Number the next call of a conversation, for its id where a model gives none."""
    return 1 + sum(len(calls_in(message)) for message in messages)


def changed_arguments(arguments: str, change: Callable[[Any], Any]) -> str:
    """Change a call's arguments. Text that is not JSON stays, and so does what is the same."""
    try:
        given = json.loads(arguments)
        changed = change(given)
    except (ValueError, RecursionError):
        return arguments
    return arguments if changed == given else json.dumps(changed, ensure_ascii=False)


def _text(value: object) -> str:
    """Convert an id or a name to text. Some servers number their calls."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def whole_name(pieces: Sequence[str], offered: Collection[str]) -> str:
    """Join a streamed name. Some gateways repeat in each piece the name, or what came of it so
    far.

    Args:
        pieces: The pieces, in order.
        offered: The names that the request offers.
    """
    joined = "".join(pieces)
    if len(pieces) < 2 or joined in offered:
        return joined
    longest = max(pieces, key=len)
    repeated = all(map(longest.startswith, pieces))
    if repeated and (longest in offered or len(set(pieces)) == 1):
        return longest
    return joined


@dataclass
class _StreamedCall:
    id: str = ""
    names: list[str] = field(default_factory=list)
    arguments: str = ""
    after: _StreamedCall | None = None
    """The call before it on the wire, if neither has an id."""
    fields: StreamedFields = field(default_factory=StreamedFields)

    def is_whole(self) -> bool:
        """Check whether the arguments so far are complete."""
        text = self.arguments.rstrip()
        return text.endswith("}") and len(text) <= _MAX_CHECKED and one_object(text) is not None


class StreamedCalls:
    """Calls that are streamed in pieces in the chat completions format.

    Args:
        offered: Returns the names that the request offers. Asked only where a piece leaves a
            choice.
    """

    def __init__(self, offered: Callable[[], Collection[str]]) -> None:
        self._offered = offered
        self._calls: list[_StreamedCall] = []
        self._by_index: dict[object, _StreamedCall] = {}
        self._by_id: dict[str, _StreamedCall] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, part: Any, position: int) -> StreamedFields:
        """Add a piece. Return what collects its call's other fields.

        Args:
            part: The piece.
            position: Its place among the pieces of its chunk, used if it has no index.
        """
        index = part.index if isinstance(part.index, int | str) else position
        call_id, name = _text(part.id), _text(getattr(part.function, "name", None))
        arguments = getattr(part.function, "arguments", None)
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = arguments or ""
        call = self._by_id.get(call_id) if call_id else None
        if call is None:
            call = self._by_index.get(index)
        if call is None or self._begins_another(call, call_id, name, arguments):
            without_ids = call is not None and not call.id and not call_id
            call = _StreamedCall(after=call if without_ids else None)
            self._by_index[index] = call
            self._calls.append(call)
        if call_id and not call.id:
            call.id = call_id
            self._by_id[call_id] = call
        if name:
            call.names.append(name)
        call.arguments += arguments
        return call.fields

    def _begins_another(self, call: _StreamedCall, call_id: str, name: str, arguments: str) -> bool:
        """Check whether a piece with the number of a call begins another one."""
        if call_id and call_id == call.id:
            return False
        if call_id and call.id:
            # A new id can also be that of a piece.
            if not name:
                return call.is_whole() and bool(arguments.strip())
            goes_on = (
                name in call.names
                and bool(call.arguments)
                and not arguments.lstrip().startswith("{")
            )
            return not goes_on or call.is_whole()
        if not name or not call.names:
            return False
        same = name == whole_name(call.names, ())
        if not same and {name, whole_name(call.names, ())} <= set(self._offered()):
            # The one before has no arguments, or was cut.
            return True
        if same and call.arguments.strip() == "{}":
            # An empty object comes before the real one.
            return False
        return call.is_whole()

    def whole(self) -> Iterator[tuple[AssistantToolCall, StreamedFields]]:
        """Yield the complete calls, each with what collected its other fields.

        A call without an id that only repeats the one before it is the same call.
        """
        for each in self._calls:
            name = self._name(each)
            if not (name or each.arguments):
                # Some servers send an entry with nothing in it.
                continue
            if each.after is not None and name == self._name(each.after):
                said = arguments_text(each.arguments) if each.arguments else ""
                if said in ("", arguments_text(each.after.arguments)):
                    continue
            yield call_of(each.id, name, each.arguments), each.fields

    def are_whole(self) -> bool:
        """Check whether there are calls, and the arguments of all are complete."""
        return bool(self._calls) and all(each.is_whole() for each in self._calls)

    def _name(self, call: _StreamedCall) -> str:
        return call.names[0] if len(call.names) == 1 else whole_name(call.names, self._offered())
