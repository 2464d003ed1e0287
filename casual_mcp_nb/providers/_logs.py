"""What casual-llm logs when it makes a client: the address, as it is in the config."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from casual_mcp_nb.providers.registry import loggers as sdk_loggers
from casual_mcp_nb.types.secret import redacted


@contextmanager
def masked_logs(secrets: Collection[str]) -> Iterator[None]:
    """Mask secrets in what is logged while a client is made.

    Args:
        secrets: What is masked.
    """

    def mask(record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage(), secrets), ()
        return True

    # A filter sees the records of its own logger only, and not those of the loggers below it.
    loggers = [logging.getLogger(f"casual_llm.providers.{name}") for name in sdk_loggers()]
    for logger in loggers:
        logger.addFilter(mask)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(mask)
