"""Many clients at the same time; `benchmarks/serve.py` has more of them, and for longer."""

from __future__ import annotations

import asyncio

from fastmcp import FastMCP
from kit.many_clients import ask_many
from kit.obedient import Obedient

from casual_mcp_nb import Session


def test_no_turn_gets_the_answer_or_the_stats_of_another() -> None:
    desk: FastMCP[None] = FastMCP("desk")

    @desk.tool(annotations={"readOnlyHint": True})
    def echo(text: str) -> str:
        """Return a text."""
        return text

    with (
        Obedient() as model,
        Session(model.config, in_process={"desk": desk}) as session,
        session.serve.http(port=0) as service,
    ):
        mixed = asyncio.run(ask_many(service.url, clients=10, turns=24))
        assert (mixed.failed, mixed.wrong) == (0, 0)
        assert service.status.turns == 0
        assert session.turns == []
