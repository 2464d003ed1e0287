"""A call with limits that progress moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.config import ServerConfig

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from casual_mcp_nb.connections._link import Link

OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class Limits:
    """Limits in seconds: of start, handshake and listing; of a call without progress; of a call altogether."""

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> Limits:
        """The limits of a config, or the defaults."""
        return cls(config.init_timeout, config.call_timeout, config.total_timeout) if config else cls()


class LimitReached(Exception):
    """A call was given up: after how many seconds, and the field of the config that says so."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


async def limited_call(
    link: Link,
    limits: Limits,
    name: str,
    arguments: Mapping[str, Any],
    on_progress: OnProgress | None = None,
    meta: Mapping[str, Any] | None = None,
) -> CallToolResult:
    """Call a tool within its limits; the server is told when one is reached or the caller is cancelled.

    Raises:
        LimitReached: A limit was reached.
        Exception: Whatever the libraries raise.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    end = start + limits.total

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        if not timer.expired():
            timer.reschedule(min(loop.time() + limits.call, end))
        if on_progress is not None:
            on_progress(progress, total, message)

    try:
        async with asyncio.timeout(min(limits.call, limits.total)) as timer:
            return await link.client.call_tool_mcp(
                name, dict(arguments), progress_handler=progressed, meta=dict(meta) if meta else None
            )
    except TimeoutError:
        if not timer.expired():
            raise
        field = "total_timeout" if timer.when() == end else "call_timeout"
        raise LimitReached(loop.time() - start, field) from None
