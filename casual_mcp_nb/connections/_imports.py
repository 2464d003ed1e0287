"""The SDKs, imported on other threads: they take seconds, and the loop must go on."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from casual_mcp_nb.connections._log import route_library_logs

if TYPE_CHECKING:
    from casual_mcp_nb.connections._link import Link


async def link_class() -> type[Link]:
    """`Link` with everything below it; the first use takes up to two seconds on a worker thread."""
    return await asyncio.to_thread(_import_link)


def _import_link() -> type[Link]:
    importlib.import_module("casual_mcp_nb.connections._http")
    from casual_mcp_nb.connections._link import Link

    route_library_logs()
    return Link
