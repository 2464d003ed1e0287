"""What will go, and the one way to say so.

A public name that is to go, or to change, stays for at least one minor release, with a line in
`DEPRECATED` and a call of `warn_deprecated` where it is used. `docs/stability.md` says more.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Deprecation:
    """That a name will go.

    Args:
        instead: What to write instead, such as `session.search(…, limit=3)`.
        since: The minor release that began to warn, such as `1.1`.
        removed_in: The one that removes it, such as `1.2`: a later one than `since`.
    """

    instead: str
    since: str
    removed_in: str


DEPRECATED: Mapping[str, Deprecation] = {}
"""What is deprecated, by its name in `docs/surface/next.txt`, such as
`casual_mcp_nb.Session.search` or a magic's command. A line goes together with what it is about.
"""


def warn_deprecated(name: str, table: Mapping[str, Deprecation] = DEPRECATED) -> None:
    """Warn whoever uses a deprecated name, at their line outside of this package.

    Names in Python are a `DeprecationWarning`, which notebooks and pytest show. All others, such as
    a magic or a config key, are a `FutureWarning`, which is shown everywhere: who writes them does
    not run tests. Call it on the thread of the caller, before any work is handed on.

    Args:
        name: The name, which is in the table.
        table: `DEPRECATED`, or that of a test.
    """
    deprecation = table[name]
    text = (
        f"{name} will be removed in casual_mcp_nb {deprecation.removed_in}."
        f" Instead: {deprecation.instead}"
    )
    is_python = name.startswith(("casual_mcp_nb.", "session."))
    category = DeprecationWarning if is_python else FutureWarning
    warnings.warn(text, category, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """Count the frames from the caller of this function to the first one outside the package.

    `warnings.warn` can skip a package by itself since Python 3.12.
    """
    level = 1
    frame = inspect.currentframe()
    frame = frame.f_back if frame else None
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        level += 1
        frame = frame.f_back
    return level


_PACKAGE = f"{__name__.partition('.')[0]}."
