"""Describe failures in plain words, with secrets and control characters hidden, and build the
errors that report them.

Nothing here shows a repr, a URL with credentials or a secret: every text from a server is redacted
before it is cut.

Messages that are too large or unreadable fail only the calls they belong to. The SDK's reader takes
quadratic time in a message's size, and its parser holds the interpreter for about a microsecond per
value, so both are limited before either sees a byte. A dropped message is replaced by an error
reply: its call ends immediately, and the connection continues.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.limits import MAX_VALUES, ValueCount
from casual_mcp_nb.base.mcp import Resource, ServerPrompt
from casual_mcp_nb.base.secret import MASK, Secrets, mask_of, random_parts, redacted
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import (
    ClosedError,
    ConnectError,
    ResourceError,
    ToolCallError,
    ToolTimeoutError,
    shown,
)
from casual_mcp_nb.servers._envelopes import repaired

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_SSE_MESSAGE_BYTES = 1024 * 1024 - 1024
"""The same for the transport `sse`, whose reader in the SDK ends the session at 1 MB."""
MAX_SURROGATES = 300_000
"""How many escaped surrogates a message may have: 150,000 emoji, if a server escapes them."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some servers on Windows begin their output with it, and some event streams do.

It does not belong to a message.
"""

ENDLESS_FACTOR = 4
"""An oversized message is read and dropped up to this many times the limit.

Beyond that, it counts as endless.
"""
STALLED_SECONDS = 1.0
"""A message that has been incomplete for longer than this when its call times out counts as
endless.
"""

UNREADABLE = "its reply cannot be read"

_COUNTED_FROM = 256 * 1024

_END_LENGTH = 512
# Our request ids are numbers. Most servers put the id first, the TypeScript SDK last.
_ID_FIRST = re.compile(
    r'\s*(?:data:\s*)?\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)\b'
)
_ID_LAST = re.compile(r'"id"\s*:\s*"?(\d+)"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_HALF_A_PAIR = re.compile(
    rb"\\u[dD](?:[89abAB]HH(?!\\u[dD][c-fC-F])|[c-fC-F]HH(?<!\\u[dD][89abAB]HH\\u[dD][c-fC-F]HH))".replace(
        b"HH", rb"[\da-fA-F]{2}"
    )
)
# In order: an escaped backslash, a whole pair, and half a pair.
_SURROGATES = re.compile(
    rb"\\(?:\\|u[dD][89abAB]HH\\u[dD][c-fC-F]HH|(u[dD][89a-fA-F]HH))".replace(
        b"HH", rb"[\da-fA-F]{2}"
    )
)


def id_of(start: str, end: str) -> int | None:
    """Find a JSON-RPC message's id at its start or end, or None if neither contains one."""
    match = _ID_FIRST.match(start) or _ID_LAST.search(end)
    if match:
        return int(match[1])
    return None


def input_of(error: ValidationError) -> str:
    """Find the input on which the parser failed."""
    return next(map(str, _inputs(error)), "")


def answer_to_unreadable(error: ValidationError) -> dict[str, Any] | None:
    """Build the error reply that replaces an unreadable message, or None if its request is
    unknown.
    """
    ids = map(_id_in, _inputs(error))
    request_id = next((each for each in ids if each is not None), None)
    if request_id is None:
        return None
    return reply(request_id, UNREADABLE)


def _inputs(error: ValidationError) -> list[Any]:
    return [problem["input"] for problem in error.errors(include_url=False, include_context=False)]


def _id_in(given: Any) -> int | None:
    if isinstance(given, str):
        return id_of(given[:_END_LENGTH], given[-_END_LENGTH:])
    # JSON that is not a message causes an error per message kind, with the value as input.
    request_id = given.get("id") if isinstance(given, dict) and "method" not in given else None
    if isinstance(request_id, int):
        return request_id
    return None


def reply(request_id: int, message: str) -> dict[str, Any]:
    """Build the error reply to a request.

    See https://www.jsonrpc.org/specification#error_object.
    """
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32603, "message": message}}


def readable(message: bytes) -> bytes | None:
    """Replace bytes that are not UTF-8, and lone surrogates, with U+FFFD.

    A single one would make the SDK's parser refuse the whole message, such as a list of tools. None
    if there are too many.
    """
    if not message.isascii():
        message = message.decode("utf-8", "replace").encode()
    surrogates = message.count(b"\\ud") + message.count(b"\\uD")
    if surrogates > MAX_SURROGATES:
        return None
    if surrogates and _HALF_A_PAIR.search(message):
        message = _SURROGATES.sub(lambda match: b"\\ufffd" if match[1] else match[0], message)
    return message


class LineLimit:
    """Forwards lines of bytes repaired by `readable`.

    Lines above a limit are dropped, and answered when they end.

    Args:
        whole: Whether all bytes are one message, regardless of line breaks.

    Attributes:
        endless: Whether a line is so long that it counts as endless.
        on_endless: Called once with the reason when that happens.
    """

    def __init__(
        self, limit: int, prefix: bytes = b"", whole: bool = False, request_id: int | None = None
    ) -> None:
        self.on_endless: Callable[[str], None] = ignore
        self._limit = limit
        self._prefix = prefix
        self.whole = whole
        self._request_id = request_id
        self._parts: list[bytes] = []
        self._size = 0
        self._began = 0.0
        self.endless = False
        self._head = b""
        self._tail = b""
        self._count = ValueCount()

    @property
    def stalled(self) -> str | None:
        """The problem with a line that should have ended by now, if there is one."""
        if not self._size or (
            self._size <= self._limit and time.monotonic() - self._began < STALLED_SECONDS
        ):
            return None
        return f"it began a message and did not end it ({_amount(self._size)} without a line break)"

    def feed(self, chunk: bytes, final: bool = False) -> bytes:
        """Add bytes, and return the complete lines."""
        out: list[bytes] = []
        lines = [chunk] if self.whole else chunk.split(b"\n")
        for line in lines[:-1]:
            self._add(line)
            out += [self._finish(), b"\n"]
        self._add(lines[-1])
        if final:
            out.append(self._finish())
        return b"".join(out)

    def _add(self, part: bytes) -> None:
        if part and not self._size:
            self._began = time.monotonic()
        counted = self._size > _COUNTED_FROM
        self._size += len(part)
        if self._size > self._limit * ENDLESS_FACTOR and not self.endless:
            self.endless = True
            self.on_endless(f"it sent a message without an end ({_amount(self._size)} so far)")
        if self._fits:
            self._parts.append(part)
            # Small messages, which are nearly all, are not counted.
            if counted:
                self._count.feed(part)
            elif self._size > _COUNTED_FROM:
                for piece in self._parts:
                    self._count.feed(piece)
            if self._fits:
                return
            part = b""
        if self._parts:
            start = b"".join(self._parts)
            self._head, self._tail, self._parts = start[:_END_LENGTH], start[-_END_LENGTH:], []
        self._head = self._head or part[:_END_LENGTH]
        self._tail = (self._tail + part[-_END_LENGTH:])[-_END_LENGTH:]

    @property
    def _fits(self) -> bool:
        return self._size <= self._limit and self._count.values <= MAX_VALUES

    def _finish(self) -> bytes:
        line = self._whole_line() if self._fits else self._answer(self._reason())
        self._parts, self._size, self._head, self._tail, self._count = [], 0, b"", b"", ValueCount()
        return line

    def _whole_line(self) -> bytes:
        message = b"".join(self._parts).removeprefix(BYTE_ORDER_MARK)
        line = readable(message)
        if line is None:
            self._head, self._tail = message[:_END_LENGTH], message[-_END_LENGTH:]
            return self._answer(UNREADABLE)
        return repaired(line)

    def _reason(self) -> str:
        if self._size > self._limit:
            return (
                f"its reply is too large: {self._size / 2**20:.1f} MB, and at most"
                f" {self._limit / 2**20:.0f} MB are accepted"
            )
        return f"its reply is too large: over {MAX_VALUES:,} values in one message"

    def _answer(self, reason: str) -> bytes:
        request_id = self._request_id
        if request_id is None:
            request_id = id_of(
                self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
            )
        if request_id is None:
            return b""
        return self._prefix + json.dumps(reply(request_id, reason)).encode()


def _amount(size: int) -> str:
    if size >= 2**20:
        return f"{size / 2**20:.1f} MB"
    return f"{size:,} bytes"


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_STRUCTURE = frozenset(
    {"$anchor", "$dynamicRef", "$id", "$ref", "$schema", "format", "pattern", "required", "type"}
)
"""JSON Schema keywords whose values must not change."""


class Redactor:
    """Masks secrets in every text that a server sends.

    `base.secret` decides which can be masked.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = Secrets()
        self._mask = mask_of(())
        self.longest = 0
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these secrets too from now on."""
        self._secrets = Secrets({*self._secrets, *secrets})
        self._mask = mask_of(self._secrets)
        self.longest = self._mask.longest

    def __call__(self, text: str) -> str:
        """Redact a text."""
        return self._mask(text)

    def start(self, text: str, length: int, *, cut: bool) -> str:
        """Redact a text's beginning.

        If it is cut, its end, which may be half a secret, is dropped.
        """
        result = self(text)
        return result[: max(0, len(result) - self.longest) if cut else None][:length]

    def value(self, value: Any) -> Any:
        """Redact a JSON value, including keys and secret numbers."""
        text = self._json(value)
        result = self(text)
        if result == text:
            return value
        try:
            return json.loads(result)
        except ValueError:
            # The secret was in a number, or partly in the JSON's punctuation.
            return self._walk(value)

    def schema(self, schema: Any) -> Any:
        """Redact a JSON schema: all strings in it except names and structural keywords."""
        if self._is_in(schema):
            return self._walk_schema(schema)
        return schema

    def result(self, result: ToolResult) -> ToolResult:
        """Redact a call's result: text, URLs, structured content, and bytes that are text."""
        if not self._mask:
            return result
        content, structured = tuple(map(self._part, result.content)), self.value(result.structured)
        return replace(result, content=content, structured=structured, meta=self.value(result.meta))

    def tool(self, tool: ToolSpec) -> ToolSpec:
        """Redact a tool, except its name and its parameters' names, which are needed to call it."""
        if not self._mask or not self._is_in([tool.as_listed]):
            return tool
        hints = tool.annotations
        return replace(
            tool,
            description=self(tool.description),
            title=self(tool.title or "") or None,
            annotations=replace(hints, title=self(hints.title or "") or None) if hints else None,
            input_schema=self.schema(tool.input_schema),
            output_schema=self.schema(tool.output_schema),
        )

    def resource(self, resource: Resource) -> Resource:
        """Redact a resource, with its URI."""
        if not self._is_in(asdict(resource)):
            return resource
        return replace(
            resource,
            uri=self(resource.uri),
            name=self(resource.name),
            title=self(resource.title),
            description=self(resource.description),
            mime_type=self(resource.mime_type or "") or None,
        )

    def prompt(self, prompt: ServerPrompt) -> ServerPrompt:
        """Redact a prompt, except its name and its arguments' names, which are needed to get it."""
        arguments = tuple(
            replace(argument, description=self(argument.description))
            for argument in prompt.arguments
        )
        return replace(
            prompt,
            title=self(prompt.title),
            description=self(prompt.description),
            arguments=arguments,
        )

    def _is_in(self, value: Any) -> bool:
        return self._mask.is_in(self._json(value))

    def _json(self, value: Any) -> str:
        # Searching this is much faster than a walk in Python; the mask knows secrets as they are
        # written in it.
        if self._mask and value is not None:
            return json.dumps(value, ensure_ascii=False, default=str)
        return ""

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(key)): self._walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item) for item in value]
        if isinstance(value, int | float) and str(value) in self._mask.plain:
            return MASK
        return value

    def _walk_schema(self, value: Any, keyword: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: self._walk_schema(item, key) for key, item in value.items()}
        if keyword in _STRUCTURE:
            return value
        if isinstance(value, list | tuple):
            return [self._walk_schema(item) for item in value]
        return self._walk(value)

    def _part(self, part: ContentPart) -> ContentPart:
        return replace(
            part,
            text=self(part.text),
            mime_type=part.mime_type and self(part.mime_type),
            uri=part.uri and self(part.uri),
            data=part.data and self._bytes(part.data),
        )

    def _bytes(self, data: bytes) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        return self(text).encode()


def clean(text: str) -> str:
    """Remove terminal escapes, and replace each control, bidirectional and zero-width character
    with U+FFFD.
    """
    return _INVISIBLE.sub("�", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def secrets_of(config: ServerConfig | None) -> Secrets:
    """Collect every string in a server's config that must not be shown."""
    if config is not None:
        return config.secrets()
    return Secrets()


def shown_address(config: ServerConfig | None, secrets: Iterable[str] = ()) -> str:
    """Format a server's address: its command, or its URL without user, query, and path segments
    that look like tokens.
    """
    if config is None:
        return "in this process"
    hidden = secrets_of(config).union(secrets)
    if config.url:
        parts = urlsplit(config.url)
        host = parts.netloc.rpartition("@")[2]
        path = redacted(parts.path, [*random_parts(parts.path), *hidden])
        return clean(f"{parts.scheme}://{redacted(host, hidden)}{path}")
    words = [config.command] if config.command else ["bundled", config.bundled or ""]
    return clean(redacted(shlex.join([*words, *config.args]), hidden))


CONNECTION_CLOSED = "Connection closed"
"""The SDK's message for a request whose connection ended.

Servers use its code for their own errors too.
"""

SESSION_FORGOTTEN = "Session terminated"
"""The SDK's message for an HTTP 404 within a session."""

UNPARSED = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How the SDK's message begins for an HTTP response that is not a message.

The rest quotes the response.
"""

CLOSED = "the connection was closed"
ENDED = "it ended unexpectedly"


def error_text(exc: BaseException, redact: Callable[[str], str] = str) -> str:
    """Describe a failure's root cause in one line, without the input that a validation error
    quotes.
    """
    exc = _root(exc)
    module, name = type(exc).__module__.partition(".")[0], type(exc).__name__
    if module.startswith("httpx"):
        response = getattr(exc, "response", None) if name == "HTTPStatusError" else None
        if response is not None:
            return _redirect_text(response, redact) or status_text(response.status_code)
        if name in ("ConnectError", "ConnectTimeout"):
            reason = _first_line(redact(str(exc)))
            if reason:
                return f"it cannot be reached ({reason})"
            return "it cannot be reached"
        if name.endswith("Timeout"):
            return "no answer in time"
        return _first_line(redact(str(exc))) or "the HTTP connection failed"
    if name == "ValidationError" and module.startswith("pydantic"):
        return f"an answer that cannot be read: {first_problem(exc)}"
    if name == "MCPError" and str(exc) == CONNECTION_CLOSED:
        return CLOSED
    if name == "MCPError" and (named := _named_error(exc, redact)):
        return named
    if name == "MCPError" and str(exc).startswith(UNPARSED):
        return UNREADABLE
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    text = _first_line(redact(str(exc)))
    if not text.startswith("Unsupported protocol version"):
        return text or name
    from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

    return (
        f"{text}. This client supports {KNOWN_PROTOCOL_VERSIONS[0]} to"
        f" {KNOWN_PROTOCOL_VERSIONS[-1]}"
    )


def _redirect_text(response: Any, redact: Callable[[str], str]) -> str:
    """Name the address to which a response redirects, without credentials and query.

    Empty if it does not.
    """
    if response.next_request is None:
        return ""
    address = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    text = (
        f"HTTP {response.status_code}: it redirects to {shown(redact(str(address)))}, which is not"
        " followed"
    )
    return f"{text}. Use that address if it is the intended server"


_REMEDIES = {
    -32020: (
        "HeaderMismatch",
        (
            "A proxy on the way may change the headers. Reconnect the server, which lists its tools"
            " again."
        ),
    ),
    -32021: (
        "MissingRequiredClientCapability",
        "The server needs what this client does not offer it",
    ),
    -32022: ("UnsupportedProtocolVersion", ""),
}
"""The errors that MCP 2026-07-28 defines, by code: their names in the specification, and the
remedies.
"""
_CAPABILITIES = {
    "sampling": "servers.NAME.sampling: true",
    "roots": "servers.NAME.roots: [folders]",
}
_MAX_LISTED = 10


def _named_error(exc: Any, redact: Callable[[str], str]) -> str:
    """Describe an error of the protocol by its name, with what to do about it.

    Empty for another one.
    """
    code, data = exc.error.code, exc.error.data if isinstance(exc.error.data, dict) else {}
    if code not in _REMEDIES:
        return ""
    name, remedy = _REMEDIES[code]
    if code == -32021:
        required = data.get("requiredCapabilities")
        needed = (
            [redact(str(each))[:100] for each in list(required)[:_MAX_LISTED]]
            if isinstance(required, dict)
            else []
        )
        settings = [_CAPABILITIES[each] for each in needed if each in _CAPABILITIES]
        remedy += f": {', '.join(needed)}." if needed else "."
        remedy += f" Set {' and '.join(settings)}, with `protocol: legacy`." if settings else ""
    elif code == -32022:
        versions = data.get("supported")
        listed = (
            [redact(str(each))[:40] for each in versions[:_MAX_LISTED]]
            if isinstance(versions, list)
            else []
        )
        remedy = _remedy_of_versions(listed)
    text = _first_line(redact(str(exc))).rstrip(".")
    if text:
        return f"{name} ({code}): {text}. {remedy}"
    return f"{name} ({code}). {remedy}"


def _remedy_of_versions(supported: Sequence[str]) -> str:
    """Say which versions both sides have, and which setting of a server's protocol leads to one
    that they share.
    """
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS

    ours = f"This client supports {KNOWN_PROTOCOL_VERSIONS[0]} to {KNOWN_PROTOCOL_VERSIONS[-1]}."
    if not supported:
        return f"{ours} Set its protocol in the config to `legacy`, or to `auto`."
    theirs = f"It supports {', '.join(supported)}."
    if not set(supported) & set(KNOWN_PROTOCOL_VERSIONS):
        return f"{ours} {theirs}"
    setting = "auto"
    if set(supported) <= set(HANDSHAKE_PROTOCOL_VERSIONS):
        setting = "legacy"
    return f"{ours} {theirs} Set its protocol in the config to `{setting}`."


def root_cause(error: BaseException, secrets: Collection[str]) -> str:
    """Describe the root cause like `error_text`, without control characters and secrets."""
    redact = partial(redacted, secrets=secrets)
    return clean(redact(error_text(error, redact)))


def is_answer(exc: BaseException) -> bool:
    """Check whether the server answered, even with an error or something unreadable.

    Otherwise the session is broken.
    """
    from mcp import MCPError
    from pydantic import ValidationError

    exc = _root(exc)
    if isinstance(exc, MCPError):
        return str(exc) not in (CONNECTION_CLOSED, SESSION_FORGOTTEN)
    return isinstance(exc, ValidationError)


_LOST = (
    "not found|unknown|could not find|cannot find|does not exist|invalid|no valid|no active|no"
    " such|no longer|expired|terminated|closed|missing|required|unrecogni[sz]ed|not"
    " recogni[sz]ed|stale|not initiali[sz]ed|no transport"
)
_SESSION_LOST = re.compile(
    rf"\bsession[^.\n]{{0,60}}?\b(?:{_LOST})\b"
    rf"|\b(?:{_LOST})\b[^.\n]{{0,60}}?\bsession"
    r"|\bno session\b"
    r"|\bserver (?:is )?not initiali[sz]ed\b|\bbefore initiali[sz]ation\b|\binitiali[sz]e first\b",
    re.IGNORECASE,
)
"""How servers say that they do not know a session, as seen in public trackers until November 2026.

For example: "No valid session ID provided" (MCP's Python SDK), "No valid session ID or not an
initialize request" (examples of its TypeScript SDK), "Unknown Mcp-Session-Id header", "Server not
initialized" (behind a store of sessions that outlives the process).
"""
_MAX_WORDS = 500


def says_session_is_lost(text: str) -> bool:
    """Check whether a message says that the server does not know the session in which it was
    asked.
    """
    return _SESSION_LOST.search(text[:_MAX_WORDS]) is not None


def refuses_session(status: int, body: str) -> bool:
    """Check whether an HTTP error within a session refuses the session, so that the server has not
    acted on the request.

    That is 404, unless it is about the method, and what other servers answer instead: 400, 401 or
    503 with words. See
    https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management.
    """
    from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

    code = _code_in(body)
    if code == METHOD_NOT_FOUND:
        return False
    if status in (404, 410):
        return True
    # A tool may have a parameter with the name of a session.
    return (
        (400 <= status < 500 or status == 503)
        and code != INVALID_PARAMS
        and says_session_is_lost(body)
    )


def _code_in(body: str) -> object:
    """Find the code of a JSON-RPC error, or None."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        return error.get("code")
    return None


def is_forgotten(exc: BaseException) -> bool:
    """Check whether an HTTP server refused a request because it has lost the session, and so has
    not acted on it.
    """
    from mcp import MCPError
    from mcp_types import INVALID_REQUEST

    exc = _root(exc)
    if not isinstance(exc, MCPError) or exc.error.code != INVALID_REQUEST:
        return False
    return str(exc) == SESSION_FORGOTTEN or says_session_is_lost(str(exc))


def says_nothing(reason: str) -> bool:
    """Check whether a reason is only the SDK's replacement for an HTTP error."""
    return reason in (CLOSED, SESSION_FORGOTTEN, "Server returned an error response", "Not Found")


def status_text(status: int, body: str = "") -> str:
    """Explain an HTTP status, with the first part of the response body, unless that is HTML."""
    line = _first_line(_message_in(body))
    meaning = {401: "the credentials were not accepted", 403: "access was refused"}.get(status, "")
    return ": ".join(filter(None, (f"HTTP {status}", meaning, shown(line, 200) if line else "")))


def connect_error(server: str, address: str, reason: str | None, stderr_tail: str) -> ConnectError:
    """Create the error for using a server that could not be connected."""
    text = (
        f"Server {shown(server)} ({address[:200]}) is not connected:"
        f" {reason or 'it was not started'}."
    )
    return ConnectError(
        text + _tail(stderr_tail), server=server, hint="Fix that, then reconnect it."
    )


def closed_error(server: str) -> ClosedError:
    """Create the error for using a connection that was closed."""
    return ClosedError(f"The connection to server {shown(server)} is closed.", server=server)


# Seen with servers from PyPI in November 2026, whose requirement `mcp>=1` lets version 2 in.
_NEEDS_MCP_1 = re.compile(
    r"No module named 'mcp\.|cannot import name '\w+' from 'mcp\b|module 'mcp[\w.]*' has no"
    r" attribute"
    r"|'(?:Server|FastMCP|ServerSession)' object has no attribute"
)


def advice_of_stderr(stderr: str, command: str | None) -> str:
    """Say what helps a server whose process ended with these last lines, or empty where that is
    unknown.
    """
    if not _NEEDS_MCP_1.search(stderr):
        return ""
    problem = "It was written for version 1 of the package mcp, and runs with a later one"
    program = re.split(r"[/\\]", command or "")[-1].removesuffix(".exe")
    if program == "uvx":
        return (
            f'{problem}: put "--with", "mcp<2" first into its args, as in: uvx --with "mcp<2" NAME'
        )
    if program == "uv":
        return (
            f'{problem}: put "--with", "mcp<2" behind "run" in its args, as in: uv run --with'
            ' "mcp<2" NAME'
        )
    return f"{problem}. In its environment, run: pip install 'mcp<2'"


def timeout_error(
    server: str,
    tool: str,
    seconds: float,
    field: str,
    stray_output: str | None = None,
    stalled: str | None = None,
) -> ToolTimeoutError:
    """Create the error for a call that reached a limit, which a config `field` sets."""
    stray = ""
    if stray_output is not None:
        stray = f" Meanwhile the server sent an unreadable reply: {shown(stray_output)}."
    ended = ""
    if stalled:
        ended = f" Its connection was ended: {stalled}. It is started again when it is next used."
    return ToolTimeoutError(
        f"Tool {shown(tool)} of server {shown(server)} gave no result in {seconds:.3g} s and was"
        f" told to stop.{stray}{ended}",
        hint=f"If it needs longer, raise servers.{server}.{field}.",
        server=server,
        tool=tool,
    )


def died_error(server: str, tool: str, reason: str, stderr_tail: str) -> ToolCallError:
    """Create the error for a call during which the session ended."""
    text = (
        f"Server {shown(server)} failed in the call of tool {shown(tool)}:"
        f" {reason}.{_tail(stderr_tail)}"
    )
    hint = (
        "The call is not repeated, as it may have had an effect. The server is connected again at"
        " its next use."
    )
    return ToolCallError(text, hint=hint, server=server, tool=tool, retryable=True)


def refused_error(server: str, tool: str, reason: str, advice: str = "") -> ToolCallError:
    """Create the error for a call that the server answered with an error or something
    unreadable.
    """
    return ToolCallError(
        f"Tool {shown(tool)} of server {shown(server)} failed: {reason}",
        hint=advice,
        server=server,
        tool=tool,
    )


def request_error(
    server: str, request: str, reason: str, *, setting: str = "", code: int | None = None
) -> ResourceError:
    """Create the error for a request about a resource or a prompt.

    `setting` is the time limit that was reached, if any.
    """
    hint = ""
    if setting:
        hint = f"If it needs longer, raise servers.{server}.{setting}."
    error = ResourceError(
        f"Server {shown(server)} did not {request}: {reason.rstrip('.')}.", hint=hint, server=server
    )
    error.code = code
    return error


def no_answer(limit: str, setting: str) -> str:
    """Explain that the start took too long, with the setting that raises the limit."""
    return f"no answer in {limit}" + (f" (if it needs longer, raise {setting})" if setting else "")


def start_reason(
    reason: str, *, process: bool, limit: str, setting: str, stray_output: str | None
) -> str:
    """Explain why a start failed.

    `limit` is the time limit if it was reached, which `setting` raises.
    """
    if limit:
        reason = no_answer(limit, setting)
    elif reason == CLOSED:
        reason = "the process exited during startup" if process else f"{CLOSED} during startup"
    if stray_output is not None:
        reason += f". Its stdout has {shown(stray_output)}, which is not an MCP message"
    return reason


def _root(exc: BaseException) -> BaseException:
    while True:
        if isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        elif isinstance(exc, RuntimeError) and isinstance(exc.__cause__, Exception):
            # fastmcp wraps the cause in less informative RuntimeErrors.
            exc = exc.__cause__
        else:
            return exc


def _message_in(body: str) -> str:
    """Extract the message from an HTTP error's body: plain text, or a member of a JSON object."""
    if body.lstrip().startswith("<"):
        return ""
    try:
        value = json.loads(body)
    except ValueError:
        if body.lstrip().startswith(("{", "[")):
            return ""
        return body
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    if isinstance(message, str):
        return message
    return ""


def first_problem(exc: Any) -> str:
    """Describe the first problem in a pydantic error, with its location."""
    problems: Sequence[Any] = exc.errors(
        include_url=False, include_input=False, include_context=False
    )
    where, message = "", "invalid"
    if problems:
        where = ".".join(map(str, problems[0]["loc"]))
        message = problems[0]["msg"]
    if where:
        return f"{where}: {message}"
    return message


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:1000]


def _tail(stderr_tail: str) -> str:
    if stderr_tail:
        return f"\nIts stderr ends with:\n{stderr_tail}\n"
    return ""
