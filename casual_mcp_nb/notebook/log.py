"""The log of the package and of the MCP libraries: nothing is printed unless somebody asks."""

from __future__ import annotations

import logging
import os


def is_set(variable: str) -> bool:
    """Check whether an environment variable turns something on. Empty, `0` and `false` do not."""
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false")


logger = logging.getLogger("casual_mcp_nb")


# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())


def show_log(level: str, libraries: str | None = None) -> None:
    """Show the log, on stderr unless logging is set up already.

    Args:
        level: The lowest level that is shown, such as `INFO`.
        libraries: The lowest level for the MCP libraries, or None for the same.
    """
    logger.setLevel(level)
    for name in ("fastmcp", "mcp"):
        logging.getLogger(name).setLevel(libraries or level)
    for existing in (*logger.handlers, *logging.getLogger().handlers):
        if not isinstance(existing, logging.NullHandler):
            return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
