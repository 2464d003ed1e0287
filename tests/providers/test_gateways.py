"""Gateways that pass on what loads deferred tools, refuse it, or drop it: found out once, and
remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.deferral_rules import DEFERRING
from kit.message_rules import StrictProvider
from kit.provider import Provider, answer

from casual_mcp_nb.conversation.event import StepFinished
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.chat_model import FORGOTTEN_AFTER, MAX_GATEWAYS, gateways_path

MODELS = {"anthropic": "claude-sonnet-5", "openai-responses": "gpt-5.6"}
TOOL, SUM = "math__evaluate_expression", {"expression": "2 + 3"}
SEARCH = ("search_tools", {"query": "calculate an expression"})
FIELDS = ("defer_loading", "tool_reference", "additional_tools")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *args, **options: tmp_path / "cache")


def no_fields(body: Mapping[str, Any]) -> str | None:
    """A gateway that validates what it passes on."""
    sent = json.dumps(body)
    return next(
        (f"{name}: Extra inputs are not permitted" for name in FIELDS if name in sent), None
    )


async def ask(server: Provider, wire: str) -> Turn:
    config = server.config(wire)
    config["models"]["small"]["model"] = MODELS[wire]
    config["servers"] = {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True}
    }
    config["tool_discovery"] = {"enabled": True}
    async with McpToolChat.from_config(config) as chat:
        return await chat.run([UserMessage(content="Add 2 and 3.")], TurnOptions(stream=False))


def ways(turn: Turn) -> list[str]:
    return [step.request.delivery for step in turn.steps]


def remembered() -> list[bool]:
    document = json.loads(gateways_path().read_text())
    assert document["version"] == 1
    return [native for native, _ in document["gateways"].values()]


@pytest.mark.parametrize("wire", MODELS)
async def test_a_gateway_that_passes_the_fields_on_is_asked_natively(
    strict: Callable[..., StrictProvider], wire: str
) -> None:
    replies = [answer(wire, "", SEARCH), answer(wire, "", (TOOL, SUM)), answer(wire, "Five.")]
    rules = DEFERRING["openai-responses-default" if wire == "openai-responses" else wire]
    server = strict(rules, *replies)
    turn = await ask(server, wire)
    assert (turn.answer, ways(turn), turn.notices) == ("Five.", ["native"] * 3, [])
    assert server.refusals == []
    assert remembered() == [True]


@pytest.mark.parametrize("wire", MODELS)
async def test_a_gateway_that_refuses_the_fields_is_asked_once(
    strict: Callable[..., StrictProvider], wire: str
) -> None:
    replies = [answer(wire, "", SEARCH), answer(wire, "", (TOOL, SUM)), answer(wire, "Five.")]
    server = strict((no_fields,), *replies, *replies)
    first, second = await ask(server, wire), await ask(server, wire)
    assert [turn.answer for turn in (first, second)] == ["Five.", "Five."]
    assert [len(turn.notices) for turn in (first, second)] == [1, 0]
    assert set(ways(second)) == {"definitions"}
    assert [call.status for call in first.tool_calls] == ["ok", "ok"]
    assert len(server.refusals) == 1
    assert remembered() == [False]
    # It is tried again when that is long ago.
    entries = json.loads(gateways_path().read_text())["gateways"]
    old = {key: [native, time.time() - FORGOTTEN_AFTER - 1] for key, (native, _) in entries.items()}
    gateways_path().write_text(json.dumps(old))
    server.replies[:] = strict((), *replies).replies
    assert (await ask(server, wire)).answer == "Five."
    assert len(server.refusals) == 2


@pytest.mark.parametrize("wire", MODELS)
async def test_a_gateway_that_drops_the_fields_is_noticed_and_the_step_repeated(
    strict: Callable[..., StrictProvider], wire: str
) -> None:
    dropped = [
        answer(wire, "", SEARCH, usage=(500, 7)),
        answer(wire, "I have no such tool.", usage=(540, 7)),
    ]
    replies = [
        answer(wire, "", (TOOL, SUM), usage=(1_200, 7)),
        answer(wire, "Five.", usage=(1_300, 7)),
    ]
    server = strict((), *dropped, *replies)
    turn = await ask(server, wire)
    assert (turn.status, turn.answer) == ("done", "Five.")
    assert ways(turn) == ["native", "native", "definitions", "definitions"]
    assert [call.status for call in turn.tool_calls] == ["ok", "ok"]
    assert len(turn.notices) == 1
    finished = turn.trace.of(StepFinished)
    assert [event.dropped for event in finished] == [False, True, False, False]
    assert turn.stats.tokens.prompt_tokens == 500 + 540 + 1_200 + 1_300
    assert all(step.seconds is not None for step in turn.steps)
    assert [message.role for message in turn.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert "I have no such tool." not in json.dumps(server.seen[-1].body)
    assert TOOL in [tool["name"] for tool in server.seen[-1].body["tools"]]
    assert remembered() == [False]


@pytest.mark.parametrize("wire", MODELS)
async def test_without_a_call_or_reported_tokens_a_gateway_stays_on_trial(
    strict: Callable[..., StrictProvider], wire: str
) -> None:
    server = strict(
        (), answer(wire, "", SEARCH, usage=None), answer(wire, "I know it: five.", usage=None)
    )
    turn = await ask(server, wire)
    assert (turn.answer, ways(turn)) == ("I know it: five.", ["native", "native"])
    assert not gateways_path().exists()


async def test_a_file_of_a_later_version_stays_as_it_is(
    strict: Callable[..., StrictProvider],
) -> None:
    gateways_path().parent.mkdir(parents=True)
    later = json.dumps({"version": 2, "gateways": {"key": {"native": True}}})
    gateways_path().write_text(later)
    replies = [
        answer("anthropic", "", SEARCH),
        answer("anthropic", "", (TOOL, SUM)),
        answer("anthropic", "Five."),
    ]
    assert (await ask(strict((), *replies), "anthropic")).answer == "Five."
    assert gateways_path().read_text() == later


@pytest.mark.parametrize("content", ["", '{"a": 1}', '{"version": 1}'])
async def test_a_file_that_cannot_be_read_is_ignored_and_is_bounded(
    strict: Callable[..., StrictProvider], content: str
) -> None:
    gateways_path().parent.mkdir(parents=True)
    gateways_path().write_text(content)
    replies = [
        answer("anthropic", "", SEARCH),
        answer("anthropic", "", (TOOL, SUM)),
        answer("anthropic", "Five."),
    ]
    assert (await ask(strict((), *replies), "anthropic")).answer == "Five."
    gateways_path().write_text(
        json.dumps({f"{number}": [False, time.time() - 60] for number in range(MAX_GATEWAYS + 9)})
    )
    assert (await ask(strict((), *replies), "anthropic")).answer == "Five."
    assert len(remembered()) == MAX_GATEWAYS
    assert remembered()[0]
