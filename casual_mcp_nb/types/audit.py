"""The audit list: a line for each call of a tool, without its arguments and its result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.event import CallStatus
from casual_mcp_nb.types.files import write_text
from casual_mcp_nb.types.permission import Permission
from casual_mcp_nb.types.tool import ToolName

Caller = Literal["model", "person", "tool", "server", "host"]
"""Who made a call; a `tool` is a function of the notebook that calls another tool, a `server` asked the model
for an answer, a `host` is another program that uses the session's tools."""


@dataclass(frozen=True, slots=True)
class AuditRecord(Displayable):
    """One call of a tool.

    Args:
        at: When it started, in seconds since 1970.
        tool: Which tool; its server is `_synthetic` for a built-in tool, and `_unknown` for a name that is not a tool's.
        caller: Who made the call.
        permission: Who decided whether it may run; None for a call that did not get that far, such as one of an unknown tool.
        status: How it ended.
        seconds: How long it took, without the time that it waited for approval; None if that is not known.
        arguments_size: Length of the arguments as JSON, in characters.
        result_size: Length of the result, in characters and bytes.
    """

    at: float
    tool: ToolName
    caller: Caller
    permission: Permission | None
    status: CallStatus
    seconds: float | None
    arguments_size: int
    result_size: int

    def as_dict(self) -> dict[str, Any]:
        """Convert the record to plain values, for JSON."""
        permission = self.permission
        return {
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            "server": self.tool.server,
            "tool": self.tool.tool,
            "caller": self.caller,
            "outcome": self.status,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "allowed": permission.allowed if permission else False,
            "decided_by": permission.by if permission else None,
            "scope": permission.scope if permission else "",
            "policy": permission.policy if permission else "",
            "reason": permission.reason if permission else "",
            "definition": permission.definition if permission else "",
            "arguments_size": self.arguments_size,
            "result_size": self.result_size,
        }


@dataclass(frozen=True)
class Audit(DisplayableList[AuditRecord]):
    """The calls of a session, oldest first: by the model, by the person, and by other programs.

    Args:
        records: The calls.
        dropped: How many earlier calls are no longer listed.
    """

    records: tuple[AuditRecord, ...] = field(default=(), repr=False)
    dropped: int = 0

    @property
    def _items(self) -> tuple[AuditRecord, ...]:
        return self.records

    def to_jsonl(self) -> str:
        """Format the list as JSON, one call per line."""
        return "".join(f"{json.dumps(record.as_dict())}\n" for record in self.records)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the list to a file as JSON, one call per line.

        Args:
            path: The file, such as `audit.jsonl`.
            overwrite: Replace a file that exists.

        Returns:
            The file; it is written whole or not at all.

        Raises:
            UsageError: The file exists, or it cannot be written.
        """
        file = Path(path).expanduser()
        write_text(file, self.to_jsonl(), overwrite=overwrite, hint="To replace it: overwrite=True.")
        return file
