"""Sessions of Claude Code, Codex and others as conversations: what is counted once, what is nested,
what is not understood, and that hostile files are bounded.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.history import assert_valid
from kit.json_lines import spoiled, write

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.conversation.foreign import draft as drafts
from casual_mcp_nb.conversation.foreign import lines
from casual_mcp_nb.conversation.foreign.listing import find_foreign_sessions
from casual_mcp_nb.errors import UsageError

SECRET = "sk-abcdefghijk1234567890"


# Claude Code.


def line(kind: str, second: int, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    when = f"2026-06-15T10:{second // 60:02}:{second % 60:02}.000Z"
    return {
        "type": kind,
        "uuid": f"{kind}-{second}",
        "sessionId": "s1",
        "isSidechain": False,
        "timestamp": when,
        "message": {"role": kind, **message},
        **more,
    }


def said(second: int, content: Any, **more: Any) -> dict[str, Any]:
    return line("user", second, {"content": content}, **more)


def answer(
    second: int, id: str, block: dict[str, Any], tokens: tuple[int, int, int, int], **more: Any
) -> dict[str, Any]:
    names = (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    )
    usage = dict(zip(names, tokens, strict=True))
    message = {"id": id, "model": "claude-x", "content": [block], "usage": usage}
    return line("assistant", second, message, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": id, "content": content, **more}]


def claude_session(folder: Path) -> Path:
    """A session with a search, a subagent, and a message that two files have."""
    path = write(
        folder / "s1.jsonl",
        [
            said(1, "Compare the modules."),
            answer(2, "m1", text("I look for a tool."), (10, 1, 100, 7)),
            answer(3, "m1", use("t1", "ToolSearch", query="git history"), (10, 20, 100, 7)),
            said(4, result("t1", [{"type": "tool_reference", "tool_name": "mcp__git__log"}])),
            answer(5, "m2", use("t2", "Task", prompt="Survey web"), (5, 7, 0, 0)),
            said(20, result("t2", "Surveyed."), toolUseResult={"agentId": "ag1"}),
            answer(21, "m3", text("Done."), (1, 2, 0, 0)),
        ],
    )
    aside = {"isSidechain": True, "agentId": "ag1"}
    write(
        folder / "s1" / "subagents" / "agent-ag1.jsonl",
        [
            said(6, "Survey web", **aside),
            answer(7, "m9", use("t9", "mcp__git__log", n=3), (50, 60, 0, 0), **aside),
            said(8, result("t9", "No repository.", is_error=True), **aside),
            answer(9, "m10", text("The module is fine."), (70, 80, 0, 0), **aside),
            # A copy of a message of the session. The last line wins.
            answer(10, "m2", use("t2", "Task", prompt="Survey web"), (5, 9, 0, 0), **aside),
        ],
    )
    return path


def test_lines_of_one_message_count_once_and_the_last_wins(tmp_path: Path) -> None:
    conversation = Conversation.load(claude_session(tmp_path))
    tokens = conversation.stats.tokens
    assert tokens.prompt_tokens == 117 + 5 + 1 + 50 + 70
    assert tokens.completion_tokens == 20 + 9 + 2 + 60 + 80
    assert (tokens.cached_tokens, tokens.cache_write_tokens) == (100, 7)
    assert tokens.origin == "reported"
    # The parts of the requests add up to what is reported.
    assert conversation.stats.sent_tokens == tokens.prompt_tokens


def test_calls_searches_and_subagents_are_a_turn(tmp_path: Path) -> None:
    conversation = Conversation.load(claude_session(tmp_path))
    (turn,) = conversation
    assert (turn.prompt, turn.answer, turn.status) == ("Compare the modules.", "Done.", "done")
    assert turn.started.model == "claude-x"
    assert turn.seconds == 20.0
    search, task = turn.tool_calls
    assert search.search is not None
    assert search.search.query == "git history"
    assert [row.tool for row in search.search.rows] == [ToolName("git", "log")]
    assert (task.tool, task.result) == (ToolName("claude-code", "Task"), "Surveyed.")
    (nested,) = task.nested
    assert (nested.tool, nested.arguments) == (ToolName("git", "log"), {"n": 3})
    assert (nested.status, nested.result) == ("error", "No repository.")
    # The subagent's answers are steps, but no part of the history.
    assert len(turn.steps) == 5
    assert "[subagent] The module is fine." in [step.text for step in turn.steps]
    assert "[subagent] The module is fine." in turn._repr_html_()
    assert [message.role for message in turn.messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    git = conversation.usage.of(ToolName("git", "log"))
    assert (git.calls, git.succeeded, git.found) == (1, 0, 1)


def test_subagents_in_the_session_itself_find_their_call_by_its_prompt(tmp_path: Path) -> None:
    aside = {"isSidechain": True}
    path = write(
        tmp_path / "s.jsonl",
        [
            said(1, "Two surveys."),
            answer(2, "m1", use("t1", "Task", prompt="Web"), (1, 1, 0, 0)),
            answer(2, "m1", use("t2", "Task", prompt="Jobs"), (1, 1, 0, 0)),
            said(3, "Web", parentUuid=None, **aside),
            answer(4, "m2", use("t3", "Grep"), (1, 1, 0, 0), parentUuid="user-3", **aside),
            said(5, "Jobs", parentUuid=None, **aside),
            answer(6, "m3", use("t4", "Read"), (1, 1, 0, 0), parentUuid="user-5", **aside),
        ],
    )
    (turn,) = Conversation.load(path)
    nested = {call.id: [each.id for each in call.nested] for call in turn.tool_calls}
    assert nested == {"t1": ["t3"], "t2": ["t4"]}


@pytest.mark.parametrize(
    "prompt",
    ['{"name": "Ada"}', "[1, 2]", '[{"type": "text", "text": "x"}]', json.dumps(result("t1", "x"))],
)
def test_a_prompt_that_looks_like_a_message_is_a_prompt(tmp_path: Path, prompt: str) -> None:
    lines = [said(1, "Go."), answer(2, "m1", use("t1", "Read"), (1, 2, 0, 0)), said(3, prompt)]
    turns = Conversation.load(write(tmp_path / "s1.jsonl", lines))
    assert [turn.prompt for turn in turns] == ["Go.", prompt]
    assert turns[0].tool_calls[0].status != "ok"


@pytest.mark.parametrize(
    "ids",
    [("", ""), ("call_2", ""), ("i" * 300 + "1", "i" * 300 + "2"), ("\ud800", "\ud801")],
    ids=["none", "one", "long", "surrogates"],
)
def test_calls_with_odd_ids_are_all_there_and_a_history_is_valid(
    tmp_path: Path, ids: tuple[str, str]
) -> None:
    lines = [said(1, "Go."), *(answer(2, "m1", use(id, "Read"), (1, 2, 0, 0)) for id in ids)]
    conversation = Conversation.load(write(tmp_path / "s1.jsonl", lines))
    assert len({call.id for call in conversation[0].tool_calls}) == 2
    assert_valid(conversation.messages)


def test_what_the_program_adds_is_no_turn(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        [
            {"type": "summary", "summary": "Adding numbers", "leafUuid": "x"},
            {"type": "file-history-snapshot", "messageId": "x"},
            said(1, "<reminder>", isMeta=True),
            said(2, "Add 1 and 2."),
            answer(3, "m1", text("3"), (1, 1, 0, 0)),
            line("assistant", 4, {"model": "<synthetic>", "content": [text("API error")]}),
            said(5, "[Request interrupted by user]"),
            {"type": "system", "subtype": "compact_boundary", "uuid": "c", "sessionId": "s1"},
            said(6, "A summary.", isCompactSummary=True),
            said(7, "Go on."),
            answer(8, "m2", text("Gone on."), (1, 1, 0, 0)),
        ],
    )
    first, second = Conversation.load(path)
    assert (first.prompt, first.status) == ("Add 1 and 2.", "stopped")
    assert [notice.text for notice in first.notices] == ["API error"]
    assert second.prompt == "Go on."
    # After a compaction, requests begin with the summary.
    assert [message.content for message in second.steps[0].request.messages] == [
        *("A summary.", "Go on.")
    ]


def test_lines_without_a_type_or_an_id_are_counted(tmp_path: Path) -> None:
    usage = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 10}
    bare = {"message": {"role": "assistant", "usage": usage}}
    older = {"type": "assistant", "message": {"content": "Hi"}, "inputTokens": 2, "outputTokens": 3}
    conversation = Conversation.load(write(tmp_path / "s.jsonl", [bare, bare, older]))
    assert conversation.stats.tokens.total_tokens == 2 * 160 + 5
    assert conversation[0].answer == "Hi"


# Codex.


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return _codex("event_msg", type=kind, **payload)


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return _codex("response_item", type=kind, **payload)


def _codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05.000Z", "type": kind, "payload": payload}


def tokens_of(read: int, cached: int, written: int) -> dict[str, int]:
    return {
        "input_tokens": read,
        "cached_input_tokens": cached,
        "output_tokens": written,
        "reasoning_output_tokens": 1,
        "total_tokens": read + written,
    }


def token_count(last: tuple[int, int, int], total: tuple[int, int, int]) -> dict[str, Any]:
    info = {"last_token_usage": tokens_of(*last), "total_token_usage": tokens_of(*total)}
    return event("token_count", info=info)


def message(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": words}])


def codex_session(path: Path) -> Path:
    return write(
        path,
        [
            _codex("session_meta", id="s", base_instructions={"text": "You are Codex."}),
            message("user", "\n<environment_context>here</environment_context>\n"),
            _codex("turn_context", model="gpt-x"),
            message("user", "List the files."),
            event("user_message", message="List the files."),
            item("reasoning", summary=[]),
            item("function_call", name="shell", arguments='{"cmd": "ls"}', call_id="c1"),
            event("token_count", info=None),
            token_count((100, 50, 10), (100, 50, 10)),
            item("function_call_output", call_id="c1", output="Exit code: 2\nOutput: none"),
            item("function_call", name="mcp__git__log", arguments="{}", call_id="c2"),
            token_count((120, 100, 5), (220, 150, 15)),
            item("function_call_output", call_id="c2", output={"content": "ok", "success": True}),
            event("agent_message", message="There are two."),
            message("assistant", "There are two."),
            token_count((130, 120, 6), (350, 270, 21)),
            # Only the limits have changed.
            token_count((130, 120, 6), (350, 270, 21)),
            event("user_message", message="Stop."),
            event("turn_aborted", reason="interrupted"),
        ],
    )


def test_a_codex_total_is_counted_once(tmp_path: Path) -> None:
    conversation = Conversation.load(codex_session(tmp_path / "rollout-1.jsonl"))
    tokens = conversation.stats.tokens
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.cached_tokens) == (350, 21, 270)
    assert [step.usage and step.usage.prompt_tokens for step in conversation[0].steps] == [
        *(100, 120, 130)
    ]
    first, second = conversation
    assert [message.content for message in first.started.messages] == ["List the files."]
    assert first.answer == "There are two."
    assert (second.prompt, second.status) == ("Stop.", "stopped")
    assert first.steps[0].request.messages[0].content == "You are Codex."
    shell, log = first.tool_calls
    assert (shell.tool, shell.arguments, shell.status) == (
        *(ToolName("codex", "shell"), {"cmd": "ls"}, "error"),
    )
    assert (log.tool, log.status, log.result) == (ToolName("git", "log"), "ok", "ok")


def test_a_codex_session_of_events_only_has_its_answer(tmp_path: Path) -> None:
    rows = [
        event("user_message", message="Hello"),
        event("agent_message", message="Hi"),
        event("user_message", message="Again"),
        event("agent_message", message="Hi again"),
    ]
    first, second = Conversation.load(write(tmp_path / "rollout-2.jsonl", rows))
    assert (first.answer, second.answer) == ("Hi", "Hi again")


def test_a_codex_question_with_an_image_is_one_question(tmp_path: Path) -> None:
    content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image"}]
    lines = [
        _codex("session_meta", id="s"),
        item("message", role="user", content=content),
        event("user_message", message="What is this?"),
        message("assistant", "A cat."),
    ]
    conversation = Conversation.load(write(tmp_path / "s.jsonl", lines))
    assert [turn.prompt for turn in conversation] == ["What is this?"]
    assert len(conversation[0].steps[0].request.messages) == 1


def test_a_codex_question_that_is_only_an_image_is_a_question(tmp_path: Path) -> None:
    rows = [
        _codex("session_meta", id="s"),
        message("user", "<user_shell_command>ls</user_shell_command>"),
        message("user", "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>y</INSTRUCTIONS>"),
        event("user_message", message="[Image #1]"),
        message("assistant", "A cat."),
    ]
    (turn,) = Conversation.load(write(tmp_path / "rollout-6.jsonl", rows))
    assert (turn.prompt, turn.answer) == ("[Image #1]", "A cat.")


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (1, "error")])
def test_a_codex_command_fails_by_its_own_code_and_not_by_what_it_prints(
    tmp_path: Path, code: int, status: str
) -> None:
    output = f"Exit code: {code}\nOutput:\nExit code: {1 - code}\n"
    rows = [
        _codex("session_meta", id="s"),
        message("user", "Run the tests."),
        item("function_call", name="shell", arguments="{}", call_id="c1"),
        item("function_call_output", call_id="c1", output=output),
    ]
    (turn,) = Conversation.load(write(tmp_path / "rollout-6.jsonl", rows))
    assert [call.status for call in turn.tool_calls] == [status]


def test_a_codex_total_is_counted_if_an_answer_has_no_tokens_of_its_own(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [event("user_message", message="Go")]
    # The last one begins from zero again.
    for number, total in enumerate([(100, 50, 10), (220, 150, 15), (30, 0, 5)]):
        rows.append(event("agent_message", message=f"Answer {number}"))
        rows.append(event("token_count", info={"total_token_usage": tokens_of(*total)}))
    tokens = Conversation.load(write(tmp_path / "rollout-7.jsonl", rows)).stats.tokens
    assert (tokens.prompt_tokens, tokens.completion_tokens) == (250, 20)


def test_an_early_codex_session_has_its_items_bare(tmp_path: Path) -> None:
    rows = [
        {"id": "x", "timestamp": "2025-05-01T00:00:00Z"},
        message("user", "Hello")["payload"],
        message("assistant", "Hi")["payload"],
    ]
    conversation = Conversation.load(write(tmp_path / "rollout-3.jsonl", rows))
    assert (conversation[0].prompt, conversation[0].answer) == ("Hello", "Hi")
    assert len(conversation.repairs) == 1


# Both.


def test_a_text_that_is_said_twice_is_kept_twice_and_a_repeated_line_once(tmp_path: Path) -> None:
    twice = [said(1, "Go on."), said(2, "Go on."), said(2, "Go on.")]
    lines = [*twice, answer(3, "m1", text("Yes."), (1, 2, 0, 0)), said(4, "Go on.")]
    conversation = Conversation.load(write(tmp_path / "s1.jsonl", lines))
    asked = [[message.content for message in turn.started.messages] for turn in conversation]
    assert asked == [["Go on.", "Go on."], ["Go on."]]


def test_texts_that_are_too_many_for_a_turn_are_counted(tmp_path: Path) -> None:
    lines = [said(second, f"Words {second}") for second in range(drafts._MAX_ITEMS + 3)]
    conversation = Conversation.load(write(tmp_path / "s1.jsonl", lines))
    assert len(conversation[0].started.messages) == drafts._MAX_ITEMS
    assert "3 texts" in conversation.repairs[-1]


def test_what_is_not_understood_is_counted_and_no_error(tmp_path: Path) -> None:
    path = codex_session(tmp_path / "rollout-4.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type": "later"}\n{"payload": 1, "type": "later"}\n{broken\n[]\n\n')
        file.write(json.dumps(item("later_item")) + "\n")
    conversation = Conversation.load(path)
    assert len(conversation) == 2
    notes = "\n".join(conversation.repairs)
    assert "'later' (2)" in notes
    assert "later_item" in notes
    assert "'not valid JSON' (2)" in notes
    assert "later_item" in str(conversation)


@pytest.mark.parametrize("wrong", [None, 0, [], {}, [[]], "", 10**30, {"type": [1]}])
def test_a_field_of_another_type_is_no_error(tmp_path: Path, wrong: Any) -> None:
    for path in (claude_session(tmp_path), codex_session(tmp_path / "rollout-5.jsonl")):
        rows = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]
        copies = [row for row in rows[3:] for row in spoiled(row, wrong)]
        conversation = Conversation.load(write(path, [*rows[:3], *copies]))
        assert Conversation.from_json(conversation.to_json()).repairs == ()


def test_an_unpaired_surrogate_is_read(tmp_path: Path) -> None:
    row = json.dumps(said(1, "cut X")).replace("X", "\\ud83d")
    (turn,) = Conversation.load(write(tmp_path / "s.jsonl", [row]))
    assert turn.prompt == "cut ?"


def test_a_loaded_session_works_as_any_conversation(tmp_path: Path) -> None:
    loaded = Conversation.load(claude_session(tmp_path))
    again = Conversation.from_json(loaded.to_json())
    assert again.stats.tokens == loaded.stats.tokens
    assert [call.nested for call in again[0].tool_calls] == [
        call.nested for call in loaded[0].tool_calls
    ]
    with Session({}, quiet=True, store=tmp_path / "chats.db") as session:
        id = session.conversations.save(loaded).id
        for name in ("a.html", "a.md", "a.json"):
            session.export(tmp_path / name, id)
        session.export(tmp_path / "player.html", id, player=True)
        assert session.conversations.find("Survey").conversations[0].turns == 1
    assert "Compare the modules." in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Compare the modules." in (tmp_path / "player.html").read_text(encoding="utf-8")


def test_hostile_text_is_text_and_secrets_are_masked(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    path = write(
        tmp_path / "s.jsonl",
        [
            said(1, f"{script} my key is {SECRET}"),
            answer(2, "m1", use("t1", script, password="hunter22", note=SECRET), (1, 1, 0, 0)),
            said(3, result("t1", f"{script} {SECRET}")),
        ],
    )
    conversation = Conversation.load(path)
    (call,) = conversation[0].tool_calls
    assert SECRET not in conversation.to_json()
    assert "hunter22" not in conversation.to_json()
    assert script not in conversation._repr_html_()
    assert script not in str(call._repr_html_())


def test_long_lines_and_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 50_000)
    path = write(
        tmp_path / "s.jsonl",
        [
            said(1, "Read."),
            answer(2, "m1", use("t1", "Read"), (1, 1, 0, 0)),
            said(3, result("t1", "a" * 30_000)),
            said(4, "b" * 100_000),
            answer(5, "m2", text("Done."), (1, 1, 0, 0)),
        ],
    )
    conversation = Conversation.load(path)
    (turn,) = conversation
    assert len(turn.tool_calls[0].result) < drafts.MAX_TEXT + 100
    assert turn.answer == "Done."
    assert any("MB' (1)" in note for note in conversation.repairs)


def test_the_tokens_of_what_is_not_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(300):
        rows.append(said(number, f"Question {number}"))
        rows.append(answer(number, f"m{number}", text("One"), (1, 1, 0, 0)))
        rows.append(answer(number, f"m{number}", text("Two"), (1, 2, 0, 0)))
    # An early message again, long after it was counted.
    rows.append(answer(301, "m20", text("Two"), (1, 2, 0, 0)))
    path = write(tmp_path / "s.jsonl", rows)
    monkeypatch.setattr(drafts, "MAX_STEPS", 10)
    conversation = Conversation.load(path)
    assert conversation.stats.tokens.total_tokens == 300 * 3
    assert len(conversation) == 10


def test_other_files_are_refused_with_what_they_have(tmp_path: Path) -> None:
    # One that looks like an early session of Codex, of another agent.
    content = [{"type": "output_text", "text": "Hello"}]
    item = {"type": "message", "role": "assistant", "content": content, "sessionId": "s"}
    log = {"type": "system", "message": "The server has started."}
    for rows in ([item, item], [{"type": "other"}, {}], [log, log], ["hello"], [], ["{}", "hello"]):
        with pytest.raises(UsageError) as refused:
            Conversation.load(write(tmp_path / "a.jsonl", rows))
        assert "OpenTelemetry" in str(refused.value.hint)
    assert "'type'" in str(refused.value) or rows[0] == "{}"
    with pytest.raises(UsageError):
        Conversation.load(write(tmp_path / "a.jsonl", [{"type": "other"}]))
    with pytest.raises(UsageError):
        Conversation.load(tmp_path)
    with pytest.raises(UsageError):
        Conversation.load(tmp_path / "missing.jsonl")


def test_sessions_are_found_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    assert list(find_foreign_sessions()) == []
    claude = claude_session(tmp_path / "claude" / "projects" / "x")
    codex = codex_session(tmp_path / "codex" / "sessions" / "2026" / "01" / "rollout-1.jsonl")
    archived = codex_session(tmp_path / "codex" / "archived_sessions" / "rollout-2.jsonl")
    for age, path in enumerate((claude, codex, archived)):
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    write(claude.with_name("agent-1.jsonl"), [said(1, "Of a subagent.")])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    found = find_foreign_sessions()
    assert [each.path for each in found] == [claude, codex, archived]
    first = found[0]
    assert (first.agent, first.title, first.turns) == ("Claude Code", "Compare the modules.", 1)
    assert (first.calls, first.unread, first.whole) == (3, 0, True)
    assert first.tokens == Conversation.load(claude).stats.tokens.total_tokens
    assert "Compare the modules." in str(found)
    assert main(["sessions", "--json", "--limit", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in rows] == [str(claude), str(codex)]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before
