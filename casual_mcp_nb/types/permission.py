"""Who decided whether a call may run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.types.tool import ToolName

Authority = Literal["policy", "person", "remembered", "nobody", "mock", "built-in", "direct"]
"""Who decided: the `policy` of the tool, without asking; the `person`, or the approver that answers for them; an answer that
was `remembered` in this conversation; `nobody`, since no one could be asked or no one answered. A `mock` ran nothing; a
`built-in` tool such as `search_tools` reaches no server; a `direct` call was made by the person."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a call may run, and who decided it.

    Args:
        by: Who decided.
        allowed: Whether it may run.
        policy: The policy of the tool; empty where none applies.
        scope: What the answer covers: the `call`, the `tool`, or the `server`; empty where nobody answered.
        reason: Why it was denied, in the words of whoever denied it; may be empty.
        definition: The hash of the definition of the tool that this was decided for; empty for a built-in tool.
    """

    by: Authority
    allowed: bool = True
    policy: str = ""
    scope: str = ""
    reason: str = ""
    definition: str = ""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why calls of a tool are denied where nobody can be asked.

    Args:
        tool: The tool.
        reason: Why its calls would be asked about.
        option: How whoever runs this allows them; empty where nothing does.
    """

    tool: ToolName
    reason: str
    option: str
