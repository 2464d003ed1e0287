"""Stubs that answer in place of tools: marked, approved by nobody, ended with their block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from casual_mcp_nb import Conversation, McpToolChat, Session
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.own_tools.toolbox import example
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.views import transcript_html

CONFIG: dict[str, Any] = {
    "servers": {"math": {"bundled": "math", "transport": "in-process", "approval": "always"}}
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        session.connect()
        yield session


def added(session: Session) -> Any:
    model = scripted_model(calls(call("math__add", a=1, b=2)), "Done.")
    return session.chat("Add", model=model, echo="none").tool_calls[0]


@pytest.mark.parametrize(
    ("stubs", "result"),
    [
        ({"math:add": 40}, "40"),
        ({"math__add": "forty"}, "forty"),
        ({"math:*": {"sum": 40}}, '{\n  "sum": 40\n}'),
        ({"*": 1, "math:add": 2}, "2"),
        ({"math:add": lambda a, b: a * 10 + b}, "12"),
    ],
)
def test_a_stub_answers_and_nobody_is_asked(
    session: Session, stubs: dict[str, Any], result: str
) -> None:
    with session.tools.mock(stubs):
        made = added(session)
    assert (made.status, made.result, made.mocked) == ("ok", result, True)


def test_a_stub_that_raises_is_an_error_of_its_call(session: Session) -> None:
    def fails(a: float, b: float) -> None:
        raise OSError("the line is busy")

    with session.tools.mock({"math:add": fails}):
        made = added(session)
    assert (made.status, made.mocked) == ("error", True)
    assert "OSError: the line" in made.result


def test_a_value_that_fits_the_output_schema_is_made_up(session: Session) -> None:
    with session.tools.mock({"math:add": ...}):
        made = added(session)
    assert isinstance(made.structured, dict)
    assert made.structured.keys() == set(session.tools["math:add"].output_schema["required"])  # type: ignore[index]


def test_a_tool_without_an_output_schema_has_a_stub_that_is_a_text(session: Session) -> None:
    session.tools.add(lambda: 1, name="free")
    with session.tools.mock({"*": ...}):
        (made,) = session.chat(
            "Go", model=scripted_model(call("notebook__free"), "Done."), echo="none"
        ).tool_calls
    assert (made.result, made.mocked) == ("example", True)


def test_the_later_mock_counts_until_it_is_stopped(session: Session) -> None:
    first = session.tools.mock({"math:add": "first"})
    with session.tools.mock({"math:add": "second"}):
        assert added(session).result == "second"
    assert added(session).result == "first"
    first.stop()
    first.stop()
    assert session.tools.call("math:add", a=1, b=2).structured == {"result": 3}


def test_a_mocked_call_is_marked_in_each_form_and_in_a_saved_conversation(
    session: Session, tmp_path: Any
) -> None:
    with session.tools.mock({"math:add": 40}):
        added(session)
    turn = session.turns[-1]
    assert all(
        "mock" in text
        for text in (
            *turn._repr_mimebundle_().values(),
            transcript_html(turn),
            str(turn.tool_calls[0]),
        )
    )
    session.export(tmp_path / "chat.json")
    assert Conversation.load(tmp_path / "chat.json")[0].tool_calls[0].mocked


def ask(session: Session, **options: Any) -> Any:
    return session.chat(
        "Add",
        model=scripted_model(calls(call("math__add", a=1, b=2)), "Done."),
        echo="none",
        **options,
    )


@pytest.mark.defect("H9")
def test_a_stub_of_one_chat_call_overrides_the_sessions_stubs_in_that_turn(
    session: Session,
) -> None:
    with session.tools.mock({"math:add": "of the session", "math:subtract": "other"}):
        (made,) = ask(session, mock={"math:add": lambda a, b: a * 10 + b}).tool_calls
        assert (made.status, made.result, made.mocked) == ("ok", "12", True)
        assert ask(session).tool_calls[0].result == "of the session"
    assert [record.permission.by for record in session.consent.audit if record.permission] == [
        "mock",
        "mock",
    ]
    assert ask(session).tool_calls[0].status == "denied"


@pytest.mark.defect("H9")
@pytest.mark.parametrize("method", ["stream", "submit", "plan", "pauses"])
def test_every_way_to_ask_takes_stubs(session: Session, method: str) -> None:
    model = scripted_model(calls(call("math__add", a=1, b=2)), "Done.")
    options: Any = {"model": model, "mock": {"*": "stub"}}
    if method == "plan":
        assert [each.mocked for each in session.plan("Add", **options).run()] == [True]
        return
    if method == "submit":
        session.submit("Add", **options).result(30)
    elif method == "pauses":
        assert len([*session.pauses("Add", **options)]) == 2
    else:

        async def follow() -> None:
            async for _ in session.stream("Add", **options):
                pass

        asyncio.run(follow())
    assert [each.mocked for each in session.turns[-1].tool_calls] == [True]


@pytest.mark.defect("H9")
@pytest.mark.parametrize(
    ("stubs", "error"),
    [({"math:ad": 1}, UnknownNameError), ({7: 1}, UsageError), ([1], UsageError)],
)
def test_stubs_of_one_call_are_checked_before_anything_is_sent(
    session: Session, stubs: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(session, mock=stubs)
    assert session.turns == []


@pytest.mark.defect("H9")
async def test_a_chat_without_a_session_takes_stubs() -> None:
    chat = McpToolChat.from_config(CONFIG)
    messages = await chat.chat(
        "Add", model=scripted_model(call("math__add", a=1, b=2), "Done."), mock={"math:add": "stub"}
    )
    await chat.close()
    assert [message.content for message in messages if message.role == "tool"] == ["stub"]


@pytest.mark.defect("H9")
def test_a_mocked_turn_replays_from_a_cassette_and_is_marked_there(tmp_path: Any) -> None:
    config = {
        "clients": {"offline": {"provider": "offline"}},
        "models": {"planner": {"client": "offline", "model": "p"}},
    }
    with (
        Session({**CONFIG, **config}) as session,
        session.cassettes.use(tmp_path / "tape.json", "all"),
    ):
        answer = session.chat("What is 17*23?", mock={"math:*": "3000"}, echo="none").answer
    with Session.quick(cassette=tmp_path / "tape.json") as session:
        turn = session.chat("What is 17*23?", echo="none")
    assert turn.answer == answer
    assert [(each.result, each.mocked) for each in turn.tool_calls] == [("3000", True)]


@pytest.mark.parametrize("name", ["math:ad", "maths:*", "nothing"])
def test_an_unknown_name_is_refused(session: Session, name: str) -> None:
    with pytest.raises(UnknownNameError):
        session.tools.mock({name: 1})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "example"),
        ({"type": ["integer", "null"], "minimum": 3}, 3),
        ({"enum": ["a", "b"]}, "a"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, True),
        ({"properties": {"a": {"type": "array"}, "b": {}}, "required": ["a"]}, {"a": []}),
        ({"type": "array", "minItems": 1, "items": {"const": 7}}, [7]),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "string", "minLength": 9}, "example……"),
        ({"type": "string", "maxLength": 2}, "ex"),
        ({"type": "number", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": 0}, 0),
        (
            {
                "$ref": "#/$defs/Row",
                "$defs": {"Row": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}},
            },
            {"id": 1},
        ),
        ({"$ref": "#/$defs/Loop", "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}, None),
        ({"type": 3, "properties": [], "items": 7}, None),
        ({}, None),
    ],
)
def test_examples_of_schemas(schema: Any, value: Any) -> None:
    assert example(schema) == value


def test_a_schema_that_grows_without_end_has_a_small_example() -> None:
    names = [f"p{number}" for number in range(10)]
    node = {"properties": {name: {"$ref": "#/$defs/Node"} for name in names}, "required": names}
    assert len(str(example({"$ref": "#/$defs/Node", "$defs": {"Node": node}}))) < 100_000
    deep: Any = {
        "type": "array",
        "minItems": 10**9,
        "items": {"type": "array", "minItems": 10**9, "items": {"const": 1}},
    }
    assert len(example(deep)) == 20
