"""Import slow modules on another thread: the providers' SDKs, and the modules they import on first use."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence

from casual_mcp_nb.providers.registry import spec_of

_loaded: set[object] = set()


async def load(*modules: str) -> None:
    """Import modules of other packages without blocking the loop; do nothing if already imported."""
    if not _loaded.issuperset(modules):
        await asyncio.to_thread(_import, modules)
        _loaded.update(modules)


def touch(provider: str, client: object) -> None:
    """Make an SDK, and our adapter for it, do the imports and setup that they would leave for the first request."""
    from casual_mcp_nb.providers._adapter import adapter_of

    adapter_of(client)
    # Its asyncio backend is imported in the first request.
    importlib.import_module("anyio._backends._asyncio")
    spec = spec_of(provider)
    for path in spec.first_used:
        part = getattr(client, "client", None)
        for name in path.split("."):
            part = getattr(part, name, None)
    spec.warm_up()


def _import(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
