"""Findings about tools that are hard to find, or expensive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.base.displayable import DisplayableList, count
from casual_mcp_nb.base.tool import ToolName

FindingKind = Literal[
    "same text",
    "no description",
    "generic description",
    "hard to find",
    "parameter without description",
    "long description",
    "name",
    "provider",
    "host",
]


@dataclass(frozen=True)
class LintFinding:
    """A problem with a tool that makes it harder to find, or more expensive than necessary.

    Args:
        kind: Its kind.
        tool: Which tool.
        text: The problem, in words.
        others: Other tools involved.
    """

    kind: FindingKind
    tool: ToolName
    text: str
    others: tuple[ToolName, ...] = ()


@dataclass(frozen=True, repr=False)
class Lint(DisplayableList[LintFinding], items="findings"):
    """The problems in a catalog, sorted by kind, then in catalog order.

    Args:
        findings: The problems.
        tools: How many tools were checked.
    """

    findings: tuple[LintFinding, ...]
    tools: int

    def __repr__(self) -> str:
        return f"<Lint: {count(len(self), 'finding')} in {count(self.tools, 'tool')}>"

    def by_kind(self) -> dict[FindingKind, tuple[LintFinding, ...]]:
        """Group the findings by kind."""
        kinds: dict[FindingKind, tuple[LintFinding, ...]] = {}
        for finding in self.findings:
            kinds[finding.kind] = (*kinds.get(finding.kind, ()), finding)
        return kinds

    def rows(self) -> list[dict[str, str]]:
        """Build a list of rows, one per finding, for a DataFrame or a CSV file."""
        return [
            {
                "kind": finding.kind,
                "server": finding.tool.server,
                "tool": finding.tool.tool,
                "text": finding.text,
                "others": ", ".join(map(str, finding.others)),
            }
            for finding in self.findings
        ]
