"""Tasks in a session: what the model reads and when, the table, saved conversations that go on,
questions, cassettes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.asked import asked
from kit.history import assert_valid
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import TaskEnded, TaskReported, TaskStarted
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import ToolCallError, UnknownNameError, UsageError
from casual_mcp_nb.notebook.questions import FormQuestion
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers import tasks as limits
from casual_mcp_nb.widgets._transcript import Transcript
from casual_mcp_nb.widgets.explorer import TasksState

KIT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks polled as fast as their server wishes."""
    monkeypatch.setattr(limits, "LEAST_POLL", 0.01)
    monkeypatch.setattr(limits, "FIRST_POLL", 0.01)


def config(folder: Path, wait: float = 0.0) -> dict[str, Any]:
    server = {
        "command": sys.executable,
        "args": ["-m", "kit.tasks", str(folder)],
        "env": {"PYTHONPATH": str(KIT)},
    }
    return {"servers": {"lab": {**server, "task_wait": wait}}}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "tasks").mkdir()
    with Session.from_config(config(tmp_path / "tasks"), store=tmp_path / "saved.db") as session:
        yield session


def ended(session: Session, number: int = 1) -> None:
    """Wait until a task has ended."""
    assert session.servers.tasks.wait(number, 30).is_over
    assert [event.number for turn in session.turns for event in turn.trace.all_of(TaskEnded)].count(
        number
    ) == 1


def reported(turn: Turn) -> list[int]:
    return [event.number for event in turn.trace.of(TaskReported)]


def test_a_task_outlives_its_turn_and_the_next_one_tells_the_model(session: Session) -> None:
    model = scripted_model(
        call("lab__crunch", topic="wheat", polls=3), "It runs.", "42 rows.", "Still 42."
    )
    first = session.chat("Crunch wheat", model=model)
    made = first.tool_calls[0]
    assert (made.status, made.task.number, made.task.is_over) == ("ok", 1, False)  # type: ignore[union-attr]
    assert "task 1" in made.result
    transcript = Transcript(lambda: None)
    before = [row["html"] for row in transcript.rows([first]).values()]
    ended(session)
    after = [row["html"] for row in transcript.rows([first]).values()]
    assert "task 1 running" in before[0]
    assert "task 1 done" in after[0]
    made = first.tool_calls[0]
    assert made.task is not None
    assert (made.task.status, made.task.result.structured) == ("completed", {"rows": 42})  # type: ignore[union-attr]
    second = session.chat("And?", model=model)
    assert reported(second) == [1]
    assert second.prompt == "And?"
    told = [
        str(message.content)
        for message in model.client.requests[2].messages
        if message.role == "user"
    ]
    assert told[-1] == "And?"
    assert "Task 1, lab:crunch" in told[-2]
    assert "wheat: 42 rows" in told[-2]
    third = session.chat("Sure?", model=model)
    assert reported(third) == []
    # Each request begins with the whole one before it.
    requests = [request.messages for request in model.client.requests]
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before
    assert not any(turn.prefix_changes for turn in session.turns)
    assert_valid([message for turn in session.turns for message in turn.messages])


def test_a_task_that_ends_while_the_turn_goes_on_is_told_with_the_next_result(
    session: Session,
) -> None:
    async def then(_messages: Any, _tools: Any) -> Any:
        while not session.servers.tasks or not session.servers.tasks[0].is_over:  # noqa: ASYNC110 (on the engine's loop)
            await asyncio.sleep(0.01)
        return call("lab__now")

    model = scripted_model(call("lab__crunch", polls=1), then, "Done.")
    turn = session.chat("x", model=model)
    assert reported(turn) == [1]
    last = model.client.requests[2].messages[-1]
    assert last.role == "tool"
    assert str(last.content).startswith("now\n\n[Task 1, lab:crunch")
    assert last.content == turn.messages[-2].content
    assert Turn(Trace.from_json(turn.trace.to_json())).messages[-2].content == last.content
    assert [each.status for each in turn.tool_calls] == ["ok", "ok"]


def test_a_task_that_ends_soon_is_the_result_of_its_call(tmp_path: Path) -> None:
    with Session.from_config(config(tmp_path, wait=30.0)) as session:
        model = scripted_model(call("lab__crunch"), "42.", "y")
        turn = session.chat("x", model=model)
        assert turn.tool_calls[0].result.startswith("sales: 42 rows")
        assert [each.status for each in session.servers.tasks] == ["completed"]
        assert reported(session.chat("y", model=model)) == []


def test_the_table_waits_cancels_and_gives_results(session: Session) -> None:
    tasks = session.servers.tasks
    assert (len(tasks), str(tasks.now)) == (0, str(tasks.now))
    started = session.tools.call("lab:crunch", topic="rye", polls=1)
    assert "task 1" in started.result
    done = tasks.result(1)
    assert (done.result.splitlines()[0], done.structured, done.status) == (
        "rye: 42 rows",
        {"rows": 42},
        "ok",
    )
    session.tools.call("lab:endless")
    assert tasks.wait(2, 0.01).status == "working"
    with pytest.raises(UsageError, match="still running"):
        tasks.result(2, 0.01)
    assert tasks.cancel(2).status == "cancelled"
    with pytest.raises(ToolCallError):
        tasks.result(2)
    with pytest.raises(UnknownNameError):
        tasks.wait(9)
    assert [(each.number, each.status) for each in tasks] == [(1, "completed"), (2, "cancelled")]
    for form in (str(tasks.now), tasks.now._repr_html_(), str(tasks[0]), tasks[0]._repr_html_()):
        assert "crunch" in form


def test_the_card_and_the_model_have_the_reason_why_a_request_is_not_answered(
    tmp_path: Path,
) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "How many?"}}
    asks = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 10}}
    settings = config(tmp_path)
    entry = settings["servers"]["lab"]
    entry["args"].append(json.dumps({"status": "input_required", "inputRequests": {"a": asks}}))
    # They permit what older servers ask for.
    entry |= {"sampling": True, "roots": [str(tmp_path)]}
    with Session.from_config(settings, trust=True) as session:
        model = scripted_model(call("lab__endless"), "It runs.", "It failed.")
        turn = session.chat("x", model=model)
        session.servers.tasks.wait(1, 30)
        told = session.chat("y", model=model).messages
        for text in (turn._repr_html_(), str(session.servers.tasks[0]), str(told)):
            assert "has not declared" in text
        assert "sampling/createMessage" in str(session.servers.tasks.now)
        assert len(model.client.requests) == 3


def test_the_explorer_has_the_tasks_of_the_table(session: Session) -> None:
    state = TasksState(session)
    assert state.snapshot() == {"rows": {}}
    session.tools.call("lab:crunch", topic="<b>rye</b>", polls=1)
    session.servers.tasks.wait(1, 30)
    session.tools.call("lab:endless")
    wait_until(lambda: session.servers.tasks[1].text, "its server says how it goes")
    rows = state.snapshot()["rows"]
    table = str(session.servers.tasks.now)
    for row in rows.values():
        assert all(row[key] in table for key in ("tool", "state", "progress"))
    assert [(row["tool"], row["progress"], row["over"]) for row in rows.values()] == [
        ("lab:crunch", "", True),
        ("lab:endless", "still at it", False),
    ]
    do = session.parts.engine.run
    html = do(state.call("result", {"number": 1}))
    assert "&lt;b&gt;rye" in html
    with pytest.raises(UsageError):
        do(state.call("result", {"number": 2}))
    do(state.call("cancel", {"number": 2}))
    assert state.snapshot()["rows"]["2"]["status"] == "cancelled"
    with pytest.raises(UnknownNameError):
        do(state.call("cancel", {"number": 3}))
    session.tools.call("lab:survey")
    wait_until(lambda: session.servers.tasks[2].asking, "it asks")
    assert state.snapshot()["how_to_answer"] in str(session.servers.tasks.now)
    state.close()
    explorer = session.explore()
    picture = explorer.static()
    explorer.close()
    assert [task.number for task in picture.tasks] == [1, 2, 3]
    assert "lab:crunch" in picture._repr_mimebundle_()["text/html"]


def test_the_model_reads_how_a_task_failed_or_was_cancelled(session: Session) -> None:
    model = scripted_model(calls(call("lab__fail"), call("lab__endless")), "Two run.", "Noted.")
    session.chat("x", model=model)
    # The calls run at the same time, so either task may be the first.
    (endless,) = [task.number for task in session.servers.tasks if task.tool == "endless"]
    session.servers.tasks.cancel(endless)
    ended(session, 1)
    ended(session, 2)
    turn = session.chat("y", model=model)
    assert sorted(reported(turn)) == [1, 2]
    text = str(turn.messages[0].content)
    assert "the disk is full" in text
    assert "cancelled" in text


def test_a_stopped_turn_leaves_its_task_which_is_told_later(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    with Session.from_config(config(tmp_path / "tasks", wait=60.0)) as session:
        model = scripted_model(call("lab__crunch", polls=20), "Later.")
        future = session.submit("x", model=model)
        wait_until(lambda: session.servers.tasks and session.servers.tasks[0].text, "the task runs")
        session.stop()
        turn = future.result(30)
        assert (turn.status, turn.tool_calls[0].status) == ("stopped", "stopped")
        assert "task 1 goes on" in turn.tool_calls[0].result
        ended(session)
        assert reported(session.chat("y", model=model)) == [1]


def test_a_turn_that_is_run_again_tells_it_again(session: Session) -> None:
    model = scripted_model(call("lab__crunch", polls=0), "Runs.", "42.", "42!")
    session.chat("x", model=model)
    ended(session)
    session.chat("And?", model=model)
    again = session.rerun(-1, model=model)
    assert (reported(again), again.prompt) == ([1], "And?")
    assert len(again.prompt_messages) == 2


def test_a_question_waits_until_somebody_answers_it(session: Session) -> None:
    model = scripted_model(call("lab__survey"), "It asks.", "North.")
    session.chat("x", model=model)
    question = asked(session, FormQuestion)
    assert (question.server, question.message, question.channel) == (
        "lab",
        "Which region?",
        "panel",
    )
    assert [each.name for each in question.fields] == ["region", "year"]
    wait_until(lambda: session.servers.tasks[0].asking, "the task asks")
    assert session.turns[0].tool_calls[0].task.asking  # type: ignore[union-attr]
    question.answer({"region": "north"})
    ended(session)
    turn = session.chat("y", model=model)
    assert '{"region": "north"}' in str(turn.messages[0].content)


@pytest.mark.slow
def test_a_resumed_conversation_goes_on_with_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    with Session.from_config(config(tmp_path / "tasks"), store=tmp_path / "saved.db") as session:
        session.chat("x", model=scripted_model(call("lab__crunch", polls=50), "It runs."))
        id = session.conversations.id
        assert id is not None
        assert not session.servers.tasks[0].is_over
    with closing(
        Session.from_config(config(tmp_path / "tasks"), store=tmp_path / "saved.db")
    ) as session:
        session.conversations.resume(id)
        wait_until(lambda: session.servers.tasks[0].problem, "it is not polled")
        # Resuming starts no server.
        assert [
            (each.number, each.is_over, bool(each.problem)) for each in session.servers.tasks
        ] == [(1, False, True)]
        assert session.status.servers["lab"].state == "closed"
        session.connect()
        ended(session)
        model = scripted_model("42.")
        assert reported(session.chat("And?", model=model)) == [1]
        assert "sales: 42 rows" in str(model.client.requests[0].messages[-2].content)
    with Session.from_config(config(tmp_path / "tasks"), store=tmp_path / "saved.db") as session:
        session.conversations.resume(id)
        assert [each.status for each in session.servers.tasks] == ["completed"]
        assert session.servers.tasks.result(1).structured == {"rows": 42}
        assert reported(session.chat("Again?", model=scripted_model("42."))) == []


@pytest.mark.slow
def test_a_large_result_is_cut_for_the_model_and_read_on(session: Session, tmp_path: Path) -> None:
    settings = {**config(tmp_path / "tasks"), "tool_results": {"max_tokens": 300}}
    with Session.from_config(settings) as small:
        model = scripted_model(
            call("lab__crunch", topic="long " * 2_000, polls=0), "Runs.", "Read."
        )
        small.chat("x", model=model)
        ended(small)
        turn = small.chat("y", model=model)
        told = str(turn.messages[0].content)
        assert len(told) < 3_000
        assert "[Result r_" in told
        assert "read_result" in [tool["name"] for tool in model.client.requests[2].tools]
        (handle,) = turn.messages[0].handles  # type: ignore[union-attr]
        assert turn.messages[0].origins == {handle: small.turns[0].tool_calls[0].id}  # type: ignore[union-attr]
        reads = call("read_result", handle=handle)
        assert small.chat("z", model=scripted_model(reads, "ok")).tool_calls[0].status == "ok"
        assert len(small.servers.tasks.result(1).result) > 9_000


def test_a_cassette_has_the_whole_of_a_large_result_that_is_passed_on(tmp_path: Path) -> None:
    desk = FastMCP("desk")

    @desk.tool
    def measure(text: str) -> int:
        """Measure a text."""
        return len(text)

    def passes(messages: Any, _tools: Any) -> Any:
        (handle,) = next(filter(None, (getattr(each, "handles", ()) for each in messages)))
        return call("desk__measure", text={"$result": handle})

    def ask(session: Session, **options: Any) -> list[Turn]:
        first = session.chat("Crunch", **options)
        if options:
            ended(session)
        return [first, session.chat("Measure it", **options)]

    (tmp_path / "tasks").mkdir()
    file = tmp_path / "tasks.json"
    settings = {**config(tmp_path / "tasks"), "tool_results": {"max_tokens": 300}}
    topic = "long " * 2_000
    crunch = call("lab__crunch", topic=topic, polls=0)
    with Session.from_config(
        settings, in_process={"desk": desk}, approval={"desk": "never"}
    ) as session:
        session.cassettes.use(file)
        turns = ask(session, model=scripted_model(crunch, "Runs.", passes, "Long."))
        whole = session.servers.tasks.result(1).result
        recorded = [str(message.content) for turn in turns for message in turn.messages]
    assert int(turns[1].tool_calls[0].result) > len(topic)

    with Session.quick(cassette=file) as session:
        turns = ask(session)
        assert [str(message.content) for turn in turns for message in turn.messages] == recorded
        assert turns[1].tool_calls[0].status == "ok"
        assert session.servers.tasks.result(1).result == whole
        told = turns[1].messages[0]
        assert [*told.origins.values()] == [turns[0].tool_calls[0].id]  # type: ignore[union-attr]


def test_a_cassette_replays_tasks(tmp_path: Path) -> None:
    def ask(session: Session) -> list[str]:
        first = session.chat("Use crunch on topic wheat with polls 1")
        second = session.chat("Is there a result?")
        return [str(message.content) for turn in (first, second) for message in turn.messages]

    (tmp_path / "tasks").mkdir()
    file = tmp_path / "tasks.json"
    settings = {
        **config(tmp_path / "tasks"),
        "clients": {"here": {"provider": "offline"}},
        "models": {"planner": {"client": "here", "model": "planner"}},
    }
    with Session.from_config(settings) as session:
        session.cassettes.use(file)
        first = session.chat("Use crunch on topic wheat with polls 1")
        ended(session)
        # A turn that cannot begin tells nobody of the task.
        with pytest.raises(UnknownNameError):
            session.chat("Is there a result?", model="nobody")
        second = session.chat("Is there a result?")
        recorded = [str(message.content) for turn in (first, second) for message in turn.messages]
        assert (reported(first), reported(second)) == ([], [1])
    kinds = [each["kind"] for each in json.loads(file.read_text())["interactions"]]
    assert kinds.count("tasks") == 1
    with Session.quick(cassette=file) as session:
        assert ask(session) == recorded
        assert [(each.number, each.status) for each in session.servers.tasks] == [(1, "completed")]
        assert [event.number for event in session.turns[0].trace.of(TaskStarted)] == [1]
