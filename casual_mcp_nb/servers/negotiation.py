"""How a session and its server agree on a protocol version."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal

import mcp_types
from mcp import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from casual_mcp_nb.base.callbacks import ignore_outcome
from casual_mcp_nb.base.config import Protocol
from casual_mcp_nb.servers._errors import CONNECTION_CLOSED
from casual_mcp_nb.servers._sdk_session import TolerantSession
from casual_mcp_nb.servers.deadlines import CallDeadlines

DISCOVER_SHARE = 1 / 3
"""The fraction of the start time limit after which a server that has not answered `server/discover`
gets the older handshake as well.
"""
DISCOVER_SECONDS = 10.0
"""The longest such wait, whatever the limit."""
HTTP_DISCOVER_SHARE = 0.9
"""The same fraction over HTTP.

There a server answers what it does not know, and one that does not answer is still waking up; one
without the older handshake must not be sent it.
"""


def patience(limit: float, *, over_http: bool) -> float:
    """How long to wait for an answer to `server/discover` before the older handshake is tried as
    well, in seconds.
    """
    if over_http:
        return limit * HTTP_DISCOVER_SHARE
    return min(limit * DISCOVER_SHARE, DISCOVER_SECONDS)


class Negotiation:
    """Agrees on a protocol version, once: on the one that the config sets, or on one that the server
    has.

    Without a version in the config, the server is asked for its versions (`server/discover`):

    | its answer | what follows |
    |---|---|
    | its versions | The newest common one is used. |
    | an error, or not valid | The older handshake is done. |
    | an error: other versions only | That is the error. |
    | none in time | The older handshake is done beside it, and what is answered first is used. |

    A server that does not answer in time may ignore what it does not know, or it is still waking up
    and answers later. So a handshake that is refused says nothing then: a server without it refuses
    it immediately.

    See https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning.

    Args:
        seconds: How long to wait for an answer to `server/discover`, see `patience`.
        deadlines: Those of the server, which a sign-in pauses.

    Attributes:
        failure: How the server failed to answer `server/discover`. `silent`: the older handshake
            was answered first. `ended`: the connection ended. None: it did not fail.
    """

    def __init__(self, seconds: float, deadlines: CallDeadlines) -> None:
        self.failure: Literal["silent", "ended"] | None = None
        self._seconds = seconds
        self._deadlines = deadlines

    async def agree(self, session: TolerantSession, protocol: Protocol) -> None:
        """Agree on a version, which the session uses from then on.

        Raises:
            MCPError: The server refuses all that was asked for, or its connection has ended.
        """
        if protocol == "legacy":
            await session.initialize()
        elif protocol in MODERN_PROTOCOL_VERSIONS:
            await session.discover()
        else:
            await self._find_version(session)

    async def _find_version(self, session: TolerantSession) -> None:
        session.has_alternative = True
        discovery = asyncio.create_task(session.discover())
        handshake: asyncio.Task[Any] | None = None
        try:
            if not await self._is_answered(discovery):
                handshake = asyncio.create_task(session.initialize())
                await asyncio.wait({discovery, handshake}, return_when=asyncio.FIRST_COMPLETED)
                if not discovery.done() and handshake.exception() is None:
                    self.failure = "silent"
                    return
            if await self._succeeds(discovery):
                # The handshake can have ended at the same moment. What was adopted last holds.
                session.adopt(discovery.result())
                return
            if handshake is None:
                handshake = asyncio.create_task(session.initialize())
            await _finish_handshake(session, handshake)
        finally:
            _give_up(discovery)
            if handshake is not None:
                _give_up(handshake)

    async def _is_answered(self, discovery: asyncio.Task[Any]) -> bool:
        """Wait for the answer to `server/discover`. Return whether there is one in time."""
        end = asyncio.get_running_loop().time() + self._seconds
        with contextlib.suppress(TimeoutError):
            async with self._deadlines.within(end):
                await asyncio.wait({discovery})
        return discovery.done()

    async def _succeeds(self, discovery: asyncio.Task[Any]) -> bool:
        """Wait for the versions. Return False if the older handshake may do."""
        try:
            await discovery
        except MCPError as error:
            if str(error) == CONNECTION_CLOSED:
                self.failure = "ended"
            if _has_other_versions_only(error):
                raise
            return False
        except (ValidationError, RuntimeError):
            # Its answer is none, or it lists only versions with the handshake.
            return False
        return True


async def _finish_handshake(session: TolerantSession, handshake: asyncio.Task[Any]) -> None:
    try:
        await handshake
    except MCPError as error:
        if error.error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # It has the newer versions only, and was still waking up when it was asked for them.
        await session.discover()


def _give_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.add_done_callback(ignore_outcome)


def _has_other_versions_only(error: MCPError) -> bool:
    """Check whether a server says that it has only versions that this client has not."""
    if error.error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return False
    try:
        data = mcp_types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data)
    except ValidationError:
        return False
    return not set(data.supported).intersection(HANDSHAKE_PROTOCOL_VERSIONS)
