"""Servers that ask the person: in a form, or with a link."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from kit.history import assert_valid
from kit.scripted_http import Reply, ScriptedHttp
from kit.turns import ask

from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.providers.scripted import call

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

FORM = {
    "mode": "form",
    "message": "Your password, please.",
    "requestedSchema": {
        "type": "object",
        "properties": {"password": {"type": "string", "default": "from the schema"}},
        "required": ["password"],
    },
}


def asking(raw: Raw, params: dict[str, Any], **plan: Any) -> dict[str, Any]:
    return {
        "asker": raw(
            calls={"a": {"ask": "elicitation/create", "ask_params": params, "answer": "asked"}},
            **plan,
        )
    }


@pytest.mark.fault(38)
@pytest.mark.parametrize("mode", ["form", "url"])
@pytest.mark.parametrize("answer", ["decline", "cancel"])
async def test_a_servers_question_names_the_server_and_a_refusal_tells_it_nothing(
    opened: Opened, raw: Raw, mode: str, answer: Any
) -> None:
    seen: list[Any] = []

    async def handler(question: ServerQuestion) -> QuestionAnswer:
        seen.append((question.server, question.message, question.url))
        return QuestionAnswer(answer)

    with ScriptedHttp(lambda request: Reply()) as site:
        link = {
            "mode": "url",
            "message": "Log in here.",
            "url": f"{site.url}/login",
            "elicitationId": "1",
        }
        params = FORM if mode == "form" else link
        chat = await opened(asking(raw, params, version="2025-11-25"), elicitation=handler)
        turn = await ask(chat, call("asker__a"), "done")
        assert seen == [("asker", params["message"], params.get("url", ""))]
        assert json.loads(turn.tool_calls[0].result) == {"action": answer}
        assert site.seen == []
        assert_valid(turn.messages)


@pytest.mark.fault(38)
async def test_only_what_the_person_gives_reaches_the_server(opened: Opened, raw: Raw) -> None:
    async def handler(_question: ServerQuestion) -> QuestionAnswer:
        return QuestionAnswer("accept", {"password": "given by hand"})

    chat = await opened(asking(raw, FORM), elicitation=handler)
    turn = await ask(chat, call("asker__a"), "done")
    assert json.loads(turn.tool_calls[0].result) == {
        "action": "accept",
        "content": {"password": "given by hand"},
    }


@pytest.mark.fault(38)
async def test_without_a_handler_a_question_is_refused_and_the_turn_names_the_server(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened(asking(raw, FORM))
    turn = await ask(chat, call("asker__a"), "done")
    assert "content" not in json.loads(turn.tool_calls[0].result)
    (log,) = turn.server_logs
    assert log.server == "asker"
    assert "'elicitation/create' and was refused" in log.text
    assert_valid(turn.messages)
