"""The libraries' log records come to our logger instead of the notebook."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from casual_mcp_nb.connections._mask import clean, mask

logger = logging.getLogger("casual_mcp_nb.connections")
# Without a handler of its own, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())

LONGEST = 500
_secrets: set[str] = set()


class _Forward(logging.Handler):
    """Passes a library's record on as one short line with secrets masked."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logger.isEnabledFor(record.levelno):
            return
        try:
            text = record.getMessage()
        except Exception:
            text = str(record.msg)
        if record.exc_info and record.exc_info[0] is not None:
            text = f"{text} ({record.exc_info[0].__name__})"
        text = clean(mask(text, _secrets))
        cut = f"{text[:LONGEST]}… ({len(text):,} characters)" if len(text) > LONGEST else text
        logger.log(record.levelno, "%s: %s", record.name, cut)


def keep_out_of_log(secrets: Iterable[str]) -> None:
    """Mask these texts in every record of the libraries from now on."""
    _secrets.update(secrets)


def route_library_logs() -> None:
    """Send the records of fastmcp, mcp and their HTTP client here. Handlers that somebody else set stay; fastmcp's own go."""
    for name in ("fastmcp", "mcp", "httpx2", "httpcore2"):
        library = logging.getLogger(name)
        library.propagate = False
        for handler in list(library.handlers):
            if type(handler).__module__.startswith("rich."):
                library.removeHandler(handler)
        if not any(isinstance(handler, _Forward) for handler in library.handlers):
            library.addHandler(_Forward())
