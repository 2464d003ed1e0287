"""What a look at a set-up came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

from casual_mcp_nb.types.displayable import Displayable

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
class Diagnosis(Sequence[Check], Displayable):
    """What `session.doctor()` found.

    Args:
        findings: One for each thing that was looked at, by part.
    """

    findings: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything needed works."""
        return all(finding.verdict != "fail" for finding in self.findings)

    @overload
    def __getitem__(self, key: int) -> Check: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Check, ...]: ...
    def __getitem__(self, key: int | slice) -> Check | tuple[Check, ...]:
        return self.findings[key]

    def __len__(self) -> int:
        return len(self.findings)
