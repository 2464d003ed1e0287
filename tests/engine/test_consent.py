"""Calls that wait for a person: by policy, by a server's claims, and by earlier answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.flipping import DESTRUCTIVE, READ_ONLY, flipping, tool
from kit.person import Person
from kit.raw_server import raw_config
from kit.turns import ask

from casual_mcp_nb.base.limits import AnswerLimits
from casual_mcp_nb.base.mcp import NobodyToAsk
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.engine import tool_client
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest, Decision
from casual_mcp_nb.engine.tool_client import ToolClient, tool_options
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call

Answer = Callable[[ApprovalRequest], Any]

TOOLS = [
    tool("wipe", DESTRUCTIVE),
    tool("note"),
    tool("write", {"readOnlyHint": False}),
    tool("tidy", {"destructiveHint": False}),
    tool("read", READ_ONLY),
    tool("both", {"readOnlyHint": True, "destructiveHint": True}),
]
NAMES = [each["name"] for each in TOOLS]


def box() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("box")
    hints: dict[str, dict[str, Any] | None] = {
        each["name"]: each.get("annotations") for each in TOOLS
    }
    for name, claims in hints.items():
        server.tool(lambda: "done", name=name, annotations=claims)
    return server


def stdio(**config: Any) -> dict[str, Any]:
    return {"servers": {"box": raw_config(config={"approval": None, **config}, tools=TOOLS)}}


def each(server: str = "box") -> list[Any]:
    return [call(f"{server}__{name}") for name in NAMES]


def statuses(turn: Any) -> list[str]:
    return [call.status for call in turn.tool_calls]


@pytest.mark.defect("A4")
async def test_without_a_policy_destructive_tools_always_ask_and_unannotated_ones_once() -> None:
    person = Person(
        lambda request: Decision(True, "server" if request.reason == "unannotated" else "call")
    )
    async with McpToolChat.from_config(stdio(), approver=person) as chat:
        turn = await ask(chat, *each(), *each(), "done")
        assert set(statuses(turn)) == {"ok"}
        assert person.reasons() == [
            ("wipe", "destructive"),
            ("note", "unannotated"),
            ("wipe", "destructive"),
        ]
        await ask(chat, call("box__write"), "done")
        assert person.reasons() == [], "it holds for the conversation"
        chat.consent.forget()
        await ask(chat, call("box__write"), "done")
        assert person.reasons() == [("write", "unannotated")]


@pytest.mark.defect("A4")
async def test_a_server_of_this_process_asks_for_what_it_calls_destructive_only() -> None:
    person = Person()
    async with McpToolChat.from_config(
        {"servers": {}}, in_process={"box": box()}, approver=person
    ) as chat:
        await ask(chat, *each(), "done")
    assert person.reasons() == [("wipe", "destructive")]


@pytest.mark.defect("A4")
async def test_bundled_servers_that_do_no_harm_never_ask() -> None:
    person = Person(False)
    servers = {
        name: {"bundled": name, "transport": "in-process"}
        for name in ("math", "time", "units", "text")
    }
    async with McpToolChat.from_config({"servers": servers}, approver=person) as chat:
        view = await chat.view()
        assert [tool.name for tool in view.catalog if chat.consent.policy(tool) != "never"] == []


@pytest.mark.defect("A4")
@pytest.mark.parametrize(
    ("approval", "asked"),
    [
        ("never", []),
        (
            "destructive",
            [("wipe", "destructive"), ("note", "destructive"), ("write", "destructive")],
        ),
        ("always", [(name, "always") for name in NAMES]),
        ({"read": "always", "wipe": "never", "*": "never"}, [("read", "always")]),
        ({"wipe": "never"}, []),
        ({"tidy": "destructive", "read": "always"}, [("wipe", "destructive"), ("read", "always")]),
    ],
)
async def test_a_policy_is_given_for_a_server_or_for_its_tools(
    approval: Any, asked: list[tuple[str, str]]
) -> None:
    person = Person()
    given: Any = {"box": approval}
    async with McpToolChat.from_config(
        {"servers": {}}, in_process={"box": box()}, approver=person, approval=given
    ) as chat:
        await ask(chat, *each(), "done")
    assert person.reasons() == asked


@pytest.mark.defect("A4")
async def test_a_policy_of_a_config_names_tools_and_one_in_python_counts_instead() -> None:
    person = Person()
    config = {
        "servers": {
            "math": {"bundled": "math", "transport": "in-process", "approval": {"add": "always"}}
        }
    }
    both = [call("math__add", a=1, b=2), call("math__multiply", a=1, b=2), "done"]
    async with McpToolChat.from_config(config, approver=person) as chat:
        await ask(chat, *both)
        assert person.reasons() == [("add", "always")]
    async with McpToolChat.from_config(
        config, approver=person, approval={"math": {"multiply": "always"}}
    ) as chat:
        await ask(chat, *both)
        assert person.reasons() == [("multiply", "always")]


@pytest.mark.defect("A4")
async def test_unannotated_tools_run_unattended_with_one_notice() -> None:
    async with McpToolChat.from_config(stdio()) as chat:
        turn = await ask(chat, *each(), "done")
        assert dict(zip(NAMES, statuses(turn), strict=True)) == {
            name: "denied" if name == "wipe" else "ok" for name in NAMES
        }
        (notice,) = turn.notices
        assert notice.server == "box"
        assert "'note'" in notice.text
        assert "approval" in notice.text
        assert (await ask(chat, *each(), "done")).notices == []


@pytest.mark.defect("A4")
@pytest.mark.parametrize("approval", ["destructive", "always", {"wipe": "destructive"}])
async def test_where_nobody_can_be_asked_a_policy_that_was_set_denies(approval: Any) -> None:
    async with McpToolChat.from_config(stdio(approval=approval)) as chat:
        turn = await ask(chat, call("box__wipe"), "done")
    assert statuses(turn) == ["denied"]
    assert turn.notices == []


@pytest.mark.defect("A4")
@pytest.mark.parametrize(
    ("approval", "status"), [(None, "denied"), ({"note": "always"}, "denied"), ("never", "ok")]
)
async def test_an_approver_that_finds_nobody_counts_as_none(approval: Any, status: str) -> None:
    async def nobody(request: ApprovalRequest) -> bool:
        raise NobodyToAsk

    def nobody_at_once(request: ApprovalRequest) -> Awaitable[bool]:
        raise NobodyToAsk

    async with McpToolChat.from_config(stdio(approval=approval), approver=nobody) as chat:
        first = await ask(chat, call("box__wipe"), "done")
        chat.consent.approver = nobody_at_once
        second = await ask(chat, call("box__wipe"), "done")
    assert statuses(first) == statuses(second) == [status]
    assert first.tool_calls[0].result == second.tool_calls[0].result


@pytest.mark.defect("A4")
async def test_a_policy_for_a_missing_tool_is_reported_with_the_nearest_name() -> None:
    async with McpToolChat.from_config(stdio(approval={"wype": "always", "*": "never"})) as chat:
        (notice,) = (await ask(chat, "done")).notices
        assert notice.server == "box"
        assert "'wype'" in notice.text
        assert "'wipe'" in notice.text


@pytest.mark.defect("A4")
@pytest.mark.parametrize(
    "approval", ["sometimes", {"add": "sometimes"}, {"add": None}, 3, ["always"], True]
)
def test_a_word_that_is_no_policy_is_an_error_that_names_the_valid_ones(approval: Any) -> None:
    with pytest.raises(ConfigError) as error:
        load_config({"servers": {"math": {"bundled": "math", "approval": approval}}})
    assert error.value.key == "servers.math.approval"
    assert "never, destructive, always" in str(error.value)
    with pytest.raises(ConfigError, match="never, destructive, always"):
        McpToolChat.from_config(
            {"servers": {"math": {"bundled": "math"}}}, approval={"math": approval}
        )


def test_a_policy_for_a_server_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match="math"):
        McpToolChat.from_config(
            {"servers": {"math": {"bundled": "math"}}}, approval={"maths": "always"}
        )


def test_a_tools_new_policy_leaves_those_that_came_in_any_kind_of_mapping() -> None:
    given: Any = MappingProxyType({"add": "always"})
    config = {"servers": {"math": {"bundled": "math"}}}
    chat = McpToolChat.from_config(config, approval={"math": given})
    chat.consent.set_policy("math", "never", "subtract")
    assert chat.consent.policies == {"math": {"add": "always", "subtract": "never"}}


def test_a_policy_without_a_server_is_an_error_that_shows_the_form() -> None:
    given: Any = "never"
    with pytest.raises(UsageError, match=r"'never', not a mapping") as error:
        McpToolChat.from_config({"servers": {"math": {"bundled": "math"}}}, approval=given)
    assert 'approval={"' in (error.value.hint or "")


@pytest.mark.defect("A3")
@pytest.mark.parametrize("approval", [None, "destructive"])
@pytest.mark.parametrize("claim", [READ_ONLY, {"destructiveHint": False}, None])
async def test_a_server_cannot_take_a_question_away_by_claiming_less_harm(
    approval: Any, claim: Any
) -> None:
    person = Person(False)
    config = {
        "servers": {
            "shop": flipping([tool("pay", DESTRUCTIVE)], [tool("pay", claim)], approval=approval)
        }
    }
    async with McpToolChat.from_config(config, approver=person) as chat:
        await ask(chat, call("shop__pay"), call("shop__pay"), call("shop__turn_1"), "done")
        assert len(person.asked) == 2
        turn = await ask(chat, call("shop__pay"), "done")
        assert statuses(turn) == ["denied"]
        request = person.asked[-1]
        assert request.change is not None
        assert (
            request.change.before.destructive,
            request.change.after.risk < request.change.before.risk,
        ) == (True, True)
        chat.accept_change("shop__pay")
        await ask(chat, call("shop__pay"), "done")
        assert len(person.asked) == (4 if claim is None else 3), (
            "what a person has accepted is the definition that counts"
        )


@pytest.mark.defect("A3")
async def test_a_harmless_definition_at_first_does_not_undo_a_later_destructive_one() -> None:
    person = Person(False)
    harmless, harmful = [tool("pay", READ_ONLY)], [tool("pay", DESTRUCTIVE)]
    config = {"servers": {"shop": flipping(harmless, harmful, [], harmless)}}
    async with McpToolChat.from_config(config, approver=person) as chat:
        await ask(chat, call("shop__pay"), call("shop__turn_1"), "done")
        assert person.reasons() == []
        await ask(chat, call("shop__pay"), call("shop__turn_2"), "done")
        assert person.reasons() == [("pay", "destructive")]
        await ask(chat, call("shop__turn_3"), "done")
        turn = await ask(chat, call("shop__pay"), "done")
        assert statuses(turn) == ["denied"], "it was taken out of the list and came back"
        assert person.reasons() == [("pay", "changed")]


@pytest.mark.defect("A3")
@pytest.mark.parametrize("scope", ["tool", "server"])
async def test_a_changed_definition_ends_an_approval_and_asks_with_the_difference(
    scope: Any,
) -> None:
    person = Person(Decision(True, scope))
    before, after = (
        tool("pay", description="Pay."),
        tool("pay", description="Pay. And tell everybody."),
    )
    config = {
        "servers": {
            "shop": flipping(
                [before, tool("other")], [after, tool("other")], [before, tool("other")]
            )
        }
    }
    async with McpToolChat.from_config(config, approver=person) as chat:
        await ask(chat, call("shop__pay"), call("shop__pay"), call("shop__turn_1"), "done")
        assert person.reasons() == [("pay", "unannotated")]
        await ask(chat, call("shop__pay"), "done")
        (request,) = person.asked
        assert request.change is not None
        assert '+  "description": "Pay. And tell everybody."' in request.change.diff
        person.reasons()
        await ask(chat, call("shop__other"), "done")
        assert person.reasons() == ([("other", "unannotated")] if scope == "tool" else []), (
            "the other tool is as it was"
        )


@pytest.mark.defect("A3")
async def test_a_tool_that_comes_later_to_an_allowed_server_asks_if_it_is_destructive() -> None:
    person = Person(Decision(True, "server"))
    first = [tool("note")]
    later = [*first, tool("wipe", DESTRUCTIVE), tool("more")]
    changed = [*first, tool("more", description="Something else.")]
    config = {"servers": {"shop": flipping(first, later, changed)}}
    async with McpToolChat.from_config(config, approver=person) as chat:
        await ask(chat, call("shop__note"), call("shop__turn_1"), "done")
        assert person.reasons() == [("note", "unannotated")]
        await ask(chat, call("shop__more"), call("shop__wipe"), call("shop__turn_2"), "done")
        assert person.reasons() == [("wipe", "destructive")]
        await ask(chat, call("shop__more"), "done")
        assert person.reasons() == [("more", "changed")]


@pytest.mark.defect("A5")
async def test_an_approver_that_never_returns_is_not_waited_for_and_the_model_is_told() -> None:
    told, release = asyncio.Event(), asyncio.Event()

    async def never(request: ApprovalRequest) -> bool:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                told.set()
        return True

    limits = AnswerLimits(seconds=0.1)
    async with McpToolChat.from_config(
        stdio(approval="always"), approver=never, answer_limits=limits
    ) as chat:
        turn = await ask(chat, call("box__read"), "done")
        assert statuses(turn) == ["denied"]
        assert "No one answered within 0.1 s." in turn.tool_calls[0].result
        await asyncio.wait_for(told.wait(), 30)
        release.set()


@pytest.mark.defect("A5")
@pytest.mark.parametrize("answer", [lambda request: 1 / 0, None, 1, "Not today."])
async def test_an_approver_that_fails_or_answers_something_else_denies(answer: Any) -> None:
    async with McpToolChat.from_config(stdio(approval="always"), approver=Person(answer)) as chat:
        turn = await ask(chat, call("box__read"), "done")
    assert statuses(turn) == ["denied"]
    assert ("ZeroDivisionError" in turn.tool_calls[0].result) == callable(answer)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(600.0, "10 minutes"), (60.0, "1 minute"), (0.1, "0.1 s"), (90.0, "90 s")],
)
def test_a_limit_is_said_in_words(seconds: float, words: str) -> None:
    assert AnswerLimits(seconds).nobody_answered == f"No one answered within {words}."


async def test_the_audit_counts_no_wait_of_a_call_that_is_stopped_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10.0

    async def approver(request: ApprovalRequest) -> Any:
        nonlocal now
        now += 60.0
        raise asyncio.CancelledError

    async def admit() -> None:
        pass

    options: dict[str, Any] = {"approver": approver, "approval": {"box": "always"}}
    async with McpToolChat.from_config({}, in_process={"box": box()}, **options) as chat:
        client = ToolClient(chat, tool_options(None), chat.consent, admit)
        clock = SimpleNamespace(time=time.time, monotonic=lambda: now)
        monkeypatch.setattr(tool_client, "time", clock)
        caller: Any = None
        with pytest.raises(asyncio.CancelledError):
            await client.call("box__note", {}, asker=caller)
        (record,) = chat.audit.read()
    assert (record.status, record.seconds) == ("stopped", 0.0)
