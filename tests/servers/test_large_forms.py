"""A form that is too large to be shown is refused, and no form of a server holds the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.loop_guard import LoopGuard

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers


@pytest.mark.defect("A2")
@pytest.mark.parametrize(("fields", "forms_shown"), [(3, 1), (20_000, 0)])
async def test_a_form_of_too_many_fields_is_refused(
    opened: Callable[..., Any],
    raw: Callable[..., ServerConfig],
    tmp_path: Any,
    fields: int,
    forms_shown: int,
) -> None:
    forms: list[str] = []

    async def elicitation(question: ServerQuestion) -> QuestionAnswer:
        forms.append(question.message)
        return QuestionAnswer("decline")

    schema = {
        "type": "object",
        "properties": {f"f{n}": {"type": "string", "pattern": "^(a+)+$"} for n in range(fields)},
    }
    params = {"message": "fill in", "requestedSchema": schema}
    calls = {"form": {"ask": "elicitation/create", "ask_params": params, "answer": "asked"}}
    connection = opened(
        Connection(
            "asker",
            raw(folder=tmp_path, calls=calls, version="2025-11-25"),
            handlers=Handlers(elicitation=elicitation),
        )
    )
    guard = LoopGuard()
    guard.start()
    await connection.connect()
    result = await connection.call("form", {})
    guard.stop()
    assert len(forms) == forms_shown
    assert result.content
    assert not guard.take()


@pytest.mark.defect("A2")
async def test_an_answer_is_not_matched_against_the_servers_patterns_on_the_loop(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], tmp_path: Any
) -> None:
    async def elicitation(_question: ServerQuestion) -> QuestionAnswer:
        return QuestionAnswer("accept", {"f": "a" * 60 + "!"})

    schema = {"type": "object", "properties": {"f": {"type": "string", "pattern": "^(a+)+$"}}}
    params = {"message": "fill in", "requestedSchema": schema}
    calls = {"form": {"ask": "elicitation/create", "ask_params": params, "answer": "asked"}}
    handlers = Handlers(elicitation=elicitation)
    connection = opened(
        Connection(
            "asker", raw(folder=tmp_path, calls=calls, version="2025-11-25"), handlers=handlers
        )
    )
    await connection.connect()
    # The guard against a held loop fails this test where the pattern is tried.
    result = await connection.call("form", {})
    assert result.content
    answers = [
        message
        for message in connection.read_messages()
        if message.direction == "sent" and '"accept"' in message.text
    ]
    assert len(answers) == 1
