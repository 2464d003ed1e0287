"""Limit the size of error bodies: SDKs parse and print them completely, which takes seconds for huge ones."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from httpx import AsyncByteStream, AsyncClient, Response

MAX_BYTES = 65_536
"""Maximum size of an error body on the wire."""


def limit_error_bodies(client: object) -> None:
    """Make a client's SDK read only the beginning of error bodies; a client without an SDK is unchanged.

    Args:
        client: A client of casual-llm.
    """
    http: AsyncClient | None = getattr(getattr(client, "client", None), "_client", None)
    if http is not None and hasattr(http, "event_hooks"):
        hooks = http.event_hooks
        http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _limit]}


async def _limit(response: Response) -> None:
    if response.is_error:
        response.stream = _limited_stream(type(response).__module__.partition(".")[0])(response.stream)


@cache
def _limited_stream(package: str) -> type[Any]:
    """Return the class of limited streams for httpx, or for the package that an SDK uses instead."""
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
