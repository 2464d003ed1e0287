"""Redirect the libraries' log records to our logger instead of the notebook."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from casual_mcp_nb.connections._redactor import clean
from casual_mcp_nb.types.secret import redacted

logger = logging.getLogger("casual_mcp_nb.connections")
# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())

MAX_LENGTH = 200
LIBRARIES = (
    "casual_llm",
    "fastmcp",
    "mcp",
    "httpx2",
    "httpcore2",
    "httpx",
    "httpcore",
    "hpack",
    "google.auth",
    "key_value",
    "LiteLLM",
)
SHARED = ("asyncio", "client")
"""Loggers that other programs use too: asyncio's, and the one that the MCP SDK's client session names `client`."""
_OWN = __name__.partition(".")[0]
_secrets: set[str] = set()
_routed: set[str] = set(LIBRARIES)


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


class _Divert(logging.Filter):
    """Forwards the records of a shared logger that are about the libraries, and leaves those of the user's own code alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        theirs = _code_of(record) in {_OWN, *_routed}
        if theirs:
            _Forward().emit(record)
        return not theirs


def _code_of(record: logging.LogRecord) -> str:
    """Find the package that a record is about: that of the coroutine which failed, else that of the code which logged."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and error.__traceback__ is not None and record.name == "asyncio":
        return str(error.__traceback__.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    loaded = [name for name in (_OWN, *_routed) if name in sys.modules]
    folders = {folder: name for name in loaded for folder in getattr(sys.modules[name], "__path__", ())}
    return next((name for folder, name in folders.items() if record.pathname.startswith(folder)), "")


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

    Other handlers stay; fastmcp's own are removed. Of the loggers that other programs use too, only the libraries' records are
    redirected.

    Args:
        more: Names of loggers in addition to `LIBRARIES`.
    """
    _routed.update(more)
    for name in SHARED:
        logger_of_all = logging.getLogger(name)
        if not any(isinstance(each, _Divert) for each in logger_of_all.filters):
            logger_of_all.addFilter(_Divert())
    for name in (*LIBRARIES, *more):
        library = logging.getLogger(name)
        library.propagate = False
        for handler in list(library.handlers):
            if type(handler).__module__.startswith("rich."):
                library.removeHandler(handler)
        if not any(isinstance(handler, _Forward) for handler in library.handlers):
            library.handlers.insert(0, _Forward())
