"""What is said when a server or a call fails: what failed, why, and what to do next."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from casual_mcp_nb.connections._redactor import clean, mask
from casual_mcp_nb.connections.convert import CLOSED, error_text
from casual_mcp_nb.errors import ClosedError, ConnectError, ToolCallError, ToolTimeoutError, shown

ENDED = "it ended unexpectedly"


def root_cause(error: BaseException, secrets: Collection[str]) -> str:
    """The root cause of a failure in words, cleaned of control characters, secrets masked."""
    hide = partial(mask, secrets=secrets)
    return clean(hide(error_text(error, hide)))


def connect_error(server: str, address: str, reason: str | None, stderr_tail: str) -> ConnectError:
    """The error for the use of a server that could not be connected."""
    text = f"Server {shown(server)} ({address[:200]}) is not connected: {reason or 'it was not started'}."
    return ConnectError(text + _tail(stderr_tail), server=server, hint="Reconnect it when that is put right.")


def closed_error(server: str) -> ClosedError:
    """The error for the use of a connection that was closed."""
    return ClosedError(f"The connection to server {shown(server)} is closed.", server=server)


def timeout_error(
    server: str, tool: str, seconds: float, field: str, stray_output: str | None = None, stalled: str | None = None
) -> ToolTimeoutError:
    """The error for a call that reached the limit in this field of the config; says what came meanwhile that was no message,
    or that the connection was ended since a message has no end."""
    stray = f" Meanwhile the server sent an unreadable reply: {shown(stray_output)}." if stray_output is not None else ""
    ended = f" Its connection was ended: {stalled}. It is started again at its next use." if stalled else ""
    return ToolTimeoutError(
        f"Tool {shown(tool)} of server {shown(server)} gave no result in {seconds:.3g} s and was told to stop.{stray}{ended}",
        hint=f"If it needs longer, raise servers.{server}.{field}.",
        server=server,
        tool=tool,
    )


def died_error(server: str, tool: str, reason: str, stderr_tail: str) -> ToolCallError:
    """The error for a call in which the session with the server ended."""
    text = f"Server {shown(server)} failed in the call of tool {shown(tool)}: {reason}.{_tail(stderr_tail)}"
    hint = "The call is not repeated by itself, as it may have had an effect; the server is connected again at its next use."
    return ToolCallError(text, hint=hint, server=server, tool=tool, retryable=True)


def refused_error(server: str, tool: str, reason: str, advice: str = "") -> ToolCallError:
    """The error for a call that the server answered with an error, or with something that cannot be read."""
    return ToolCallError(
        f"Tool {shown(tool)} of server {shown(server)} failed: {reason}", hint=advice, server=server, tool=tool
    )


def lost_reason(broken_by: str | None) -> str:
    """Why a server that was ready is not any more.

    Args:
        broken_by: Why its session was given up, where it did not end by itself.
    """
    return f"{broken_by or ENDED}; it is started again at its next use"


def no_answer(limit: str, setting: str) -> str:
    """That the limit of the start was reached, and the setting that raises it."""
    return f"no answer in {limit}" + (f" (if it needs longer, raise {setting})" if setting else "")


def start_reason(reason: str, *, limit: str, setting: str, stray_output: str | None) -> str:
    """Why a start failed.

    Args:
        reason: The root cause in words.
        limit: The limit of the start where it was reached, as it is shown; else empty.
        setting: The setting that raises it; empty where there is none.
        stray_output: The start of a line that was no message, if there was one.
    """
    if limit:
        reason = no_answer(limit, setting)
    elif reason == CLOSED:
        reason = "it ended before it answered"
    if stray_output is not None:
        reason += f"; on its stdout it wrote {shown(stray_output)}, which is no MCP message"
    return reason


def _tail(stderr_tail: str) -> str:
    return f"\nIts stderr ends with:\n{stderr_tail}\n" if stderr_tail else ""
