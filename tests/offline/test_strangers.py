"""The planner at servers that it was not made for: how many ordinary questions it answers, declines
or gets wrong.

`python -m pytest tests/offline/test_strangers.py -s` prints the answer to each question that was
not right, and the figures. The planner was improved with the tool shed, the choir, the documented
tools, the greenhouse, the film archive, the observatory and the campsite; at their first run, the
others were strangers to it, and so was the campsite: 8 right, 1 declined, and 1 guest checked out by
a question.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from fastmcp import Client, FastMCP
from kit.strangers import (
    apiary,
    bakery,
    campsite,
    choir,
    clinic,
    documented,
    film_archive,
    greenhouse,
    harbour,
    kennel,
    museum,
    observatory,
    races,
    toolshed,
    workshop,
)
from kit.strangers.question import Question

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.servers.convert import tool_from_mcp

Outcome = Literal["right", "declined", "wrong", "wrote"]


async def outcome(room: Any, question: Question) -> tuple[Outcome, Any]:
    """How the planner answers: with the right call (or with none, where none is right), with
    none although one was right, with another call, or with another that may write.
    """
    *before, last = question.says
    said = [await room.ask(text) for text in before]
    said.append(await room.ask(last))
    calls = [call for one in said for call in one.tools]
    wanted = [(f"x__{name}", arguments) for name, arguments in question.right]
    if not calls:
        honest = "not a language model" in said[-1].text or "still need" in said[-1].text
        if not honest:
            return "wrong", said[-1].text
        return ("declined" if wanted else "right"), said[-1].text
    if len(calls) == 1 and calls[0] in wanted and not any(one.tools for one in said[:-1]):
        return "right", calls
    writes = [name for name, _ in calls if not room.catalog.by_wire_name[name].read_only]
    return ("wrote" if writes else "wrong"), calls


async def tools_of(server: FastMCP[Any]) -> list[ToolSpec]:
    async with Client(server) as client:
        return [tool_from_mcp(tool, "x") for tool in await client.list_tools()]


async def figures(room_of: Any, module: Any) -> Counter[str]:
    tools = await tools_of(module.server)
    counts: Counter[str] = Counter()
    for question in module.QUESTIONS:
        kind, seen = await outcome(room_of(tools), question)
        counts[kind] += 1
        if kind != "right":
            print(f"  {kind:9}{' / '.join(question.says)}  {seen}")
    print(f"{module.server.name}: {dict(counts)}")
    return counts


RIGHT = {
    toolshed: 19,
    choir: 17,
    documented: 20,
    apiary: 19,
    harbour: 14,
    workshop: 13,
    races: 11,
    greenhouse: 7,
    film_archive: 9,
    clinic: 9,
    observatory: 9,
    bakery: 8,
    campsite: 9,
    kennel: 9,
    museum: 7,
}
"""How many questions of each server are answered right, at least."""


async def test_a_strangers_questions_are_answered_or_declined_and_nothing_is_written_on_a_guess(
    room_of: Any,
) -> None:
    total: Counter[str] = Counter()
    for module, least in RIGHT.items():
        counts = await figures(room_of, module)
        assert counts["right"] >= least
        total += counts
    assert (total["right"] + total["declined"]) / total.total() >= 0.9
    assert total["wrong"] / total.total() <= 0.01
    assert not total["wrote"]
