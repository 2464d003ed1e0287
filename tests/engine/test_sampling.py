"""Older servers that ask for an answer of the model: only with the setting, only with the person's
consent, only so often.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kit.person import Person
from kit.raw_server import raw_config, received
from kit.turns import ask
from kit.waiting import wait_for_text

from casual_mcp_nb import Session
from casual_mcp_nb.base.mcp import MAX_SAMPLES
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest
from casual_mcp_nb.errors import ProviderError, UsageError
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.providers.scripted import call, scripted_model

SECRET = "s3cret-key-0123456789"


def asks(text: str = "<b>How many?</b>", **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    params = {"messages": [message], "systemPrompt": "Be brief.", "maxTokens": 1_000_000, **more}
    return {"ask": "sampling/createMessage", "ask_params": params, "answer": "asked"}


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def open_chat(
            plan: dict[str, Any], *answers: Any, sampling: bool = True, **options: Any
        ) -> Any:
            fields = {"sampling": sampling, "env": {"API_KEY": SECRET}}
            record = str(tmp_path / "record")
            config = {
                "servers": {"asker": raw_config(calls={"a": plan}, config=fields, record=record)}
            }
            chat = await stack.enter_async_context(McpToolChat.from_config(config, **options))
            model = scripted_model(*answers, name="answerer")
            chat.models._bound[model.name] = model
            chat.models._default = model.name
            return chat, model

        yield open_chat


async def test_a_notice_about_a_server_goes_to_the_turn_that_calls_it(opened: Any) -> None:
    chat, _ = await opened(asks(), "Three.", approver=Person())
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        waiting.set()
        await go_on.wait()
        return "waited"

    chat.add_tool(wait)
    beside = asyncio.create_task(ask(chat, call("notebook__wait"), "done"))
    await asyncio.wait_for(waiting.wait(), 30)
    calling = await ask(chat, call("asker__a"), "done")
    go_on.set()
    assert [notice.server for notice in calling.notices] == ["asker"]
    assert (await beside).notices == []


def answer_of(turn: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(turn.tool_calls[0].result)
    return found


async def test_what_the_person_allows_is_answered_by_the_default_model_and_counted(
    opened: Any, tmp_path: Path
) -> None:
    from casual_llm import AssistantMessage

    person = Person()
    response = ModelResponse(AssistantMessage(content="Three."), TokenUsage(120, 4), "stop")
    chat, model = await opened(asks(f"How many? {SECRET}"), response, approver=person)
    model.hosted_tools = ({"type": "web_search"},)
    turn = await ask(chat, call("asker__a"), "done")
    result = answer_of(turn)
    assert (result["role"], result["content"]["text"], result["stopReason"]) == (
        "assistant",
        "Three.",
        "endTurn",
    )
    (asked,) = person.asked
    assert (asked.reason, asked.policy, asked.tool.server) == ("sampling", "always", "asker")
    assert asked.arguments["max_tokens"] == 4_096
    assert asked.arguments["system"] == "Be brief."
    (request,) = model.client.requests
    assert request.tools == ()
    assert [message.content for message in request.messages] == [
        "Be brief.",
        asked.arguments["messages"][0]["text"],
    ]
    assert SECRET not in str((asked.arguments, request, turn.notices))
    (notice,) = [each for each in turn.notices if each.server == "asker"]
    assert "120" in notice.text
    assert "120" in str(chat.server_manager.log_of("asker").lines)
    hello = received(tmp_path / "record", "initialize")[0]
    assert hello["params"]["capabilities"].keys() == {"sampling", "extensions"}
    (record, _) = chat.audit.read()
    assert (record.caller, str(record.tool), record.status) == (
        "server",
        "asker:sampling/createMessage",
        "ok",
    )
    assert (record.permission.by, record.result_size) == ("person", len("Three."))


@pytest.mark.parametrize("person", [Person(False), Person("not your business"), None])
async def test_what_nobody_allows_is_an_error_for_the_server_and_no_request(
    opened: Any, person: Person | None
) -> None:
    chat, model = await opened(asks(), "Three.", approver=person)
    turn = await ask(chat, call("asker__a"), "done")
    error = answer_of(turn)
    assert error["code"] == -1
    if person is not None and isinstance(person.answer, str):
        assert person.answer in error["message"]
    assert model.client.requests == []
    assert turn.status == "done"
    (record, _) = chat.audit.read()
    assert (record.caller, record.status, record.permission.allowed) == ("server", "denied", False)


@pytest.mark.parametrize(
    "plan",
    [
        asks("x" * 20_001),
        asks(messages=[]),
        asks(
            messages=[
                {
                    "role": "user",
                    "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                }
            ]
        ),
    ],
)
async def test_more_than_a_person_can_read_is_refused_unasked(
    opened: Any, plan: dict[str, Any]
) -> None:
    person = Person()
    chat, model = await opened(plan, "Three.", approver=person)
    assert "code" in answer_of(await ask(chat, call("asker__a"), "done"))
    assert (person.asked, model.client.requests) == ([], [])


async def test_a_failing_model_costs_only_that_request_and_its_details_stay_here(
    opened: Any,
) -> None:
    chat, _ = await opened(
        asks(), ProviderError(f"no credit at host.example, {SECRET}"), approver=Person()
    )
    turn = await ask(chat, call("asker__a"), "done")
    assert "host.example" not in str(answer_of(turn))
    assert "host.example" in str(turn.notices)
    assert SECRET not in str(turn.notices)
    assert turn.status == "done"


async def test_one_call_gets_only_so_many_answers(opened: Any, tmp_path: Path) -> None:
    person = Person()
    # The call itself never returns.
    plan = asks() | {"ask_count": 30, "answer": ""}
    chat, model = await opened(plan, *["Three."] * 40, approver=person)
    chat.consent.limits.per_server = 100
    running = asyncio.create_task(ask(chat, call("asker__a"), "done"))
    await asyncio.to_thread(wait_for_text, tmp_path / "record", '"id": "ask-a', 1 + 30)
    running.cancel()
    assert len(person.asked) == len(model.client.requests) == MAX_SAMPLES


async def test_without_the_setting_it_is_not_declared_and_refused(
    opened: Any, tmp_path: Path
) -> None:
    person = Person()
    chat, model = await opened(asks(), "Three.", sampling=False, approver=person)
    assert "code" in answer_of(await ask(chat, call("asker__a"), "done"))
    assert (person.asked, model.client.requests) == ([], [])
    assert '"sampling": {' not in (tmp_path / "record").read_text()


def test_each_request_is_answered_by_itself() -> None:
    request = ApprovalRequest(
        ToolSpec("asker", "sampling/createMessage"),
        {"messages": ["\x1b[31m<b>"]},
        "always",
        "sampling",
    )
    one, other = ApprovalQuestion("panel", request), ApprovalQuestion("panel", request)
    assert [answer for answer, _ in one.choices] == ["approve", "deny"]
    with pytest.raises(UsageError):
        one.approve(for_conversation=True)
    other.settle_alike("tool", one)
    assert not one.future.done()
    assert not other.future.done()
    assert "\x1b" not in one.text
    one.deny("no")
    assert one.future.result().verdict == "no"


def test_a_session_asks_in_its_questions_and_answers_with_its_own_model() -> None:
    offline = {"clients": {"offline": {"provider": "offline"}}}
    models = {name: {"client": "offline", "model": "planner"} for name in ("first", "second")}
    servers = {"asker": raw_config(calls={"a": asks()}, config={"sampling": True})}
    with Session({"servers": servers, **offline, "models": models}) as session:
        session.questions.panel_opened()
        session.model = "second"
        future = session.submit("x", model=scripted_model(call("asker__a"), "done"))
        question = session.questions.wait()
        assert isinstance(question, ApprovalQuestion)
        assert (question.reason, question.arguments["model"]) == ("sampling", "second")
        question.approve()
        turn = future.result(30)
        assert answer_of(turn)["role"] == "assistant"
        assert [each.server for each in turn.notices] == ["asker"]
