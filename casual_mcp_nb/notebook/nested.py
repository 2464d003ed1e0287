"""Event loops inside a running one, with nest-asyncio."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

from casual_mcp_nb.errors import MissingDependencyError, UsageError, install
from casual_mcp_nb.notebook.caller import _running_loop


def enable_nested_asyncio() -> Literal["on", "already on"]:
    """Allow `asyncio.run` and `run_until_complete` inside a running loop, with nest-asyncio.

    It patches asyncio for the whole process, and cannot be undone. From then on, an interrupted
    blocking call continues in the background, and of two calls that overlap, the first can end only
    after the second. Prefer `await`, or the blocking methods of `Session`, which need no patch.

    Returns:
        `on`, or `already on`.

    Raises:
        UsageError: It would do harm here: Python 3.14 or later, or a uvloop loop.
        MissingDependencyError: nest-asyncio is not installed.
    """
    if sys.version_info >= (3, 14):
        raise UsageError(
            "nest-asyncio breaks asyncio on Python 3.14 and later.",
            hint="Use `await`, or the blocking methods of Session.",
        )
    loop = _running_loop()
    if loop is not None and not isinstance(loop, asyncio.BaseEventLoop):
        raise UsageError(
            f"nest-asyncio cannot patch a loop of {type(loop).__module__}.",
            hint="Use `await`, or the blocking methods of Session.",
        )
    try:
        import nest_asyncio
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "This needs nest-asyncio, which is not installed.", hint=install("notebook")
        ) from None
    was_on = is_nested_asyncio()
    nest_asyncio.apply(loop)
    if was_on:
        return "already on"
    return "on"


def is_nested_asyncio() -> bool:
    """Check whether nest-asyncio, or a package made from it, has patched asyncio."""
    return asyncio.run.__module__.startswith("nest_asyncio")
