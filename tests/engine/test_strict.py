"""The strict setting: every call asks, a changed tool is blocked, and calls that nobody can approve
are denied.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import FastMCP
from kit.flipping import READ_ONLY, flipping, tool
from kit.person import Person

from casual_mcp_nb import McpToolChat, Session, ToolContext
from casual_mcp_nb.engine.consent import Decision
from casual_mcp_nb.providers.scripted import call, scripted_model

MATH = {"math": {"bundled": "math", "transport": "in-process"}}


def reader() -> FastMCP[Any]:
    server = FastMCP("reader")

    @server.tool(annotations={"readOnlyHint": True})
    def read() -> str:
        return "text"

    return server


@pytest.mark.parametrize("in_config", [True, False])
async def test_tools_that_never_asked_ask_now_unless_somebody_said_never(in_config: bool) -> None:
    person = Person(Decision(True, "tool"))
    config: dict[str, Any] = {
        "servers": {
            **MATH,
            "time": {"bundled": "time", "transport": "in-process", "approval": "never"},
        }
    }
    config |= {"strict": True} if in_config else {}
    async with McpToolChat.from_config(
        config, in_process={"reader": reader()}, approver=person, strict=not in_config
    ) as chat:
        model = scripted_model(
            call("math__add", a=1, b=2),
            call("math__add", a=1, b=3),
            call("reader__read"),
            call("time__current_time", timezone="UTC"),
            "done",
        )
        await chat.chat("x", model=model)
        records = chat.audit.read()
    # The answer for the tool is remembered, with its definition.
    assert person.reasons() == [("add", "always"), ("read", "always")]
    assert [record.permission.by for record in records if record.permission] == [
        "person",
        "remembered",
        "person",
        "policy",
    ]


async def test_what_nobody_can_approve_is_denied() -> None:
    async with McpToolChat.from_config({"servers": MATH}, strict=True) as chat:
        await chat.chat("x", model=scripted_model(call("math__add", a=1, b=2), "done"))
        (record,) = chat.audit.read()
    assert (record.status, record.permission and record.permission.by) == ("denied", "nobody")


async def test_a_changed_tool_is_blocked_until_its_change_is_accepted() -> None:
    servers = {"shop": flipping([tool("pay", READ_ONLY)], [tool("pay")])}
    person = Person(Decision(True, "tool"))
    async with McpToolChat.from_config({"servers": servers}, approver=person, strict=True) as chat:
        model = scripted_model(call("shop__pay"), call("shop__turn_1"), call("shop__pay"), "done")
        await chat.chat("x", model=model)
        assert [record.status for record in chat.audit.read()] == ["ok", "ok", "error"]
        assert [change.blocked for change in chat.changed_tools.values()] == [True]
        chat.accept_change("shop:pay")
        await chat.chat("x", model=scripted_model(call("shop__pay"), "done"))
    # The earlier answer was for the other definition.
    assert [name for name, _ in person.reasons()] == ["pay", "turn_1", "pay"]


def test_a_session_is_strict_in_its_own_tools_too_and_says_so() -> None:
    def add_twice(a: float, context: ToolContext) -> float:
        return float(context.call_tool("math:add", a=a, b=a).result)

    with Session.from_config({"servers": MATH}, strict=True) as session:
        session.tools.add(add_twice)
        turn = session.chat(
            "x", model=scripted_model(call("notebook__add_twice", a=2), "done"), echo="none"
        )
        assert [made.status for made in turn.tool_calls] == ["denied"]
        assert session.tools.call("notebook:add_twice", a=2).result == "4.0"
        assert [(record.caller, record.tool.tool) for record in session.consent.audit] == [
            ("model", "add_twice"),
            ("tool", "add"),
            ("person", "add_twice"),
        ]
        assert any("trict" in note for note in session.status.notes)
