"""The log by casual-mcp's names."""

from __future__ import annotations

import logging

from casual_mcp_nb.base.iterables import of_type


def get_logger(name: str) -> logging.Logger:
    """Create a logger by its name within this package."""
    return logging.getLogger(f"casual_mcp_nb.{name}")


def configure_logging(level: str | int = "INFO", logger: logging.Logger | None = None) -> None:
    """Write the log to standard error from a given level.

    Calling it again replaces the earlier settings.

    Args:
        level: The lowest level to write, such as `WARNING`.
        logger: Which logger, or None for this package's.
    """
    logger = logger or logging.getLogger("casual_mcp_nb")
    for handler in of_type(logger.handlers, _Handler):
        logger.removeHandler(handler)
    handler = _Handler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    for each in (logger, logging.getLogger("fastmcp"), logging.getLogger("mcp")):
        each.setLevel(level)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Ours, to distinguish it from the person's."""
