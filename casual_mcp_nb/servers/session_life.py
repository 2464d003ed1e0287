"""The life of a session: it is opened once, and ends once."""

from __future__ import annotations

import asyncio
from enum import Enum


class SessionState(Enum):
    """Where a session is in its life.

        OPENING --- handshake_done ---> LIVE
           |                             |
           +--- end, fail ---> OVER <----+--- end

    Every other event leaves the state as it is. A session that is over stays over.
    """

    OPENING = "opening"
    LIVE = "live"
    OVER = "over"


class SessionLife:
    """A session's state, and what waits for the next one.

    The task that opens the session waits for its handshake, which ends with the first
    `handshake_done` or `fail`. An `end` does not end it, because the session's task then fails with
    the reason. A handshake can still succeed in a session that is over, so the task has to check
    `state` afterwards.
    """

    def __init__(self) -> None:
        self._state = SessionState.OPENING
        self._handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """The present state."""
        return self._state

    @property
    def in_handshake(self) -> bool:
        """Whether the handshake has neither succeeded nor failed, even if the session is over."""
        return not self._handshake.done()

    def handshake_done(self) -> None:
        """Let calls be made, unless the session is over already."""
        if self._state is SessionState.OPENING:
            self._state = SessionState.LIVE
        self._handshake.set_result(None)

    def end(self) -> SessionState:
        """End the session. Return the state before."""
        before, self._state = self._state, SessionState.OVER
        self._over.set()
        return before

    def fail(self, error: Exception) -> bool:
        """End the session. Return whether this is why the handshake fails."""
        self.end()
        if not self.in_handshake:
            return False
        self._handshake.set_exception(error)
        # Nobody may be waiting; asyncio would log an exception that was never retrieved.
        self._handshake.exception()
        return True

    async def wait_for_handshake(self) -> None:
        """Wait until the handshake has ended.

        Raises:
            Exception: What `fail` was told.
        """
        await asyncio.shield(self._handshake)

    async def wait_until_over(self) -> None:
        """Wait until the session is over."""
        await self._over.wait()
