"""Cassettes: models' and servers' answers, recorded in one file and played back without them; a
session's cassette.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable

Kind = Literal[
    "turn",
    "model",
    "call",
    "resources",
    "prompts",
    "skills",
    "skill",
    "read",
    "prompt",
    "completion",
    "subscription",
    "approval",
    "nearest",
    "program",
    "tasks",
    "app",
    "listed",
]
"""`nearest` is a search: its query, and the tools nearest in meaning.

`program` is one that a model wrote, with its clock and its seed. `tasks` are those of which the
model was told when the conversation had so many messages. `app` is an app's page. `listed` are a
server's tools once they have changed.
"""
Plain = Any
"""A JSON value."""

CassetteMode = Literal["once", "none", "all"]
"""`once` records if the file does not exist, and replays it if it does; `none` only replays; `all`
records again.
"""
CassetteDoing = Literal["recording", "replaying"]
MatchOn = Literal["model", "system", "messages", "tools"]
"""The parts in a model request that must match the recording."""

FOLLOWED: tuple[Kind, ...] = ("model", "call")
"""Kinds of request after which a server's changed tools are there in a replay."""

MATCH_ON: tuple[MatchOn, ...] = ("model", "system", "messages", "tools")


@dataclass(frozen=True)
class CassetteState:
    """A cassette's state: recording or replaying, and how many requests to models and servers it
    has.

    In a replay, `unplayed` is how many were not made yet. `problem` is why it cannot be saved.
    """

    path: Path
    doing: CassetteDoing
    mode: CassetteMode
    interactions: int = 0
    unplayed: int = 0
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.doing} {self.path.name}"


@dataclass(frozen=True)
class CassetteOverview(Displayable):
    """A session's cassette, if one is in use."""

    state: CassetteState | None = None
