"""An interaction in a cassette: a request with its answer, as plain values and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from casual_mcp_nb import errors
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.mcp import OVER, TaskReport
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.cassettes import Kind, Plain
from casual_mcp_nb.cassettes.exchanges import EXCHANGES
from casual_mcp_nb.conversation.codec import dump_value, load_value, read_message
from casual_mcp_nb.conversation.event import HostedCall, ToolProgress, TurnStarted
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import CasualMcpError, LimitError, ProviderError, ServerError

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage


@dataclass(eq=False)
class Interaction:
    """A request and its answer or error, as plain values.

    `events` came before the answer: chunks of text (their length, or the text itself), progress,
    log lines. `pace` is when each happened, and then the answer, in milliseconds since the request.
    """

    kind: Kind
    request: dict[str, Plain]
    response: Plain = None
    error: dict[str, Plain] | None = None
    events: list[Plain] = field(default_factory=list)
    pace: list[int] = field(default_factory=list)

    def answer(self, request: Mapping[str, Plain] | None = None) -> Any:
        """Convert the answer to a value: a `ModelResponse`, a `ToolResult`, what a method of a
        server's resources returns.

        Raises the error if the request was answered with one.

        Args:
            request: The one that it answers now, in which secrets are not masked.
        """
        if self.error is not None:
            raise read_error(self.error, ProviderError if self.kind == "model" else ServerError)
        if request is None:
            request = self.request
        return _READERS[self.kind](self.response, request)


def plain_message(message: ChatMessage) -> dict[str, Plain]:
    """Convert a message to a cassette's form in requests: without ids, and with only type and size
    for images.
    """
    plain: dict[str, Plain] = {"role": message.role}
    if message.role == "tool":
        plain["tool"] = message.name
    if message.content not in (None, ""):
        content: Any = message.content
        if not isinstance(content, str):
            content = list(map(_plain_part, content))
        plain["content"] = content
    images = getattr(message, "images", ())
    if images:
        plain["images"] = [_plain_part(image)["image"] for image in images]
    if message.role == "assistant" and message.tool_calls:
        plain["calls"] = list(map(_plain_call, message.tool_calls))
    return plain


def _plain_part(part: Any) -> dict[str, Plain]:
    if part.type == "text":
        return {"text": part.text}
    source = part.source if isinstance(part.source, str) else str(part.source.get("data", ""))
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    return {"image": f"{part.media_type} sha256:{digest}"}


def _plain_call(call: AssistantToolCall) -> dict[str, Plain]:
    text = call.function.arguments
    plain: dict[str, Plain] = {"tool": call.function.name}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        if text == _spaced(arguments):
            return {**plain, "arguments": arguments}
        if text == _compact(arguments):
            return {**plain, "arguments": arguments, "compact": True}
    return {**plain, "text": text}


def _spaced(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compact(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def arguments_text(call: Mapping[str, Plain]) -> str:
    """Format a recorded call's arguments as the model wrote them."""
    if "arguments" not in call:
        return str(call["text"])
    if call.get("compact"):
        return _compact(call["arguments"])
    return _spaced(call["arguments"])


def model_request(
    model: str,
    messages: Iterable[ChatMessage],
    tools: Iterable[Mapping[str, Plain]],
    found_tools: Iterable[Mapping[str, Plain]],
) -> dict[str, Plain]:
    """Convert a model request to plain values. The provider adds the `found_tools` itself."""
    request: dict[str, Plain] = {
        "model": model,
        "messages": list(map(plain_message, messages)),
        "tools": list(tools),
    }
    if found := list(found_tools):
        request["found"] = found
    return request


def model_response(response: ModelResponse) -> dict[str, Plain]:
    """Convert a model's answer to plain values, without the parts that only its provider can
    read.
    """
    plain: dict[str, Plain] = {"message": plain_message(response.message)}
    if response.message.content == "":
        plain["message"]["content"] = ""
    plain_calls = plain["message"].get("calls", ())
    for plain_call, call in zip(plain_calls, response.message.tool_calls or (), strict=True):
        plain_call["id"] = call.id
    if response.usage is not None:
        plain["usage"] = dump_value(response.usage)
    if response.finish_reason is not None:
        plain["finish_reason"] = response.finish_reason
    if response.hosted_calls:
        plain["hosted_calls"] = list(map(dump_value, response.hosted_calls))
    return plain


def checked_event(event: Plain) -> Plain:
    """Check that an event is one that a cassette can have, or raise a ValueError."""
    if isinstance(event, int | str) and not isinstance(event, bool):
        return event
    if not isinstance(event, Mapping):
        raise ValueError("Not an event.")
    if "progress" in event:
        load_value(ToolProgress, {"call_id": "", **event})
    elif "tools" in event:
        read_tools("", event["tools"])
    return dict(event)


def plain_error(error: CasualMcpError) -> dict[str, Plain]:
    """Convert an error to plain values."""
    plain: dict[str, Plain] = {"kind": type(error).__name__, "message": str(error)}
    usual = read_error(plain, type(error))
    for name in _ERROR_FIELDS:
        value = getattr(error, name, None)
        # A delay of 0 and an empty reason differ from none.
        if isinstance(value, str | int | float | dict) and value != getattr(usual, name, None):
            plain[name] = value
    return plain


_SHARED_FIELDS = ("server", "tool", "retryable")
_ERROR_FIELDS = (
    *_SHARED_FIELDS,
    "client",
    "model",
    "status",
    "reason",
    "retry_after",
    "partial",
    "request_id",
    "headers",
)


def read_error(plain: Mapping[str, Plain], default: type[CasualMcpError]) -> CasualMcpError:
    """Convert plain values to an error.

    One that is not about servers, models or limits gets the default kind.
    """
    kind: type[CasualMcpError] = ServerError
    for one in (getattr(errors, str(plain["kind"]), None), default):
        if isinstance(one, type) and issubclass(one, ServerError | ProviderError | LimitError):
            kind = one
            break
    error = kind(str(plain["message"]))
    for name in _ERROR_FIELDS if issubclass(kind, ProviderError) else _SHARED_FIELDS:
        value = plain.get(name)
        allowed: Any = dict if name == "headers" else str | int | float
        if isinstance(value, allowed):
            setattr(error, name, value)
    return error


def plain_result(result: ToolResult, *, with_meta: bool = False) -> dict[str, Plain]:
    """Convert a call's result to plain values, with its `_meta` if an app may read that.

    A payload stays in the kernel.
    """
    without = ["payload", "previews", "rows", "returned", "whole"]
    if not with_meta:
        without.append("meta")
    return {"content": [], **dump_value(result, without)}


def plain_report(report: TaskReport) -> dict[str, Plain]:
    """Convert a report on a task to plain values, with the whole result if the text has only its
    head.
    """
    plain = report._asdict()
    result = plain.pop("result")
    if result is not None:
        plain["result"] = plain_result(result)
    return plain


def _read_response(plain: Any, request: Mapping[str, Plain]) -> ModelResponse:
    if plain["message"]["role"] != "assistant":
        raise ValueError("Not the message of a model.")
    usage, reason = plain.get("usage"), plain.get("finish_reason")
    return ModelResponse(
        _assistant(plain["message"]),
        None if usage is None else load_value(TokenUsage, usage),
        None if reason is None else str(reason),
        tuple(load_value(HostedCall, call) for call in plain.get("hosted_calls", ())),
    )


def _assistant(plain: Mapping[str, Plain]) -> AssistantMessage:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    calls = []
    for call in plain.get("calls", ()):
        function = AssistantToolCallFunction(name=call["tool"], arguments=arguments_text(call))
        # Where it has no id, the engine gives it one that is unique in the conversation.
        calls.append(AssistantToolCall(id=str(call.get("id", "")), function=function))
    return AssistantMessage(content=plain.get("content"), tool_calls=calls or None)


_RESULT_FIELDS = ("content", "structured", "is_error", "mocked", "task", "meta")


def _read_result(plain: Any, request: Mapping[str, Plain]) -> ToolResult:
    return load_value(ToolResult, {name: plain[name] for name in _RESULT_FIELDS if name in plain})


def _read_verdict(plain: Any, request: Mapping[str, Plain]) -> tuple[bool | str, str, bool]:
    verdict, scope = plain["verdict"], plain.get("scope", "call")
    if not isinstance(verdict, bool | str) or scope not in ("call", "tool", "server"):
        raise ValueError("Not an answer.")
    return verdict, scope, bool(plain.get("answered", True))


def _read_turn(plain: Any, request: Mapping[str, Plain]) -> list[ChatMessage]:
    return list(map(read_message, request["messages"]))


def _read_nearest(plain: Any, request: Mapping[str, Plain]) -> dict[str, float]:
    return {str(name): min(1.0, max(0.0, float(near))) for name, near in plain.items()}


def _read_listed(plain: Any, request: Mapping[str, Plain]) -> tuple[ToolSpec, ...]:
    return read_tools(str(request["server"]), plain)


def _read_tasks(plain: Any, request: Mapping[str, Plain]) -> tuple[TaskReport, ...]:
    tasks = []
    for each in plain or ():
        if each["status"] not in OVER:
            raise ValueError("Not the end of a task.")
        report = TaskReport(int(each["number"]), each["status"], str(each["text"]))
        # Earlier cassettes have only the head of a large result.
        if "result" in each:
            result = _read_result(each["result"], request)
            report = report._replace(handle=str(each["handle"]), result=result)
        tasks.append(report)
    return tuple(tasks)


def _read_start(plain: Any, request: Mapping[str, Plain]) -> dict[str, Any]:
    clock = datetime.fromisoformat(plain["clock"])
    if clock.tzinfo is None or not isinstance(plain["seed"], int):
        raise ValueError("Not the start of a program.")
    return {"clock": clock, "seed": plain["seed"]}


_READERS: Mapping[Kind, Callable[[Any, Mapping[str, Plain]], Any]] = {
    "turn": _read_turn,
    "model": _read_response,
    "call": _read_result,
    "approval": _read_verdict,
    "nearest": _read_nearest,
    "program": _read_start,
    "listed": _read_listed,
    "tasks": _read_tasks,
    **{exchange.kind: exchange.read for exchange in EXCHANGES.values()},
}


def conversation_message(plain: Mapping[str, Plain]) -> ChatMessage:
    """Convert a message in a model request, without an id. An image becomes a note."""
    from casual_llm.messages import ToolResultMessage, UserMessage

    if plain["role"] == "assistant":
        return _assistant(plain)
    text = plain.get("content", "")
    if not isinstance(text, str):
        text = "\n".join(str(part.get("text", part.get("image", ""))) for part in text)
    if plain["role"] == "tool":
        return ToolResultMessage(name=str(plain["tool"]), tool_call_id="", content=text)
    return UserMessage(content=text)


def checked_message(plain: Any) -> dict[str, Plain]:
    """Check that a request's message is valid, or raise any error."""
    if plain["role"] not in ("system", "user", "assistant", "tool"):
        raise ValueError("Not a message.")
    if plain["role"] != "system":
        conversation_message(plain)
    return dict(plain)


def checked_turn(request: dict[str, Plain]) -> dict[str, Plain]:
    """Check that a turn's request is valid, or raise a ValueError."""
    kinds: dict[str, Any] = {
        "after": int,
        "recorded": int,
        "incomplete": bool,
        "selection": Mapping,
        "options": Mapping,
        "servers": list,
        "model": str,
        "system": str,
        "tool_set": str,
    }
    for name, kind in kinds.items():
        if name in request and not isinstance(request[name], kind):
            raise ValueError("Not a turn.")
    return request


def turn_request(started: TurnStarted, system: str | None = None) -> dict[str, Plain]:
    """Convert the person's request to plain values."""
    messages = [message.model_dump(mode="json", exclude_none=True) for message in started.messages]
    request: dict[str, Plain] = {"messages": messages, "model": started.model}
    if started.tool_set not in (None, "custom"):
        request["tool_set"] = started.tool_set
    if system is not None:
        request["system"] = system
    return request


def progress_event(progress: float, total: float | None, text: str | None) -> dict[str, Plain]:
    """Convert a progress report to a cassette event."""
    fields = {"progress": progress, "total": total, "text": text}
    return drop_none(fields)


def plain_tool(tool: ToolSpec) -> dict[str, Plain]:
    """Convert a tool to plain values, without its server."""
    return dump_value(tool, ("server", "wire_name"))


def read_tools(server: str, plain: Any) -> tuple[ToolSpec, ...]:
    """Convert plain values to a server's tools."""
    return tuple(
        load_value(ToolSpec, {**fields, "server": server, "wire_name": ""}) for fields in plain
    )


def plain_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Plain]]:
    """Convert a server's tools to plain values."""
    return list(map(plain_tool, tools))
