"""What deferring would have saved in a past conversation: against a conversation that did defer, and
where it loses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from fastmcp import FastMCP

from casual_mcp_nb import Session, audit_conversation
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage, definition_tokens
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    Request,
    StepFinished,
    StepStarted,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.providers.scripted import call, scripted_model

COUNT = 30


def office() -> FastMCP:
    server = FastMCP("office")
    for number in range(COUNT):

        def act(text: str) -> str:
            return "done"

        description = f"Does the task with the number {number}, whatever it takes. " * 5
        server.tool(act, name=f"task_{number}", description=description)
    return server


def test_it_predicts_what_a_conversation_takes_that_defers(tmp_path: Path) -> None:
    with Session({}, quiet=True) as session:
        session.servers.add("office", office())
        for number in (3, 17):
            model = scripted_model(call(f"office__task_{number}", text="Go."), "Done.")
            session.chat("Go.", model=model, echo="none")
        audit = audit_conversation(session.turns)
        stats = session.stats
        assert audit.requests == audit.sent.requests == 4
        assert audit.sent.total == stats.sent_tokens
        session.export(tmp_path / "talk.json")
        assert audit_conversation(tmp_path / "talk.json") == audit

        session.conversations.new()
        session.selection.servers["office"] = "deferred"
        session.selection.discovery = True
        for number in (3, 17):
            search = call("search_tools", query=f"task_{number}")
            model = scripted_model(search, call(f"office__task_{number}", text="Go."), "Done.")
            session.chat("Go.", model=model, echo="none")
        deferred = session.stats
        assert audit.deferred.requests == deferred.llm_calls == 6
        assert audit.deferred.total == pytest.approx(deferred.sent_tokens, rel=0.03)
        assert audit.deferred.definitions == pytest.approx(deferred.parts.definitions, rel=0.03)
        assert audit.saved == pytest.approx(1 - deferred.sent_tokens / stats.sent_tokens, abs=0.03)
        again = audit_conversation(session.turns)
        assert (again.deferring, again.sent.requests, again.saved) == (6, 0, None)


DEFINITION = {"name": "git__log", "description": "Show commits.", "parameters": {"type": "object"}}
SIZE = definition_tokens(DEFINITION)


def turn(*cached: int | None, calls: bool = True) -> Turn:
    """A request for each number of cached tokens. The first one's answer calls the tool."""
    events: list[Any] = [TurnStarted((UserMessage(content="Go."),), "m")]
    for number, reused in enumerate(cached):
        parts = TokenParts(system=1_000, tools=SIZE)
        events.append(StepStarted(number, Request((), (DEFINITION,), parts)))
        usage = TokenUsage(2 * (1_000 + SIZE), 5, reused)
        events.append(StepFinished(number, AssistantMessage(content="ok"), usage))
        if calls and number == 0:
            log = ToolName("git", "log")
            events.append(ToolStarted(0, "c", "git__log", log, {}, wire_name="git__log"))
    return Turn(Trace([*events, TurnFinished("done")]))


def test_it_says_when_deferring_would_have_lost() -> None:
    audit = audit_conversation([turn(None, None)])
    assert audit.saved is not None
    assert audit.saved < 0
    assert audit.deferred.requests == audit.sent.requests + 1
    assert audit.origin == "reported"
    # The unit is the provider's: twice the estimate.
    assert audit.sent.definitions == 4 * SIZE
    assert audit.sent.total == audit.sent.weighted == 4 * (1_000 + SIZE)
    assert "Deferring costs" in str(audit)


def test_cached_tokens_are_those_reported_and_count_a_tenth() -> None:
    size = 2 * (1_000 + SIZE)
    audit = audit_conversation([turn(0, size - 10)])
    assert audit.sent.cached == size - 10
    assert audit.sent.weighted == round(2 * size - 0.9 * (size - 10))
    # In the last request nothing else is new.
    without = audit_conversation([turn(0, size - 10, calls=False)])
    assert without.deferred.requests == 2
    assert without.deferred.total - without.deferred.cached == without.deferred.total // 2 + 10
    # Of the request after a search, only the definitions before it are in the cache.
    first = audit_conversation([turn(size - 10)]).deferred
    alone = audit_conversation([turn(size - 10, calls=False)]).deferred
    assert (first.requests, alone.requests) == (2, 1)
    assert first.cached - alone.cached == alone.definitions > 0


def test_without_definitions_the_calls_are_all_that_is_known(tmp_path: Path) -> None:
    used = {"type": "tool_use", "id": "t1", "name": "mcp__git__log", "input": {}}
    message = {"id": "m1", "role": "assistant", "content": [used]}
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps({"type": "assistant", "sessionId": "s", "message": message}))
    audit = audit_conversation(path)
    assert (audit.requests, audit.sent.requests, audit.saved) == (1, 0, None)
    assert [(str(use.tool), use.calls) for use in audit.usage] == [("git:log", 1)]
    assert "unknown" in str(audit)


def test_a_definition_with_a_name_that_is_no_text_is_left_out() -> None:
    odd = Request((), ({"name": ["x"]}, DEFINITION), TokenParts(tools=SIZE))
    events = [TurnStarted((UserMessage(content="Go."),), "m"), StepStarted(0, odd)]
    answered = StepFinished(0, AssistantMessage(content="ok"), TokenUsage(10, 1))
    audit = audit_conversation([Turn(Trace([*events, answered, TurnFinished("done")]))])
    assert audit.sent.requests == 1
