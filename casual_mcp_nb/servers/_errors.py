"""Describe failures in plain words, and build the errors that report them.

Nothing here shows a repr, a URL with credentials or a secret.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.errors import (
    ClosedError,
    ConnectError,
    ResourceError,
    ToolCallError,
    ToolTimeoutError,
    shown,
)
from casual_mcp_nb.servers.message_limits import UNREADABLE
from casual_mcp_nb.servers.redaction import clean

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
_MAX_NAMED = 100


def _named_error(exc: Any, redact: Callable[[str], str]) -> str:
    """Describe an error of the protocol by its name, with what to do about it.

    Empty for another one.
    """
    code, data = exc.error.code, exc.error.data
    if code not in _REMEDIES:
        return ""
    name, remedy = _REMEDIES[code]
    if code == -32021:
        remedy += _remedy_of_capabilities(_listed_in(data, "requiredCapabilities", redact))
    elif code == -32022:
        remedy = _remedy_of_versions(_listed_in(data, "supported", redact))
    text = _first_line(redact(str(exc))).rstrip(".")
    if text:
        return f"{name} ({code}): {text}. {remedy}"
    return f"{name} ({code}). {remedy}"


def _listed_in(data: object, name: str, redact: Callable[[str], str]) -> list[str]:
    """List the names in a field of an error's data: the items of a list, or an object's keys."""
    values = data.get(name) if isinstance(data, dict) else None
    if isinstance(values, list | dict):
        return [redact(str(each))[:_MAX_NAMED] for each in list(values)[:_MAX_LISTED]]
    return []


def _remedy_of_capabilities(needed: Sequence[str]) -> str:
    """Name the capabilities that a server needs, and the settings that declare them."""
    if not needed:
        return "."
    settings = [_CAPABILITIES[each] for each in needed if each in _CAPABILITIES]
    if not settings:
        return f": {', '.join(needed)}."
    return f": {', '.join(needed)}. Set {' and '.join(settings)}, with `protocol: legacy`."


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
    if stderr_tail.strip() not in text:
        text += _tail(stderr_tail)
    return ConnectError(text, server=server, hint="Fix that, then reconnect it.")


def closed_error(server: str) -> ClosedError:
    """Create the error for using a connection that was closed."""
    return ClosedError(f"The connection to server {shown(server)} is closed.", server=server)


# Seen with servers from PyPI in November 2026, whose requirement `mcp>=1` lets version 2 in.
_NEEDS_MCP_1 = re.compile(
    r"No module named 'mcp\.|cannot import name '\w+' from 'mcp\b|module 'mcp[\w.]*' has no"
    r" attribute"
    r"|'(?:Server|FastMCP|ServerSession)' object has no attribute"
)


EXITED = "the process exited during startup"


def advice_of_silence(command: str | None) -> str:
    """Say what is probably missing in a server whose process ended without a word."""
    program = re.split(r"[/\\]", command or "")[-1].removesuffix(".exe")
    if command == sys.executable or re.fullmatch(r"python[\d.]*|py", program):
        return "It has written nothing: does the program call run(), as in mcp.run()?"
    return "It has written nothing"


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
    if command == sys.executable:
        # This package needs the later one, in the same environment.
        return (
            f"{problem}. Its import is now: from fastmcp import FastMCP. Or start it in a separate"
            " environment, with mcp<2"
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
    if setting:
        return f"no answer in {limit} (if it needs longer, raise {setting})"
    return f"no answer in {limit}"


def start_reason(
    reason: str, *, process: bool, limit: str, setting: str, stray_output: str | None
) -> str:
    """Explain why a start failed.

    `limit` is the time limit if it was reached, which `setting` raises.
    """
    if limit:
        reason = no_answer(limit, setting)
    elif reason == CLOSED:
        reason = EXITED if process else f"{CLOSED} during startup"
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
