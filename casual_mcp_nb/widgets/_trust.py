"""A config file that the person has not accepted, as widgets show it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from casual_mcp_nb.display.text import clean
from casual_mcp_nb.widgets.state import SessionParts


def unaccepted(session: SessionParts) -> dict[str, Any] | None:
    """List the entries kept from starting, whole; None if there are none."""
    report = session.tool_service.unaccepted
    return None if report is None else {"file": clean(Path(report.source).name), "text": clean(report.text)}


async def accept(session: SessionParts) -> None:
    """Accept it as it was shown, and start the servers in the background.

    Raises:
        UsageError: It cannot be remembered.
    """
    report = session.tool_service.unaccepted
    if report is not None:
        await asyncio.to_thread(report.accept)
        session.engine.submit(session.tool_service.start())
