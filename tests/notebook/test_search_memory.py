"""What searches learn from saved conversations, and what they never learn from."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from kit.json_lines import write

from casual_mcp_nb import Conversation, Session, Turn
from casual_mcp_nb.base.search import PAST_QUESTION
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.foreign.added import own_words
from casual_mcp_nb.conversation.past_questions import PastQuestionReader, PastQuestions
from casual_mcp_nb.conversation.store import ConversationStore
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.notebook.search_memory import SessionSearchMemory
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets.explorer import SearchState

LEND = ToolName("books", "lend")
QUESTION = "Can Emma keep Middlemarch over the weekend?"
ALIKE = "Can Paul keep Ulysses over the weekend?"
LEARNED = "words and past questions"
QUERY = "hand out a volume"


def books(description: str = "Give a title to a reader.") -> FastMCP:
    server = FastMCP("books")

    @server.tool(description=description)
    def lend(title: str) -> str:
        if title == "none":
            raise ToolError("No.")
        return title

    @server.tool
    def search(words: str) -> str:
        """Search the shelves."""
        return words

    return server


def opened(path: Path | None, server: FastMCP | None = None, *, learn: bool = True) -> Session:
    config: dict[str, Any] = {
        "tool_discovery": {"enabled": True, "defer_all": True, "learn": learn}
    }
    servers = {"books": server or books()}
    session = Session(config, in_process=servers, name="memory", quiet=True, store=path)
    session.connect()
    return session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path / "chats.db") as session:
        yield session


def lent(
    session: Session, question: str = QUESTION, title: str = "Emma", query: str = QUERY
) -> Turn:
    """A turn in which the model searches by a tool's words, and calls it."""
    model = scripted_model(
        call("search_tools", query=f"{query} title"), call("books__lend", title=title), "Done."
    )
    return session.chat(question, model=model, echo="none")


def remembered(session: Session) -> set[tuple[str, ToolName]]:
    return {(question.text, question.tool) for question in session.tools.memory}


def test_questions_and_searches_before_a_call_that_succeeded_are_learned(session: Session) -> None:
    assert not session.search(ALIKE)
    turn = lent(session)
    assert turn.searches[0].ranked_by == "words"
    assert remembered(session) == {(QUESTION, LEND), (f"{QUERY} title", LEND)}
    results = session.search(ALIKE)
    assert [hit.tool.tool_name for hit in results] == [LEND]
    assert results.ranked_by == LEARNED
    (share,) = results[0].explain().shares
    assert (share.term, share.share) == (PAST_QUESTION, results[0].score)
    first = session.tools.memory[-1]
    assert (first.when, first.conversation) == (turn.started.began, session.conversations.id)
    assert QUESTION in share.field
    assert first.day in share.field
    assert first.day.split()[0] in str(results[0].explain())


def test_a_model_finds_what_was_learned_and_the_trace_says_so(session: Session) -> None:
    lent(session)
    model = scripted_model(call("search_tools", query=ALIKE), "Done.")
    (search,) = session.chat("Again", model=model, echo="none").searches
    assert ([row.tool for row in search.rows], search.ranked_by) == ([LEND], LEARNED)
    # What was saved has it too.
    assert session.conversations.id is not None
    loaded = session.conversations.store.load(session.conversations.id)  # type: ignore[union-attr]
    assert loaded[-1].searches[0] == search


def test_the_explorer_ranks_and_explains_as_the_model_s_search_does(session: Session) -> None:
    lent(session)
    explorer, run = SearchState(session), session.parts.engine.run
    found = run(explorer.call("search", {"query": ALIKE}))
    assert ([hit["name"] for hit in found["hits"]], found["ranked_by"]) == (["lend"], LEARNED)
    explained = run(explorer.call("explain", {"query": ALIKE, "name": "books:lend"}))
    assert session.tools.memory[-1].day in explained["html"]


def test_browsing_learns_too(session: Session) -> None:
    lent(session)
    session.selection.strategy = "browse"
    model = scripted_model(call("browse_toolkit", query=ALIKE), "Done.")
    turn = session.chat("Again", model=model, echo="none")
    assert "books__lend" in turn.tool_calls[0].result


def test_a_call_that_failed_or_that_a_stub_answered_teaches_nothing(session: Session) -> None:
    lent(session, title="none")
    with session.tools.mock({"books:lend": "Lent."}):
        lent(session)
    assert not session.tools.memory
    # Its answer has no arguments and no results to keep.
    lent(session, title="A secret title")
    with sqlite3.connect(session.conversations.store.path) as file:  # type: ignore[union-attr]
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
    file.close()
    assert "forgotten" not in tables
    assert "secret" not in str(session.tools.memory)


def test_a_private_conversation_teaches_nothing_and_a_deleted_one_is_forgotten(
    session: Session,
) -> None:
    session.conversations.new(private=True)
    lent(session)
    assert not session.tools.memory
    session.conversations.new()
    lent(session)
    id = session.conversations.id
    assert id is not None
    session.conversations.new()
    assert session.search(ALIKE).ranked_by == LEARNED
    session.conversations.delete(id)
    assert not session.tools.memory
    assert not session.search(ALIKE)


def test_a_changed_tool_forgets(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with opened(path) as session:
        lent(session)
    with opened(path) as session:
        assert session.search(ALIKE)
    with opened(path, books("Give any title to any reader.")) as session:
        assert not session.search(ALIKE)
        assert remembered(session)


def test_one_question_is_forgotten_or_all_of_them(session: Session) -> None:
    lent(session)
    session.tools.memory.forget(QUESTION)
    assert remembered(session) == {(f"{QUERY} title", LEND)}
    assert not session.search(ALIKE)
    lent(session)
    assert (QUESTION, LEND) in remembered(session)
    session.tools.memory.forget(session.tools.memory[0])
    session.tools.memory.clear()
    assert not session.tools.memory
    with pytest.raises(UnknownNameError):
        session.tools.memory.forget(QUESTION)
    assert session.conversations.current.as_in_a_file()
    lent(session)
    assert session.search(ALIKE)


def test_nothing_is_learned_unless_it_is_on(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with opened(path, learn=False) as session:
        lent(session)
        assert not session.search(ALIKE)
        turn = lent(session, query=ALIKE)
        assert turn.searches[0].ranked_by == "words"
        session.tools.memory.on = True
        assert session.search(ALIKE)
        with pytest.raises(UsageError):
            session.tools.memory.on = "yes"  # type: ignore[assignment]


def test_what_measures_and_what_serves_others_does_not_learn(session: Session) -> None:
    lent(session)
    chat = session.parts.chat
    assert asyncio.run(chat.state.past_questions())
    for other in (chat.apart(), chat.apart(private=True)):
        assert not asyncio.run(other.state.past_questions())


def test_a_cassette_is_recorded_and_replayed_with_words_only(
    session: Session, tmp_path: Path
) -> None:
    lent(session)
    for mode in ("all", "none"):
        session.conversations.new()
        with session.cassettes.use(tmp_path / "tape.json", mode):
            turn = lent(session, query=f"{ALIKE} {QUERY}")
            assert turn.searches[0].ranked_by == "words"
            assert not session.search(ALIKE)
    assert session.search(ALIKE)


def test_a_session_that_saves_nothing_learns_nothing() -> None:
    with opened(None) as session:
        lent(session)
        assert not session.search(ALIKE)
        assert session.tools.memory.now.note in str(session.tools.memory)
        with pytest.raises(UsageError):
            session.tools.memory.clear()


def test_a_file_that_cannot_be_read_costs_no_search(session: Session) -> None:
    lent(session)
    store = session.conversations.store
    assert store is not None
    store.close()
    store.path.write_bytes(b"This is no database, but it is long enough to be one." * 10)
    for rest in store.path.parent.glob("chats.db-*"):
        rest.unlink()
    assert session.search("title")
    with pytest.raises(UsageError):
        list(session.tools.memory)


DAMAGE = (
    "UPDATE events SET json = 'no json' WHERE number % 2 = 0",
    "UPDATE events SET json = json_set(json, '$.tool', 7, '$.rows', 7)",
    "UPDATE events SET json = json_set(json, '$.began', 'then')",
    "UPDATE events SET json = json_set(json, '$.began', 1e300)",
    "UPDATE events SET json = json_set(json, '$.messages', json('[[0, 99], {}, 3]'))",
    "UPDATE events SET json = json_set(json, '$.query', json('{}'), '$.status', json('[1]'))",
    "UPDATE parts SET json = '{' WHERE kind = 'message'",
    "UPDATE parts SET json = '[]' WHERE kind = 'message'",
    "UPDATE conversations SET writes = 'many'",
    f"UPDATE events SET json = json_set(json, '$.began', json('{'9' * 400}'))",
    "CREATE TABLE forgotten (question TEXT, at REAL); INSERT INTO forgotten VALUES ('', 'x')",
)


def test_damaged_rows_are_left_out(session: Session, tmp_path: Path) -> None:
    lent(session)
    assert session.conversations.store is not None
    session.conversations.store.close()
    counts = []
    for number, damage in enumerate(DAMAGE):
        path = tmp_path / f"{number}.db"
        path.write_bytes((tmp_path / "chats.db").read_bytes())
        with sqlite3.connect(path) as file:
            file.executescript(damage)
        file.close()
        with ConversationStore(path) as store:
            questions = PastQuestions(store.past_questions(PastQuestionReader()))
        assert str(questions)
        counts.append(len(questions))
    assert counts == [0, 0, 2, 2, 1, 0, 1, 1, 2, 2, 2]


def test_the_texts_are_cut_and_shown_as_texts(session: Session) -> None:
    hostile = (
        "<b>Can</b> Emma\nkeep \x1b[31mMiddlemarch {{x}} over the weekend? " + "Please! " * 500
    )
    lent(session, question=hostile)
    question = session.tools.memory[-1]
    assert len(question.text) <= 300
    html = session.tools.memory._repr_html_()
    assert "<b>Can" not in html
    assert "&lt;b&gt;Can" in html
    explained = session.search(ALIKE)[0].explain()
    for shown in (str(explained), explained._repr_html_(), str(session.tools.memory)):
        assert "\x1b" not in shown
    assert "<b>Can" not in explained._repr_html_()


def test_the_magic_shows_forgets_and_switches(session: Session) -> None:
    lent(session)
    run = COMMANDS["memory"].run
    assert run is not None
    assert isinstance(run(session, ""), SessionSearchMemory)
    memory = session.tools.memory
    run(session, "forget 1")
    assert len(memory) == 1
    run(session, "off")
    assert not memory.on
    # A line instead of the list, which could be long.
    confirmed = str(run(session, "on"))
    assert memory.on
    assert "1 question" in confirmed
    assert "\n" not in confirmed
    run(session, "clear")
    assert len(memory) == 0
    for wrong in ("forget", "forget 9", "forget x", "on now", "else"):
        with pytest.raises(UsageError):
            run(session, wrong)


def test_a_question_of_another_agent_keeps_the_index(session: Session, tmp_path: Path) -> None:
    session.conversations.save(Conversation.load(claude_code(tmp_path / "session.jsonl")))
    questions = session.parts.chat.state.past_questions
    before = asyncio.run(questions())
    assert len(before) == 2
    assert asyncio.run(questions()) is before


def test_only_changed_conversations_are_read_again(session: Session) -> None:
    lent(session)
    before = asyncio.run(session.parts.chat.state.past_questions())
    assert asyncio.run(session.parts.chat.state.past_questions()) is before
    session.conversations.new()
    lent(session, question="Who reads Emma?")
    after = asyncio.run(session.parts.chat.state.past_questions())
    assert {each.text for each in after} == {QUESTION, "Who reads Emma?", f"{QUERY} title"}
    kept = {id(each) for each in before}
    assert any(id(each) in kept for each in after)


def test_two_stores_of_a_file_learn_from_each_other(session: Session, tmp_path: Path) -> None:
    lent(session)
    with ConversationStore(tmp_path / "chats.db") as other:
        other.forget_question()
    assert not session.tools.memory


ELSEWHERE = "Does Paul get Ulysses for a week?"


def claude_code(path: Path) -> Path:
    """A session of Claude Code: a search, a call that fails, one that does not, and its own tool."""
    calls = [
        ("ToolSearch", {"query": "library desk"}, "books__lend", False),
        ("ToolSearch", {"query": "select:mcp__books__lend"}, "books__lend", False),
        ("mcp__books__search", {"words": "secret"}, "", True),
        ("mcp__books__lend", {"title": "secret"}, "secret", False),
        ("Bash", {"command": "ls"}, "secret", False),
    ]
    when = {"sessionId": "s1", "timestamp": "2026-01-05T09:00:00Z"}
    lines: list[dict[str, Any]] = []
    reminder = "<system-reminder>Be <b>brief</b>.</system-reminder>"
    prompts = (f"{reminder}\n{ELSEWHERE}", "<command-name>/lend</command-name>", "[Image #1]")
    for prompt in prompts:
        lines.append({"type": "user", "message": {"role": "user", "content": prompt}, **when})
        for number, (name, arguments, text, failed) in enumerate(calls):
            id = f"{prompt} {number}"
            block = {"type": "tool_use", "id": id, "name": name, "input": arguments}
            content: Any = text
            if name == "ToolSearch":
                content = [{"type": "tool_reference", "tool_name": f"mcp__{text}"}]
            result = {"type": "tool_result", "tool_use_id": id, "content": content}
            answer = {"id": id, "role": "assistant", "model": "m", "content": [block]}
            message = {"role": "user", "content": [{**result, "is_error": failed}]}
            lines.append({"type": "assistant", "message": answer, **when})
            lines.append({"type": "user", "message": message, **when})
    return write(path, lines)


def test_a_saved_session_of_another_agent_teaches_its_questions(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    claude_code(tmp_path / "session.jsonl")
    run = COMMANDS["import"].run
    assert run is not None
    id = run(session, "~/session.jsonl").id
    # The agent's own tools, what its program wrote, and searches by name teach nothing.
    assert remembered(session) == {(ELSEWHERE, LEND), ("library desk", LEND)}
    assert {each.conversation for each in session.tools.memory} == {id}
    assert "secret" not in str(session.tools.memory)
    (hit,) = session.search("Does Emma get Ulysses for a week?")
    (share,) = hit.explain().shares
    assert (hit.tool.tool_name, share.term) == (LEND, PAST_QUESTION)
    assert share.field == session.tools.memory[0].occasion
    assert ELSEWHERE in share.field
    assert "another agent" in share.field
    assert "5 January 2026" in share.field
    assert "Claude Code" in str(session.tools.memory)
    session.conversations.delete(id)
    assert not session.search("Does Emma get Ulysses for a week?")


@pytest.mark.parametrize("beginning", ["<b>Fix</b>", "<lend title='x'>", "[WIP]", "<command"])
def test_what_looks_like_an_addition_and_is_none_stays(tmp_path: Path, beginning: str) -> None:
    prompt = f"{beginning} the desk"
    assert own_words(prompt) == prompt
    added = (
        "<system-reminder>x</system-reminder>\n<ide_selection id='1'>y</ide_selection>[Image #1]"
    )
    assert own_words(f"{added} {prompt}") == f" {prompt}"
    rows = [json.loads(row) for row in claude_code(tmp_path / "s.jsonl").read_text().splitlines()]
    rows[0]["message"]["content"] = prompt
    with opened(tmp_path / "chats.db") as session:
        session.conversations.save(Conversation.load(write(tmp_path / "s.jsonl", rows)))
        assert (prompt, LEND) in remembered(session)


def test_a_tool_that_changed_since_a_search_first_used_it_forgets_other_agents_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chats.db"
    changed = books("Give any title to any reader.")
    with opened(path, changed, learn=False) as session:
        for _ in range(2):
            session.conversations.save(Conversation.load(claude_code(tmp_path / "session.jsonl")))
        # Nothing has used them yet.
        assert not session.search(ELSEWHERE)
    for server, hits in ((books(), 1), (changed, 0), (books(), 1)):
        with opened(path, server) as session:
            assert len(session.search(ELSEWHERE)) == hits
            assert len(session.tools.memory) == 2


def spans(path: Path, **definition: Any) -> Path:
    """A session as spans: a request that offered a tool, and the tool's call."""
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": ELSEWHERE}]),
        "gen_ai.tool.definitions": json.dumps([{"name": "mcp__books__lend", **definition}]),
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "mcp__books__lend"}
    times = {"start_time": "2026-01-05T09:00:00Z", "end_time": "2026-01-05T09:00:01Z"}
    rows = [
        {"trace_id": "t", "span_id": "a", "attributes": model, **times},
        {"trace_id": "t", "span_id": "b", "parent_id": "a", "attributes": tool, **times},
    ]
    return write(path, rows)


TITLE = {"type": "object", "properties": {"title": {"type": "string"}}}


@pytest.mark.parametrize(
    ("definition", "hits"),
    [
        ({"description": "Give a title to\n  a reader.", "parameters": TITLE}, 1),
        ({"description": "Give any title to any reader.", "parameters": TITLE}, 0),
        ({"description": "Give a title to a reader.", "parameters": {"type": "object"}}, 0),
        ({}, 1),
    ],
    ids=["same", "described otherwise", "other parameters", "only a name"],
)
def test_a_tool_that_differs_from_what_spans_have_of_it_is_not_taught(
    session: Session, tmp_path: Path, definition: dict[str, Any], hits: int
) -> None:
    conversation = Conversation.load(spans(tmp_path / "spans.jsonl", **definition))
    session.conversations.save(conversation)
    for _ in range(2):
        assert len(session.search(ELSEWHERE)) == hits
    assert remembered(session) == {(ELSEWHERE, LEND)}


def test_while_another_process_writes_a_search_learns_from_own_conversations(
    session: Session, tmp_path: Path
) -> None:
    lent(session)
    session.conversations.save(Conversation.load(claude_code(tmp_path / "session.jsonl")))
    own = next(each for each in session.tools.memory if not each.agent)
    store = session.conversations.store
    assert store is not None
    store.flush()
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert session.search(own.text)
        assert not session.search(ELSEWHERE)
        other.execute("ROLLBACK")
    assert session.search(ELSEWHERE)
