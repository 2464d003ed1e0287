"""Which tools were really used: counted from turns and from the file of saved conversations, and the
selection without the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

from casual_mcp_nb import Session, Turn
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    CallStatus,
    Event,
    QuestionAnswered,
    QuestionAsked,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.conversation.turn import Trace
from casual_mcp_nb.conversation.usage import ToolUse, usage_of
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

ADD, FAIL, LEND = (ToolName(*each.split(":")) for each in ("math:add", "math:fail", "books:lend"))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    math, books = FastMCP("math"), FastMCP("books")

    @math.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @math.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("No.")

    @books.tool
    def lend(title: str) -> str:
        """Lend a book to a reader until they bring it back."""
        return title

    @books.tool
    def search(words: str) -> str:
        """Search the books."""
        return words

    servers = {"math": math, "books": books}
    with Session(
        {}, in_process=servers, name="usage", quiet=True, store=tmp_path / "chats.db"
    ) as session:
        session.connect()
        yield session


def _talk(session: Session) -> None:
    session.chat(
        "Add",
        model=scripted_model(calls(call("math__add", a=1, b=2), call("math__fail")), "3"),
        echo="none",
    )
    session.chat(
        "Again",
        model=scripted_model(call("math__add", a=2, b=2), call("nothing__here"), "4"),
        echo="none",
    )


def test_each_tool_has_what_was_sent_and_called(session: Session) -> None:
    _talk(session)
    usage = session.tools.usage("this")
    assert (usage.conversations, usage.turns, usage.requests, usage.calls) == (1, 2, 5, 3)
    tokens = session.tools["math:add"].tokens
    add = usage.of(ADD)
    assert (add.requests, add.definition, add.tokens) == (5, tokens, 5 * tokens)
    assert add.turns == 2
    assert (add.calls, add.succeeded) == (2, 2)
    assert add.seconds > 0
    started = session.turns[-1].started.began
    assert started is not None
    assert add.last_used is not None
    assert add.last_used >= started
    assert (usage.of(FAIL).calls, usage.of(FAIL).succeeded) == (1, 0)
    assert [use.tool for use in usage][:2] == [ADD, FAIL]
    lend = usage.of(LEND)
    assert (lend.requests, lend.calls, lend.last_used) == (5, 0, None)
    unused = {use.tool.server for use in usage.never_used}
    assert unused == {"books"}
    assert usage.unused_tokens == sum(use.definition for use in usage.never_used)
    assert usage.of(ToolName("no", "tool")) == ToolUse(ToolName("no", "tool"))


MESSAGE = UserMessage(content="Add")
ASKED = ApprovalAsked("1", at=1.0)
FORM = QuestionAsked("question-1", "form", "math", at=2.0)
ANSWERED = QuestionAnswered("question-1", at=7.0)


@pytest.mark.parametrize(
    ("waits", "status", "seconds"),
    [
        ([], "stopped", 10.0),
        ([ASKED], "stopped", 1.0),
        ([ASKED, ApprovalAnswered("1", at=4.0)], "ok", 7.0),
        ([FORM], "stopped", 2.0),
        ([FORM, ANSWERED], "ok", 5.0),
        ([replace(FORM, server="books"), ANSWERED], "ok", 10.0),
        ([ASKED, FORM, ApprovalAnswered("1", at=4.0), ANSWERED], "ok", 4.0),
    ],
)
def test_the_wait_for_a_person_is_no_time_of_a_call(
    tmp_path: Path, waits: list[Event], status: CallStatus, seconds: float
) -> None:
    begin = [TurnStarted((MESSAGE,), "m", began=1.0), ToolStarted(0, "1", "add", ADD, {})]
    turn = Turn(Trace([*begin, *waits, ToolFinished(0, "1", ADD, status, "3", at=10.0)]))
    store = ConversationStore.at(tmp_path / "chats.db")
    store.add(Conversation([turn]))
    for usage in (usage_of([turn]), store.usage()):
        assert usage.of(ADD).seconds == seconds


def test_only_turns_that_offered_a_tool_count_against_it(session: Session) -> None:
    session.selection.servers["books"] = "off"
    _talk(session)
    session.selection.servers["books"] = "loaded"
    session.chat("Hello", model=scripted_model("Hello."), echo="none")
    assert (session.tools.usage().turns, session.tools.usage().of(LEND).turns) == (3, 1)
    assert session.tools.usage().turn_off().turns == 1


def test_what_a_search_found_is_counted(session: Session) -> None:
    session.selection.discovery, session.selection.defer_all = True, True
    model = scripted_model(
        call("search_tools", query="lend a book"), call("books__lend", title="Emma"), "Lent."
    )
    session.chat("Lend Emma", model=model, echo="none")
    usage = session.tools.usage("this")
    lend = usage.of(LEND)
    # The first request has only the search tool, which is not a tool of a server.
    assert (lend.found, lend.requests, lend.calls) == (1, 2, 1)
    assert usage.requests == 3
    assert "search_tools" not in {use.tool.tool for use in usage}
    assert session.tools.usage().tools == usage.tools


def test_the_file_has_the_same_numbers_as_the_turns(session: Session) -> None:
    _talk(session)
    assert session.conversations.store is not None
    stored = session.tools.usage()
    assert stored.tools == session.tools.usage("this").tools
    assert (stored.conversations, stored.turns) == (1, 2)
    first = session.conversations.id
    assert first is not None
    session.conversations.new()
    _talk(session)
    assert session.tools.usage().of(ADD).calls == 4
    assert session.tools.usage(first).of(ADD).calls == 2
    assert session.tools.usage().conversations == 2
    assert session.conversations.current.usage == usage_of(session.turns)
    with pytest.raises(UnknownNameError):
        session.tools.usage("zzz")


def test_what_a_fork_copies_is_counted_once(session: Session) -> None:
    _talk(session)
    before = session.tools.usage()
    session.conversations.fork()
    session.chat("More", model=scripted_model(call("math__add", a=3, b=2), "5"), echo="none")
    after = session.tools.usage()
    assert (after.conversations, after.turns) == (2, before.turns + 1)
    assert (after.requests, after.calls) == (before.requests + 2, before.calls + 1)
    # The same turn as before up to its second step.
    session.conversations.fork_at(1, model=scripted_model("Five."), echo="none")
    assert session.turns[-1].tool_calls
    usage = session.tools.usage()
    assert (usage.requests, usage.calls) == (after.requests + 1, after.calls)
    # What is copied was sent and called by the other turn.
    assert session.tools.usage("this").calls == after.calls - 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET json = 'no json' WHERE number % 3 = 0",
        "UPDATE events SET json = json_set(json, '$.tool', 7)",
        "UPDATE events SET json = json_set(json, '$.at', 'then', '$.began', 'never')",
        "UPDATE events SET json = json_set(json, '$.request.tools', json('[[0, 99], {}, 3]'))",
        "UPDATE parts SET json = '[]' WHERE kind = 'tool'",
        "UPDATE parts SET json = '{' WHERE kind = 'tool'",
        "UPDATE events SET json = json_set(json, '$.status', json('[1]'), '$.call_id', json('{}'))",
    ],
)
def test_damaged_rows_are_left_out(session: Session, damage: str) -> None:
    _talk(session)
    store = session.conversations.store
    assert store is not None
    store.flush()
    with sqlite3.connect(store.path) as other:
        other.execute(damage)
    other.close()
    usage = session.tools.usage()
    assert usage.conversations == 1
    assert usage.calls <= 3
    assert "Use of tools" in str(usage)


def test_a_damaged_definition_costs_only_its_own_tool(session: Session) -> None:
    _talk(session)
    before, store = session.tools.usage(), session.conversations.store
    assert store is not None
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("UPDATE parts SET json = '{' WHERE kind = 'tool' AND number = 0")
    after = session.tools.usage()
    assert after.requests == before.requests
    sent = {use.tool: use.tokens for use in before}
    lost = {tool for tool, tokens in sent.items() if after.of(tool).tokens != tokens}
    assert len(lost) == 1


def test_unused_tools_are_deferred_once_the_difference_was_shown(session: Session) -> None:
    _talk(session)
    change = session.tools.usage().defer()
    assert [use.tool.server for use in change.tools] == ["books", "books"]
    assert change.before == session.tools.budget
    assert session.selection.servers.get("books", "loaded") == "loaded"
    change.apply()
    assert session.tools.budget == change.after
    view = session.parts.chat.current_view()
    assert {tool.server for tool in view.loaded} == {"math"}
    assert {tool.server for tool in view.deferred} == {"books"}
    with pytest.raises(UsageError):
        session.tools.usage().defer()


def test_the_used_tools_of_a_server_stay_loaded(session: Session) -> None:
    session.chat(
        "Lend Emma", model=scripted_model(call("books__lend", title="Emma"), "Lent."), echo="none"
    )
    session.tools.usage("this").defer().apply()
    view = session.parts.chat.current_view()
    assert [tool.tool_name for tool in view.loaded] == [LEND]
    assert len(view.deferred) == 3


def test_unused_tools_are_turned_off(session: Session) -> None:
    _talk(session)
    change = session.tools.usage().turn_off()
    assert change.after.now.first_request < change.before.now.first_request
    change.apply()
    view = session.parts.chat.current_view()
    assert {tool.server for tool in (*view.loaded, *view.deferred)} == {"math"}


def test_a_session_that_saves_nothing_counts_its_own_turns() -> None:
    with Session({}, name="own", quiet=True, store=None) as session:
        session.chat("Hi", model=scripted_model("Hi"), echo="none")
        usage = session.tools.usage()
        assert (usage.turns, usage.requests, len(usage)) == (1, 1, 0)
        with pytest.raises(UsageError):
            usage.defer()


def test_the_magic_shows_before_it_changes(session: Session) -> None:
    _talk(session)
    run = COMMANDS["usage"].run
    assert run is not None
    assert run(session, "this").turns == 2
    assert {use.tool for use in run(session, "math")} == {ADD, FAIL}
    assert [use.calls for use in run(session, "math:add")] == [2]
    assert [change.tool for change in run(session, "books:lend --off").tools] == [LEND]
    for unknown in ("math:nothing", "maths"):
        with pytest.raises(UnknownNameError):
            run(session, unknown)
    assert run(session, "--defer").mode == "deferred"
    assert session.selection.servers.get("books", "loaded") == "loaded"
    run(session, "this --off --apply")
    assert "books:lend" in session.selection.tools_off
    for wrong in ("--apply", "--defer --off", "this that", "--all"):
        with pytest.raises(UsageError):
            run(session, wrong)


def test_usage_of_an_empty_store_is_empty(tmp_path: Path) -> None:
    with ConversationStore(tmp_path / "none.db") as store:
        assert len(store.usage()) == 0


def test_single_tools_are_deferred_and_turned_off_by_magics(session: Session) -> None:
    defer, off = COMMANDS["defer"].run, COMMANDS["off"].run
    assert defer is not None
    assert off is not None
    defer(session, "math:fail")
    view = session.parts.chat.current_view()
    assert [tool.tool_name for tool in view.deferred] == [FAIL]
    assert ADD in {tool.tool_name for tool in view.loaded}
    off(session, "books:lend")
    view = session.parts.chat.current_view()
    assert LEND not in {tool.tool_name for tool in (*view.loaded, *view.deferred)}
    for run in (defer, off):
        with pytest.raises(UsageError):
            run(session, "books:nothing")
