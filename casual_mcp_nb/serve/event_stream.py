"""A turn as server-sent events: its events while it runs, and the answer at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from casual_mcp_nb.engine.follower import Follower
from casual_mcp_nb.serve.events import as_sse, event_as_sse
from casual_mcp_nb.serve.problems import problem_of
from casual_mcp_nb.serve.waiting import disconnected
from casual_mcp_nb.types.event import Event
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

PING_SECONDS = 15.0
"""How often a comment is sent while nothing happens, so that proxies keep the connection open."""
_PING = b": still running\n\n"

Run = Callable[[Turn, Callable[[Event], None]], Coroutine[Any, Any, "list[ChatMessage]"]]


class EventStream(Response):
    """Runs a turn and sends its events, the last one `Answer` or `Problem`. A client that disconnects stops the turn.

    A client that reads slowly delays nothing but its own response: the events wait in the trace.

    Args:
        run: Runs the turn, with a function that is called with each event.
        answer: Returns the body of the answer, as it would be without events.
    """

    media_type = "text/event-stream"

    def __init__(self, run: Run, answer: Callable[[Turn, list[ChatMessage]], dict[str, Any]]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._run = run
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; the status is an error's if the turn cannot begin."""
        turn = Turn(Trace())
        follower = Follower(turn.trace)
        running = asyncio.create_task(self._run(turn, follower.on_event))
        running.add_done_callback(follower.on_end)
        gone = asyncio.create_task(disconnected(receive))
        gone.add_done_callback(lambda _: running.cancel())
        try:
            await self._send(turn, follower, running, scope, receive, send)
        finally:
            gone.cancel()
            running.cancel()
            await asyncio.wait({running, gone})
            if not running.cancelled():
                # A client that left early does not ask how it ended.
                running.exception()

    async def _send(
        self,
        turn: Turn,
        follower: Follower,
        running: asyncio.Task[list[ChatMessage]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        parts = _parts(follower)
        first = await anext(parts, None)
        if first is None and running.done() and not running.cancelled() and (error := running.exception()):
            await problem_of(error).response()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def send_part(part: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": more})

        if first is not None:
            await send_part(first)
        async for part in parts:
            await send_part(part)
        if running.cancelled():
            return
        error = running.exception()
        if error is None:
            await send_part(as_sse("Answer", self._answer(turn, running.result())), more=False)
        else:
            await send_part(as_sse("Problem", problem_of(error).problem.model_dump()), more=False)


async def _parts(follower: Follower) -> AsyncIterator[bytes]:
    """Yield the events as bytes, and a comment wherever nothing happens for a while."""
    events = aiter(follower)
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait({coming}, timeout=PING_SECONDS)
            if not coming.done():
                yield _PING
                continue
            event = coming.result()
            if event is None:
                return
            yield event_as_sse(event)
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()
