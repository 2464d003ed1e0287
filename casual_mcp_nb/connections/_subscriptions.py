"""The resources of one server whose changes it reports.

Servers up to revision 2025-11-25 have `resources/subscribe`; later ones report over a stream that the client keeps open, see
https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._errors import error_text
from casual_mcp_nb.types.resource import Subscription

if TYPE_CHECKING:
    from casual_mcp_nb.connections._mcp_session import McpSession

LOST = "the server ended its reports"


class ResourceSubscriptions:
    """The subscriptions of one server, by URI. They end with the session; `restore` opens them in the next one.

    Args:
        changed: Called when a followed resource changed, or its reports ended.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._by_uri: dict[str, Subscription] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}

    @property
    def all(self) -> tuple[Subscription, ...]:
        """All of them, the oldest first."""
        return tuple(self._by_uri.values())

    async def add(self, session: McpSession, uri: str, name: str) -> None:
        """Subscribe; a second time it does nothing.

        Args:
            session: The server's session.
            uri: The resource.
            name: The URI as it is shown.
        """
        existing = self._by_uri.get(uri)
        if existing is not None and not existing.problem:
            return
        await self._open(session, uri)
        self._by_uri[uri] = Subscription(session.name, name)
        self._changed()

    async def remove(self, session: McpSession, uri: str) -> None:
        """Unsubscribe."""
        from mcp_types import EmptyResult, UnsubscribeRequest, UnsubscribeRequestParams

        if self._by_uri.pop(uri, None) is None:
            return
        self._changed()
        stream = self._streams.pop(uri, None)
        if stream is not None:
            stream.cancel()
            await asyncio.wait({stream})
        elif not session.modern:
            # The SDK's own method warns of its deprecation.
            request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
            await session.client.session.send_request(request, EmptyResult)

    async def restore(self, session: McpSession) -> None:
        """Subscribe again in a new session; errors are recorded on the subscriptions."""
        for uri in list(self._by_uri):
            problem = ""
            try:
                await self._open(session, uri)
            except Exception as error:
                problem = error_text(error, session.context.redact)
            self._set(uri, problem=problem)

    def updated(self, uri: str) -> None:
        """Count a change of a resource: one that is subscribed to, or a part of one."""
        for each in self._by_uri:
            if uri == each or uri.startswith(each.rstrip("/") + "/"):
                self._set(each, updates=self._by_uri[each].updates + 1, last=time.time())

    async def _open(self, session: McpSession, uri: str) -> None:
        from mcp_types import EmptyResult, SubscribeRequest, SubscribeRequestParams

        if not session.modern:
            await session.client.session.send_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult)
            return
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[uri] = asyncio.create_task(self._follow(session, uri, opened))
        await opened

    async def _follow(self, session: McpSession, uri: str, opened: asyncio.Future[None]) -> None:
        """Keep the stream of reports on a resource open. Its reports arrive with the session's notifications."""
        from mcp.client.subscriptions import listen

        problem = LOST
        try:
            async with listen(session.client.session, resource_subscriptions=[uri]) as stream:
                if uri not in (stream.honored.resource_subscriptions or ()):
                    raise ConnectionError("it does not report changes of this resource")
                opened.set_result(None)
                async for _ in stream:
                    pass
        except Exception as error:
            problem = error_text(error, session.context.redact)
            if not opened.done():
                opened.set_exception(error)
                return
        finally:
            if not opened.done():
                opened.cancel()
        if uri in self._by_uri and self._streams.get(uri) is asyncio.current_task():
            self._set(uri, problem=problem)

    def _set(self, uri: str, **changes: Any) -> None:
        if uri in self._by_uri:
            self._by_uri[uri] = replace(self._by_uri[uri], **changes)
            self._changed()
