"""`casual-mcp-nb usage`: how tools were used in saved conversations and other agents' sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.cli.app import main
from casual_mcp_nb.display.words import UNKNOWN

LINES = (
    {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "Look."}},
    {
        "type": "assistant",
        "sessionId": "s",
        "message": {
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "mcp__git__log", "input": {}}],
            "usage": {"input_tokens": 5, "output_tokens": 2},
        },
    },
)


@pytest.fixture
def session_file(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "s.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    path.with_name("agent-1.jsonl").write_text(json.dumps(LINES[0]), encoding="utf-8")
    path.with_name("other.jsonl").write_text('{"type": "other"}', encoding="utf-8")
    return path


def usage(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    assert main(["usage", "--json", *map(str, options)]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_session_and_a_folder_of_them_are_counted(
    session_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = usage(capsys, "--sessions", session_file)
    assert (one["conversations"], one["turns"], one["calls"]) == (1, 1, 1)
    assert [(row["tool"], row["calls"]) for row in one["tools"]] == [("git:log", 1)]
    assert usage(capsys, "--sessions", session_file.parent) == one
    monkeypatch.setenv("HOME", str(session_file.parents[1]))
    assert usage(capsys, "--sessions", Path("~", session_file.parent.name)) == one
    # Which tools its requests offered is not known.
    assert main(["usage", "--sessions", str(session_file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[4:6] == [UNKNOWN, UNKNOWN]
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
    span = {"trace_id": "t", "span_id": "s", "attributes": attributes}
    session_file.with_name("spans.json").write_text(json.dumps([span]), encoding="utf-8")
    (session_file.parent / "folder.jsonl").mkdir()
    both = usage(capsys, "--sessions", session_file.parent)
    assert (both["conversations"], both["turns"], both["calls"]) == (2, 2, 2)


def test_usage_says_how_many_records_were_not_understood(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = usage(capsys, "--sessions", session_file)
    assert whole["unread"] == 0
    assert main(["usage", "--sessions", str(session_file)]) == 0
    assert "not understood" not in capsys.readouterr().out
    with session_file.open("a", encoding="utf-8") as file:
        file.write('\n{"cut\n[]\n{"type": "later"}\n')
    assert usage(capsys, "--sessions", session_file) == {**whole, "unread": 3}
    assert Conversation.load(session_file).usage.unread_records == 3
    assert main(["usage", "--sessions", str(session_file)]) == 0
    assert "3 records not understood" in capsys.readouterr().out


def test_what_a_resumed_session_copies_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(text: str, second: int, call: str, *more: str) -> list[dict[str, Any]]:
        at = {"timestamp": f"2026-01-05T09:00:{second:02}Z"}
        lines = [{"type": "user", "message": {"role": "user", "content": text}, **at}]
        for id in (call, *more):
            part = {"type": "tool_use", "id": id, "name": "mcp__git__log", "input": {}}
            message = {"id": f"m{id}", "role": "assistant", "content": [part]}
            lines.append({"type": "assistant", "message": message, **at})
        return lines

    first, second = asked("Look.", 0, "t1"), asked("Again.", 20, "t2", "t3")
    sessions = {
        "first": [*first, *second],
        "resumed": [*first, *second, *asked("More.", 40, "t4")],
        # From the middle of the second turn.
        "forked": [*first, *asked("Again.", 20, "t2"), *asked("Other.", 50, "t5")],
        # Somebody else says the same.
        "other": asked("Look.", 59, "t6"),
    }
    for name, lines in sessions.items():
        text = "\n".join(json.dumps({**line, "sessionId": name}) for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    used = usage(capsys, "--sessions", tmp_path)
    assert (used["conversations"], used["calls"]) == (4, 6)


def test_calls_of_other_sessions_with_the_same_ids_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        lines = [{**line, "sessionId": name} for line in LINES]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    used = usage(capsys, "--sessions", tmp_path)
    assert (used["turns"], used["calls"]) == (2, 2)


@pytest.mark.parametrize(("question", "turns"), [("Question", 3), ("Other question", 5)])
def test_what_a_fork_of_codex_copies_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: str, turns: int
) -> None:
    """Other questions are other turns, even if the model gives its calls the same ids."""

    def write(
        name: str, id: str, time: str, questions: int, asked: str = "Question", **meta: str
    ) -> None:
        payloads: list[tuple[str, dict[str, Any]]] = [("session_meta", {"id": id, **meta})]
        if meta:
            payloads.append(("session_meta", {"id": "first"}))
        for number in range(questions):
            content = [{"type": "input_text", "text": f"{asked} {number}"}]
            fields = {"name": "mcp__git__log", "call_id": f"call_{number}", "arguments": "{}"}
            payloads += [
                ("response_item", {"type": "message", "role": "user", "content": content}),
                ("response_item", {"type": "function_call", **fields}),
            ]
        lines = [
            {"timestamp": time, "type": kind, "payload": payload} for kind, payload in payloads
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    write("a.jsonl", "first", "2026-01-05T09:00:00Z", 2)
    write("b.jsonl", "fork", "2026-01-06T09:00:00Z", 3, question, forked_from_id="first")
    both = usage(capsys, "--sessions", tmp_path)
    assert (both["conversations"], both["turns"], both["calls"]) == (2, turns, turns)
    store = tmp_path / "chats.db"
    with Session({}, quiet=True, store=store) as session:
        for name in ("a.jsonl", "b.jsonl"):
            session.conversations.save(Conversation.load(tmp_path / name))
    assert usage(capsys, "--store", store) == both


def test_the_audit_of_a_session_starts_no_server(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(session_file), "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)
    assert (audit["requests"], audit["saved"]) == (1, None)
    assert audit["calls"] == {"git:log": 1}


def test_saved_conversations_are_counted(
    session_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "chats.db"
    with Session({}, quiet=True, store=path) as session:
        id = session.conversations.save(Conversation.load(session_file)).id
    monkeypatch.setenv("MCP_STORE", str(path))
    whole = usage(capsys)
    assert whole["calls"] == 1
    assert usage(capsys, id, "--store", path) == whole
    assert main(["usage"]) == 0
    assert "git:log" in capsys.readouterr().out


def test_what_cannot_be_counted_is_an_error(
    session_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--store", str(tmp_path / "missing.db")]) != 0
    assert main(["usage", "k7m2", "--sessions", str(session_file)]) != 0
    assert "--sessions" in capsys.readouterr().err
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert main(["usage", "--sessions", str(nothing)]) != 0
    assert "nothing" in capsys.readouterr().err
