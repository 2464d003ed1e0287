"""Check the arguments of a call by its tool's schema, before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from casual_mcp_nb.isolation.worker import GaveUp, Worker
from casual_mcp_nb.types.schema import fits_plainly
from casual_mcp_nb.types.tool import ToolSpec

CHECK_SECONDS = 2.0


def problems(tool: ToolSpec, arguments: Mapping[str, Any], worker: Worker) -> Sequence[str] | None:
    """List the problems of a tool's arguments, by its schema; not for an event loop's thread.

    Args:
        tool: The tool.
        arguments: The arguments.
        worker: The process that checks what is not simple: a schema is a server's, and checking can take forever.

    Returns:
        The problems, one sentence each; None if the arguments could not be checked.
    """
    schema, value = dict(tool.input_schema), dict(arguments)
    if fits_plainly(schema, value):
        return ()
    with suppress(GaveUp, TypeError, ValueError):
        errors = worker.run("validate", {"schema": json.dumps(schema), "value": value, "all": True}, CHECK_SECONDS)
        return tuple(errors) if isinstance(errors, list) else ()
    return None
