"""Results of `session.doctor()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from casual_mcp_nb.types.displayable import DisplayableList

CheckStatus = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Args:
        part: The group it belongs to, such as `packages` or `servers`.
        name: What was checked.
        verdict: `ok`; `warn`, if something that may not be needed does not work; `fail`, if something needed does not work.
        found: The finding, in words.
        advice: What to do about it; empty if nothing.
    """

    part: str
    name: str
    verdict: CheckStatus
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis(DisplayableList[Check]):
    """The results of `session.doctor()`.

    Args:
        findings: One for each check, grouped by part.
    """

    findings: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything needed works."""
        return all(finding.verdict != "fail" for finding in self.findings)

    @property
    def _items(self) -> tuple[Check, ...]:
        return self.findings
