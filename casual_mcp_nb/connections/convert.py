"""Between the SDK's types and our nouns. Only this file and `_session.py` know what the SDK's types look like."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._log import logger
from casual_mcp_nb.connections._messages import UNREADABLE
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.nesting import MAX_DEPTH, is_too_deep
from casual_mcp_nb.types.schema import unusable_part
from casual_mcp_nb.types.tool import Restriction, ToolAnnotations, ToolSpec

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

CONNECTION_CLOSED = "Connection closed"
"""The SDK's message for a request whose connection ended. Its code is also used by servers for errors of their own."""

SESSION_FORGOTTEN = "Session terminated"
"""The SDK's message for an HTTP 404 within a session."""

UNPARSED = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How the SDK's message begins for an HTTP answer that is no message; what follows quotes the answer."""

CLOSED = "the connection was closed"

SMALL_CHARACTERS = 50_000
SMALL_VALUES = 1_000
"""Up to where a result is converted and masked on the loop."""

UNKNOWN_CONTENT_META = "casual_mcp_nb/unknown"
"""Key in a text block's `_meta` that marks it as the stand-in for a block of a type that nobody knows."""


def tool_from_mcp(tool: Tool, server: str = "") -> ToolSpec:
    """A tool as the SDK lists it, as a noun.

    Args:
        tool: The SDK's tool.
        server: Name of its server in the config.

    Raises:
        ValueError: It has no name, or a schema that is not of an object or not complete in itself.
    """
    if not isinstance(tool.name, str) or not tool.name:
        raise ValueError("it has no name")
    schema = tool.input_schema
    if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
        raise ValueError("its input schema is no schema of an object")
    problem = unusable_part(schema)
    if problem:
        raise ValueError(problem)
    hints = tool.annotations
    return ToolSpec(
        server=server,
        name=tool.name,
        description=tool.description or "",
        input_schema=schema,
        annotations=ToolAnnotations(
            title=hints.title,
            read_only=hints.read_only_hint,
            destructive=hints.destructive_hint,
            idempotent=hints.idempotent_hint,
            open_world=hints.open_world_hint,
        )
        if hints
        else None,
        output_schema=tool.output_schema,
        title=tool.title or (hints.title if hints else None),
        restriction=_restriction(tool),
    )


def _restriction(tool: Tool) -> Restriction | None:
    """Why no model is offered a tool: the visibility of MCP Apps, or tasks of the protocol's revision 2025-11-25."""
    interface = (tool.meta or {}).get("ui")
    visibility = interface.get("visibility") if isinstance(interface, dict) else None
    if isinstance(visibility, list) and "model" not in visibility:
        return "app only"
    return "task only" if tool.execution and tool.execution.task_support == "required" else None


def tools_from_mcp(tools: Iterable[Tool], server: str = "") -> list[ToolSpec]:
    """A listing as nouns, in its order. A tool that cannot be used, or comes a second time, is left out with a logged warning.

    Args:
        tools: The SDK's tools.
        server: Name of their server in the config.
    """
    specs: dict[str, ToolSpec] = {}
    for tool in tools:
        try:
            spec = tool_from_mcp(tool, server)
        except ValueError as error:
            warn_left_out(server, str(tool.name), str(error))
            continue
        if spec.name in specs:
            warn_left_out(server, spec.name, "it is listed twice")
        specs.setdefault(spec.name, spec)
    return list(specs.values())


def warn_left_out(server: str, tool: str, reason: str) -> None:
    """Log that a tool of a listing is not offered, and why."""
    logger.warning("Tool %s of server %s is left out: %s.", shown(tool), shown(server), reason)


def result_from_mcp(result: CallToolResult) -> ToolResult:
    """A call's result as a noun: parts in the server's order, binary data as bytes with a short note, nothing dropped."""
    content = tuple(_part(block) for block in result.content or ())
    structured = result.structured_content
    if is_too_deep(structured):
        structured = None
        content += (ContentPart("unknown", f"structured content nested more than {MAX_DEPTH} levels deep is left out"),)
    return ToolResult(content, structured, bool(result.is_error))


def has_structured(result: CallToolResult) -> bool:
    """Whether a result has structured content, be it null."""
    return result.structured_content is not None or "structured_content" in result.model_fields_set


def is_small(result: CallToolResult) -> bool:
    """Whether a result is gone through in a moment."""
    holders = [getattr(block, "resource", block) for block in result.content or ()]
    size = sum(len(getattr(holder, name, None) or "") for holder in holders for name in ("text", "data", "blob"))
    return size < SMALL_CHARACTERS and has_few_values(result.structured_content)


def has_few_values(value: Any) -> bool:
    """Whether a JSON value is gone through in a moment."""
    waiting, left = [value], SMALL_VALUES
    while waiting:
        value = waiting.pop()
        left -= len(value) // 100 + 1 if isinstance(value, str) else 1
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if len(items) > left:
            return False
        waiting.extend(items)
    return left >= 0


def _part(block: Any) -> ContentPart:
    match block.type:
        case "text":
            unknown = UNKNOWN_CONTENT_META in (block.meta or {})
            return ContentPart("unknown" if unknown else "text", block.text)
        case "image" | "audio":
            return _binary(block.type, block.data, block.mime_type)
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            size = f"{block.size:,} bytes" if block.size is not None else ""
            note = ", ".join(part for part in (block.title or block.name, block.mime_type, size) if part)
            return ContentPart("link", note, block.mime_type, uri=str(block.uri))
        case kind:
            return ContentPart("unknown", f"content of the unknown type {shown(str(kind))}")


def _resource(resource: Any) -> ContentPart:
    uri = str(resource.uri)
    if hasattr(resource, "blob"):
        return _binary("resource", resource.blob, resource.mime_type, uri)
    return ContentPart("resource", resource.text, resource.mime_type, uri=uri)


def _binary(kind: Any, encoded: str, mime_type: str | None, uri: str | None = None) -> ContentPart:
    name = mime_type or "application/octet-stream"
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return ContentPart(kind, f"{name}, not readable: its data is not base64", mime_type, uri=uri)
    return ContentPart(kind, f"{name}, {len(data):,} bytes", mime_type, data, uri)


def error_text(exc: BaseException, mask: Callable[[str], str] = str) -> str:
    """The root cause of a failure in words for a person: no repr, no address with credentials, no input of a validation.

    Args:
        exc: The failure.
        mask: Hides secrets in a text, before that is cut.
    """
    exc = _root(exc)
    module, name = type(exc).__module__.partition(".")[0], type(exc).__name__
    if module.startswith("httpx"):
        return _http_text(exc, name, mask)
    if name == "ValidationError" and module.startswith("pydantic"):
        return f"an answer that cannot be read: {_first_problem(exc)}"
    if name == "MCPError" and str(exc) == CONNECTION_CLOSED:
        return CLOSED
    if name == "MCPError" and str(exc).startswith(UNPARSED):
        return UNREADABLE
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return _with_our_versions(_first_line(mask(str(exc)))) or name


def is_answer(exc: BaseException) -> bool:
    """Whether the server answered, though with an error or with something unreadable; otherwise the session is broken."""
    from mcp import MCPError
    from pydantic import ValidationError

    exc = _root(exc)
    if isinstance(exc, MCPError):
        return str(exc) not in (CONNECTION_CLOSED, SESSION_FORGOTTEN)
    return isinstance(exc, ValidationError)


def is_forgotten(exc: BaseException, status: int | None) -> bool:
    """Whether an HTTP server refused a request because it no longer knows the session: it cannot have acted on it.

    Args:
        exc: What the request failed with.
        status: The last HTTP status of 400 or more since it was sent.
    """
    from mcp import MCPError
    from mcp_types import INVALID_REQUEST

    exc = _root(exc)
    return isinstance(exc, MCPError) and status == 404 and exc.error.code == INVALID_REQUEST


def says_nothing(reason: str) -> bool:
    """Whether this is only what the SDK puts in the place of an HTTP error."""
    return reason in (CLOSED, SESSION_FORGOTTEN, "Server returned an error response", "Not Found")


def status_text(status: int, said: str = "") -> str:
    """What an HTTP status means for a person.

    Args:
        status: The status.
        said: The start of the answer's body, with secrets masked; a page of HTML says nothing.
    """
    line = _first_line(_message_of(said))
    words = {401: "the credentials were not accepted", 403: "access was refused"}.get(status, "")
    return ": ".join(filter(None, (f"HTTP {status}", words, shown(line, 200) if line else "")))


def _message_of(said: str) -> str:
    """What the body of an HTTP error says: a plain text, or the message in an object of JSON."""
    if said.lstrip().startswith("<"):
        return ""
    try:
        value = json.loads(said)
    except ValueError:
        return "" if said.lstrip().startswith(("{", "[")) else said
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _root(exc: BaseException) -> BaseException:
    while True:
        if isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        elif isinstance(exc, RuntimeError) and isinstance(exc.__cause__, Exception):
            # fastmcp wraps what happened in RuntimeErrors that say less.
            exc = exc.__cause__
        else:
            return exc


def _with_our_versions(text: str) -> str:
    if not text.startswith("Unsupported protocol version"):
        return text
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

    return f"{text}; this client speaks {KNOWN_PROTOCOL_VERSIONS[0]} to {KNOWN_PROTOCOL_VERSIONS[-1]}"


def _http_text(exc: BaseException, name: str, mask: Callable[[str], str]) -> str:
    response = getattr(exc, "response", None) if name == "HTTPStatusError" else None
    if response is not None:
        return status_text(response.status_code)
    if name in ("ConnectError", "ConnectTimeout"):
        reason = _first_line(mask(str(exc)))
        return f"it cannot be reached ({reason})" if reason else "it cannot be reached"
    if name.endswith("Timeout"):
        return "no answer in time"
    return _first_line(mask(str(exc))) or "the HTTP connection failed"


def _first_problem(exc: Any) -> str:
    problems: Sequence[Any] = exc.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(str(part) for part in problems[0]["loc"]) if problems else ""
    message = problems[0]["msg"] if problems else "invalid"
    return f"{where}: {message}" if where else message


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:1000]
