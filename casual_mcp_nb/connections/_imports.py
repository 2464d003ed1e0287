"""The SDKs, imported on other threads: they take seconds, and the loop must go on."""

from __future__ import annotations

import asyncio
import importlib
import threading
from functools import cache
from typing import TYPE_CHECKING

from casual_mcp_nb.connections._log import route_library_logs

if TYPE_CHECKING:
    from casual_mcp_nb.connections._link import Link


async def link_class() -> type[Link]:
    """`Link` with everything below it; the first use takes up to two seconds on a worker thread."""
    return await asyncio.to_thread(_import_link)


async def validator_ready() -> None:
    """Wait until a result can be validated without importing anything."""
    thread = _validator()
    if thread.is_alive():
        await asyncio.to_thread(thread.join)


@cache
def _validator() -> threading.Thread:
    """The thread that imports what the SDK would import within the first call of a tool with an output schema."""
    thread = threading.Thread(target=importlib.import_module, args=("jsonschema",), name="import jsonschema", daemon=True)
    thread.start()
    return thread


def _import_link() -> type[Link]:
    importlib.import_module("casual_mcp_nb.connections._http")
    from casual_mcp_nb.connections._link import Link

    route_library_logs()
    _validator()
    return Link
