"""The package's log, shown only on request."""

from __future__ import annotations

import logging

logger = logging.getLogger("casual_mcp_nb")
# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())


def show_log(level: str, libraries: str | None = None) -> None:
    """Log from `level` on, to stderr unless logging is set up already. A second call only changes the level.

    Args:
        level: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`.
        libraries: The same for the MCP libraries, whose records are forwarded to this log; None for `level`.
    """
    logger.setLevel(level)
    for name in ("fastmcp", "mcp"):
        logging.getLogger(name).setLevel(libraries or level)
    others = [handler for handler in (*logger.handlers, *logging.getLogger().handlers) if _shows(handler)]
    if not others:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def _shows(handler: logging.Handler) -> bool:
    return not isinstance(handler, logging.NullHandler)
