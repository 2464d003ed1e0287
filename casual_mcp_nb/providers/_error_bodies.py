"""Watch the HTTP responses under an SDK: note their headers, and limit the size of error bodies.

SDKs parse and print error bodies completely, which takes seconds for huge ones.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from httpx import AsyncByteStream, AsyncClient, Response

MAX_BYTES = 65_536
"""Maximum size of an error body on the wire."""


last_headers: ContextVar[Mapping[str, str] | None] = ContextVar("last_headers", default=None)
"""The headers of the last HTTP response of the current task; SDKs do not give them with every answer and error."""


def watch_responses(client: object) -> None:
    """Note the headers of responses, and make a client's SDK read only the beginning of error bodies.

    A client without an SDK is unchanged.

    Args:
        client: A client of casual-llm.
    """
    http: AsyncClient | None = getattr(getattr(client, "client", None), "_client", None)
    if http is not None and hasattr(http, "event_hooks"):
        hooks = http.event_hooks
        http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _watch]}


async def _watch(response: Response) -> None:
    last_headers.set(response.headers)
    if response.is_error:
        response.stream = _limited_stream(type(response).__module__.partition(".")[0])(response.stream)


@cache
def _limited_stream(package: str) -> type[Any]:
    """Build the class of limited streams for httpx, or for the package that an SDK uses instead."""
    base: type[Any] = sys.modules[package].AsyncByteStream

    class Limited(base):  # type: ignore[misc]
        """The beginning of a stream."""

        def __init__(self, whole: AsyncByteStream) -> None:
            self._whole = whole

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_BYTES
            async for piece in self._whole:
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await self._whole.aclose()

    return Limited
