"""Receive a model response: join its text, enforce its limits, clean its calls, and parse calls written as text.

Some small models write calls as text, which is parsed and never evaluated: in the tags of Hermes and Qwen
(`<tool_call>{…}</tool_call>`), Llama 3 (`<function=name>{…}</function>`, `<|python_tag|>`) and Mistral (`[TOOL_CALLS]`), in
fenced code, or at the beginning of a line. The call can be JSON, Python literals, or Llama's list `[name(a=1)]`.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from casual_mcp_nb.base.limits import TimeLimit
from casual_mcp_nb.engine.events import LoopThrottle
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.errors import AnswerLimitError

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall


MAX_TEXT = 20_000
"""Maximum characters in a text to parse."""
MAX_CALLS = 16
_MAX_NAME = 128
_OPENING = re.compile(
    r"<(?P<tag>tool_calls?|function_calls?)>|<function=(?P<name>[^>\s]{1,128})>|<\|(?:python_tag|tool_call)\|>|\[TOOL_CALLS\]"
    r"|```[a-z_]{0,12}"
)
_LINE = re.compile(r"^[ \t]*(?=[\[{]|[A-Za-z_][\w.]{0,127}\()", re.MULTILINE)
_NAMES = ("name", "tool_name", "tool", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "tool_input", "input")
_DECODER = json.JSONDecoder()


class WrittenCall(NamedTuple):
    """A call that the model wrote as text."""

    name: str
    arguments: dict[str, Any]


def written_calls(text: str, is_offered: Callable[[str], bool]) -> tuple[list[WrittenCall], str]:
    """Parse the calls to offered tools in a text, and the text before the first one."""
    calls: list[WrittenCall] = []
    before = ""
    # An object or a call of Python is in each of them.
    if len(text) > MAX_TEXT or ("{" not in text and "(" not in text):
        return calls, before
    for start, name, part in _parts(text):
        for call in _calls_in(_value(part.strip()), name):
            if len(calls) < MAX_CALLS and len(call.name) <= _MAX_NAME and is_offered(call.name):
                before = before if calls else text[:start].strip()
                calls.append(call)
    return calls, before


def _parts(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the parts of a text that can be calls: where each begins, the tool's name in its tag, and its content."""
    end = 0
    tagged = False
    for opening in _OPENING.finditer(text):
        if opening.start() < end:
            continue
        tag, name = opening["tag"], opening["name"] or ""
        closing = f"</{tag}>" if tag else "</function>" if name else "```" if opening[0].startswith("```") else ""
        ends = text.find(closing, opening.end()) if closing else -1
        end = len(text) if ends < 0 else ends + len(closing)
        tagged = True
        yield opening.start(), name, text[opening.end() : len(text) if ends < 0 else ends]
    if not tagged and (line := _LINE.search(text)):
        yield line.start(), "", text[line.end() :]


def _value(part: str) -> Any:
    """Parse a text as JSON or as Python without running anything, or None if it is neither."""
    values: list[Any] = []
    position = 0
    try:
        while position < len(part) and len(values) < MAX_CALLS:
            value, position = _DECODER.raw_decode(part, position)
            values.append(value)
            position += len(part[position:]) - len(part[position:].lstrip(" \t\r\n,;"))
    except (ValueError, RecursionError):
        # What follows the calls can be prose.
        if values:
            return values
    if values:
        return values
    try:
        with warnings.catch_warnings():
            # About escapes in a text that nobody runs.
            warnings.simplefilter("ignore")
            return _python(ast.parse(part, mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _python(node: ast.expr) -> Any:
    """Convert literals, and calls with literal arguments by name, to objects. Calls nothing."""
    if isinstance(node, ast.List | ast.Tuple) and any(isinstance(each, ast.Call) for each in node.elts):
        return [_python(each) for each in node.elts[:MAX_CALLS]]
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("a call with arguments that have no name")
    return {"name": ast.unparse(node.func), "arguments": {each.arg: ast.literal_eval(each.value) for each in node.keywords}}


def _calls_in(value: Any, name: str, depth: int = 0) -> Iterator[WrittenCall]:
    """Yield the calls in a value. Where a call's tag names the tool, the value has the arguments."""
    if isinstance(value, list | tuple) and depth < 3:
        for each in value[:MAX_CALLS]:
            yield from _calls_in(each, name, depth + 1)
    if not isinstance(value, dict):
        return
    if name:
        yield from _call(name, value)
    elif isinstance(value.get("tool_calls"), list) and depth < 3:
        yield from _calls_in(value["tool_calls"], "", depth + 1)
    elif isinstance(value.get("function"), dict):
        yield from _calls_in(value["function"], "", 3)
    else:
        named = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
        arguments = next((key for key in _ARGUMENTS if key in value), None)
        if named is not None and arguments is not None:
            yield from _call(named, value[arguments])


def _call(name: str, arguments: Any) -> Iterator[WrittenCall]:
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) and arguments.strip() else arguments or {}
        # Also what Python writes in another way, such as tuples; infinite numbers have no JSON.
        plain = json.loads(json.dumps(arguments, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return
    is_definition = isinstance(plain, dict) and isinstance(plain.get("properties"), dict) and plain.get("type") == "object"
    if isinstance(plain, dict) and not is_definition:
        yield WrittenCall(name, plain)


T = TypeVar("T")

MAX_NAME = 64
CALL_CHARACTERS = 100
"""Characters to count for a call besides its arguments: for its id, its name, and its stay in the conversation."""
PIECE_SECONDS = 0.04
PIECES_AT_FULL_RATE = 250
"""After this many pieces, the interval doubles: the first ten seconds appear as the model writes them."""
MAX_PIECE = 4_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


class TextPieces:
    """Joins a response's text, which arrives token by token, into pieces. The first one goes out immediately."""

    def __init__(self, emit: Callable[[str], None], limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._throttle = LoopThrottle(self._pass_on, _piece_interval)
        self._characters = 0
        self._pending: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Add the next text."""
        self._characters += len(text)
        if self._characters > self._limit:
            raise too_long(self._limit)
        self._pending.append(text)
        self._size += len(text)
        self._throttle.request(immediately=self._size >= MAX_PIECE)

    def close(self) -> None:
        """Emit the pending text."""
        self._throttle.flush()

    def _pass_on(self) -> None:
        text = "".join(self._pending)
        self._pending, self._size = [], 0
        self._emit(text)


def _piece_interval(pieces: int) -> float:
    return PIECE_SECONDS * (1 if pieces <= PIECES_AT_FULL_RATE else 2)


async def within(limits: TurnLimits, response: Awaitable[T]) -> T:
    """Wait for a model response, as long as the limits allow."""
    limit = TimeLimit(asyncio.get_running_loop().time() + limits.answer_seconds)
    try:
        with limit:
            return await response
    except TimeoutError:
        if not limit.expired:
            raise
    raise AnswerLimitError(
        f"The model's answer did not end within {limits.answer_seconds:,.0f} s.",
        hint="The part that arrived is kept. Request less at a time, or give the model a smaller max_tokens.",
    )


def too_long(limit: int) -> AnswerLimitError:
    """Build the error for a response beyond the character limit."""
    return AnswerLimitError(
        f"The model's answer went on for more than {limit:,} characters.",
        hint="Give the model a smaller max_tokens, or ask for less at a time.",
    )


class CallNames:
    """Gives tool calls names and ids that every provider accepts in later requests."""

    def __init__(self, used: Iterable[str], wire_name: Callable[[str], str | None]) -> None:
        self._used = set(used)
        self._wire_name = wire_name

    def clean(self, message: AssistantMessage) -> AssistantMessage:
        """Clean the ids and names in a message's calls. Returns an already clean message as it is."""
        calls = [self._call(call) for call in message.tool_calls or ()] or None
        return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})

    def _call(self, call: AssistantToolCall) -> AssistantToolCall:
        unique = call.id
        while not unique or unique in self._used:
            unique = f"call_{len(self._used) + 1}" if not unique else f"{unique}_{len(self._used) + 1}"
        self._used.add(unique)
        if unique != call.id:
            call = call.model_copy(update={"id": unique})
        name = clean_name(call.function.name, self._wire_name)
        if name != call.function.name:
            call = call.model_copy(update={"function": call.function.model_copy(update={"name": name})})
        return call


def clean_name(name: str, wire_name: Callable[[str], str | None]) -> str:
    """Convert a name to one that every provider accepts: itself, the tool name it means, or its allowed characters."""
    return name if _NAME.fullmatch(name) else wire_name(name) or _INVALID.sub("_", name[:MAX_NAME]) or "unnamed"
