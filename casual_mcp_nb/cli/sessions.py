"""`casual-mcp-nb sessions`: sessions that a person had with other agents."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from casual_mcp_nb.cli.terminal import AsJson, show, write_json


def sessions(
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000))] = 50,
    json: AsJson = False,
) -> None:
    """List your sessions with Claude Code and Codex on this computer, the newest first.

    Nothing is changed, sent or executed. In a notebook, `%mcp open FILE` shows one.

    Args:
        limit: How many are listed.
    """
    from casual_mcp_nb.conversation.foreign.listing import find_foreign_sessions

    found = find_foreign_sessions(limit)
    if not json:
        show(found, whole=True)
        return
    rows = []
    for each in found:
        row = {**asdict(each), "path": str(each.path), "changed": each.changed.isoformat()}
        rows.append(row)
    write_json(rows)
