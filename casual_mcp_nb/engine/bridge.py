"""The bridge: a model calls the tools that it found through `call_tool`, so the tools of its requests never change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery import SyntheticToolResult
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.event import CALL_TOOL

if TYPE_CHECKING:
    from casual_mcp_nb.types.tool import ToolSpec

DEFINITION: Mapping[str, Any] = {
    "name": CALL_TOOL,
    "description": "Call a tool that was found.",
    "parameters": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool"},
            "arguments": {"type": "object", "description": "By its schema"},
        },
        "required": ["name", "arguments"],
    },
}

_USAGE = f'{CALL_TOOL} takes the name of a tool that was found, and its arguments: {{"name": "…", "arguments": {{…}}}}'
_MAX_PROBLEM = 500


class CallTool:
    """Offers `call_tool`. Its calls are run as those of the tools that they name; this answers those that name none."""

    name = CALL_TOOL

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`. It never changes."""
        return dict(DEFINITION)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Build an error that explains how to use the tool."""
        return SyntheticToolResult(f"Error: {_USAGE}.", [], None)


def mismatch(tool: ToolSpec, problems: Sequence[str]) -> str:
    """Format the error for arguments that do not match a tool's schema, with the schema."""
    lines = [f"- {' '.join(problem.split())[:_MAX_PROBLEM]}" for problem in problems]
    schema = json.dumps(tool.definition["parameters"], ensure_ascii=False, separators=(",", ":"), default=str)
    head = f"Error: the arguments do not match the schema of {shown(tool.wire_name)}, so it was not called:"
    return "\n".join([head, *lines, f"Schema of arguments: {schema}"])
