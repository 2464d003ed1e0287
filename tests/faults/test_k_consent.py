"""K: what a person is asked before servers start, and what is recorded of the calls."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from kit.asked import asked
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import Permission
from casual_mcp_nb.errors import TrustRequiredError, UsageError
from casual_mcp_nb.experiments.cases import Case
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.providers.scripted import call, scripted_model

SECRET = "sk-live-0123456789abcdef0123"


def desk(waiting: threading.Event) -> FastMCP[Any]:
    """A server with a tool for each way to end."""
    server = FastMCP("desk")

    @server.tool(annotations={"readOnlyHint": True})
    def read(page: str) -> str:
        return f"The text of {page}."

    @server.tool(annotations={"readOnlyHint": True})
    def fail(token: str) -> str:
        raise ToolError("It does not work.")

    @server.tool(annotations={"destructiveHint": True})
    def delete(page: str) -> str:
        return "deleted"

    @server.tool(annotations={"readOnlyHint": True})
    async def wait() -> str:
        waiting.set()
        await asyncio.Event().wait()
        return ""

    return server


def written(file: Path, **server: Any) -> Path:
    """A config with one server, which leaves a file behind when it is started."""
    started = file.with_name("started")
    entry = {
        "command": sys.executable,
        "args": ["-c", f"open({str(started)!r}, 'w')"],
        "init_timeout": 5,
        **server,
    }
    file.write_text(json.dumps({"servers": {"shop": entry}}))
    return file


@pytest.mark.fault(105)
def test_nothing_of_a_new_or_changed_config_starts_before_it_is_accepted(
    asks_first: Path, tmp_path: Path
) -> None:
    file, started = written(tmp_path / "config.json", env={"TOKEN": SECRET}), tmp_path / "started"
    with closing(Session.from_config(file)) as session:
        report = session.consent.trust()
        assert (report.required, [entry.state for entry in report]) == (True, ["new"])
        for use in (
            session.connect,
            lambda: session.chat("x"),
            lambda: session.servers.reconnect("shop"),
        ):
            with pytest.raises(TrustRequiredError):
                use()
        for use in (
            session.resources.list,
            session.prompts.list,
            lambda: session.plan("x"),
            lambda: session.search("x"),
            lambda: session.tools.call("x"),
            lambda: session.models.preview(),
            lambda: session.experiments.evaluate([Case("x", ["x:y"])]),
        ):
            with pytest.raises(TrustRequiredError):
                use()
        with pytest.raises(TrustRequiredError):
            session.submit("x").result(30)
        assert not started.exists()
        report.accept()
        session.connect()
        assert started.exists()
    started.unlink()
    with closing(Session.from_config(file)) as session:
        assert not session.consent.trust().required
    written(file, env={"TOKEN": SECRET}, args=["-c", f"open({str(started)!r}, 'w');"])
    with closing(Session.from_config(file)) as session:
        (entry,) = session.consent.trust()
        assert (entry.state, entry.changed) == ("changed", ("arguments",))
        with pytest.raises(TrustRequiredError):
            session.connect()
    assert not started.exists()


@pytest.mark.fault(105)
def test_what_would_start_is_shown_whole_with_names_and_without_secrets(
    asks_first: Path, tmp_path: Path
) -> None:
    long = "x" * 5_000
    hostile = "a\n  folder      /home\u202e\x1b[2J"
    file = written(
        tmp_path / "config.json",
        args=["-m", "shop", long, hostile],
        env={"TOKEN": SECRET},
        cwd=str(tmp_path),
    )
    with closing(Session.from_config(file)) as session:
        report = session.consent.trust()
        (entry,) = report
        shown = report._repr_mimebundle_()
    facts = dict(entry.facts)
    assert facts["command"] == sys.executable
    assert facts["arguments"] == f"-m shop {long} {json.dumps(hostile)}"
    assert (facts["folder"], facts["environment"]) == (str(tmp_path), "TOKEN")
    for text in (report.text, *shown.values()):
        assert long in text
        assert SECRET not in text
        assert "\u202e" not in text
        assert "\x1b" not in text


@pytest.mark.fault(106)
def test_each_call_leaves_a_record_that_can_be_listed_and_saved(tmp_path: Path) -> None:
    waiting = threading.Event()
    with Session.from_config({"servers": {}}, in_process={"desk": desk(waiting)}) as session:
        end = session.questions.panel_opened()
        good, bad = call("desk__read", page="a"), call("desk__fail", token=SECRET)
        delete, unknown = call("desk__delete", page="b"), call("desk__nothing", page="c")
        future = session.submit(
            "x",
            model=scripted_model(good, bad, delete, delete, delete, unknown, call("desk__wait")),
        )
        first = asked(session, ApprovalQuestion)
        first.deny("Not this page.")
        wait_until(lambda: first not in list(session.questions), "it is closed")
        asked(session, ApprovalQuestion).approve(for_conversation=True)
        assert waiting.wait(30)
        session.stop()
        turn = future.result(30)
        end()
        session.tools.call("desk:read", page="d")
        session.undo()
        session.conversations.new()
        records = list(session.consent.audit)
        definitions = {tool.name: tool.digest for tool in session.tools}

    # The model reads the reason too.
    assert "Not this page." in turn.tool_calls[2].result
    assert [record.tool.tool for record in records] == [
        "read",
        "fail",
        *["delete"] * 3,
        "desk__nothing",
        "wait",
        "read",
    ]
    assert [record.status for record in records] == [
        "ok",
        "error",
        "denied",
        "ok",
        "ok",
        "error",
        "stopped",
        "ok",
    ]
    assert [record.caller for record in records] == ["model"] * 7 + ["person"]

    def permission(name: str, by: Any, allowed: bool = True, **more: Any) -> Permission:
        return Permission(by, allowed, definition=definitions[name], **more)

    assert [record.permission for record in records] == [
        permission("read", "policy", policy="default"),
        permission("fail", "policy", policy="default"),
        permission(
            "delete", "person", False, policy="default", scope="call", reason="Not this page."
        ),
        permission("delete", "person", policy="default", scope="tool"),
        permission("delete", "remembered", policy="default", scope="tool"),
        None,
        permission("wait", "policy", policy="default"),
        permission("read", "direct"),
    ]
    assert all(record.seconds is not None and record.seconds >= 0 for record in records)
    assert [record.at for record in records] == sorted(record.at for record in records)
    assert (records[0].arguments_size, records[0].result_size) == (
        len('{"page":"a"}'),
        len("The text of a."),
    )

    file = session.consent.audit.save(tmp_path / "audit.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [record.as_dict() for record in records]
    with pytest.raises(UsageError, match="already exists"):
        session.consent.audit.save(file)
    shown = session.consent.audit._repr_mimebundle_()
    assert "Not this page." in shown["text/html"]
    for text in (file.read_text(), *shown.values()):
        assert SECRET not in text


@pytest.mark.fault(106)
def test_the_list_of_calls_is_bounded_and_says_what_it_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("casual_mcp_nb.conversation.audit.MAX_RECORDS", 3)
    with Session.from_config(
        {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
    ) as session:
        for number in range(5):
            session.tools.call("math:add", a=number, b=1)
        audit = session.consent.audit
    assert (len(audit), audit.dropped) == (3, 2)
    assert "2 more" in str(audit)


def test_a_mock_and_a_built_in_tool_are_marked_as_such() -> None:
    config = {
        "servers": {
            "math": {
                "bundled": "math",
                "transport": "in-process",
                "defer_loading": True,
                "approval": "always",
            }
        },
        "tool_discovery": {"enabled": True},
    }
    with Session.from_config(config) as session, session.tools.mock({"math:add": 5}):
        session.chat(
            "x",
            model=scripted_model(
                call("search_tools", query="add"), call("math__add", a=1, b=2), "5"
            ),
        )
        assert [record.permission.by for record in session.consent.audit if record.permission] == [
            "built-in",
            "mock",
        ]
