"""Questions in words that the planner was not made with, over the demo and over servers of other
people.

The planner is improved with every second one. The others gave it two of its rules (the week of a
date, and a SELECT that is to be run), so their figures are nearly those of questions unseen.
`python -m pytest tests/offline/test_paraphrases.py -s` prints both halves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from casual_mcp_nb.base.tool import ToolSpec

PARAPHRASES: dict[str, Any] = json.loads(
    Path(__file__).with_name("paraphrases.json").read_text(encoding="utf-8")
)
Outcome = Literal["right", "asks", "names", "another", "none", "wrong"]


async def outcome(room: Any, ask: str, tool: str) -> Outcome:
    """How the planner answers: it calls the right tool, asks for an argument of it, names it or
    another as the nearest, or names none; or it calls another tool or asks for its arguments.
    """
    said = await room.ask(ask)
    if said.tools:
        return "right" if all(re.fullmatch(tool, name) for name, _ in said.tools) else "wrong"
    asked = re.search(r"I can use `([^`]+)`", said.text)
    if asked:
        return "asks" if re.fullmatch(tool, asked[1].replace(":", "__")) else "wrong"
    nearest = re.search(r"The nearest is `([^:]+):([^`]+)`", said.text)
    return (
        "none"
        if nearest is None
        else "names"
        if re.fullmatch(tool, "__".join(nearest.groups()))
        else "another"
    )


def counted(outcomes: list[Outcome]) -> dict[str, int]:
    return {kind: outcomes.count(kind) for kind in get_args(Outcome)}


async def measured(
    half: int, demo: list[ToolSpec], room_of: Callable[..., Any]
) -> dict[str, dict[str, int]]:
    """Count the outcomes of the questions with even (0) or odd (1) places, in rooms whose tools do
    nothing.
    """
    over_demo = [
        await outcome(room_of(demo, loaded={"system-info"}), row["ask"], row["tool"])
        for row in PARAPHRASES["demo"][half::2]
    ]
    over_own = []
    for row in PARAPHRASES["own"][half::2]:
        tools = [ToolSpec(row["server"], **tool) for tool in PARAPHRASES["servers"][row["server"]]]
        over_own.append(
            await outcome(room_of(tools), row["ask"], f"{row['server']}__{row['tool']}")
        )
    return {"demo": counted(over_demo), "own": counted(over_own)}


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1], ids=["seen", "unseen"])
async def test_most_questions_in_other_words_get_the_right_tool(
    bundled_room: Any, room_of: Any, half: int
) -> None:
    figures = await measured(half, list(bundled_room.catalog), room_of)
    print(figures)
    for counts in figures.values():
        assert counts["right"] / sum(counts.values()) >= 0.7
        assert counts["wrong"] / sum(counts.values()) <= 0.1
        assert counts["none"] / sum(counts.values()) <= 0.1
