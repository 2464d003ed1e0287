"""What a look at a set-up came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.types.displayable import DisplayableList

CheckStatus = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        part: What it belongs to, such as `packages` or `servers`.
        name: What was looked at.
        verdict: `ok`; `warn`, when something will not work that may not be needed; `fail`, when something needed does not work.
        found: What was found, in words.
        advice: What to do about it; empty where there is nothing to do.
    """

    part: str
    name: str
    verdict: CheckStatus
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis(DisplayableList[Check]):
    """What `session.doctor()` found.

    Args:
        findings: One for each thing that was looked at, by part.
    """

    findings: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything needed works."""
        return all(finding.verdict != "fail" for finding in self.findings)

    @property
    def _items(self) -> tuple[Check, ...]:
        return self.findings
