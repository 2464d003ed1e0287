"""Redirect the libraries' log records to our logger instead of the notebook."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from casual_mcp_nb.connections._redactor import clean
from casual_mcp_nb.types.secret import redacted

logger = logging.getLogger("casual_mcp_nb.connections")
# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())

MAX_LENGTH = 200
LIBRARIES = ("casual_llm", "fastmcp", "mcp", "httpx2", "httpcore2", "httpx", "httpcore")
_secrets: set[str] = set()


class _Forward(logging.Handler):
    """Forwards a library's record as one short, redacted line.

    The record itself is replaced by that line too, for other handlers: at level DEBUG the libraries log whole requests and
    results.
    """

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = _one_line(record), ()
        record.exc_info = record.exc_text = record.stack_info = None
        if logger.isEnabledFor(record.levelno):
            logger.log(record.levelno, "%s: %s", record.name, record.msg)


def _one_line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:
        text = str(record.msg)
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text} ({record.exc_info[0].__name__})"
    # Redacted before it is cut: half a secret would not be recognised.
    text = clean(redacted(text, _secrets))
    return f"{text[:MAX_LENGTH]}… ({len(text):,} characters)" if len(text) > MAX_LENGTH else text


def keep_out_of_log(secrets: Iterable[str]) -> None:
    """Redact these texts in every record of the libraries from now on."""
    _secrets.update(secrets)


def route_library_logs(more: Iterable[str] = ()) -> None:
    """Redirect the records of the MCP and model libraries and their HTTP clients to our logger.

    Other handlers stay; fastmcp's own are removed.

    Args:
        more: Names of loggers in addition to `LIBRARIES`.
    """
    for name in (*LIBRARIES, *more):
        library = logging.getLogger(name)
        library.propagate = False
        for handler in list(library.handlers):
            if type(handler).__module__.startswith("rich."):
                library.removeHandler(handler)
        if not any(isinstance(handler, _Forward) for handler in library.handlers):
            library.handlers.insert(0, _Forward())
