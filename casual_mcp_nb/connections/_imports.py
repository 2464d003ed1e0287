"""The SDKs, imported on other threads: they take seconds, and the loop must go on."""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import TYPE_CHECKING

from casual_mcp_nb.connections._log import route_library_logs

if TYPE_CHECKING:
    from casual_mcp_nb.connections._link import Link

# The SDK imports it within the first call of a tool with an output schema.
_validator = threading.Thread(target=importlib.import_module, args=("jsonschema",), name="import jsonschema", daemon=True)
_lock = threading.Lock()


async def link_class() -> type[Link]:
    """`Link` with everything below it; the first use takes up to two seconds on a worker thread."""
    return await asyncio.to_thread(_import_link)


async def validator_ready() -> None:
    """Wait until a result can be validated without importing anything."""
    if _validator.is_alive():
        await asyncio.to_thread(_validator.join)


def _import_link() -> type[Link]:
    from casual_mcp_nb.connections._link import Link

    route_library_logs()
    with _lock:
        if _validator.ident is None:
            _validator.start()
    return Link
