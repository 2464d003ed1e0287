"""Texts copied from the panel, images that are attached there, and the reasons of denials."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kit.pictures import DOT
from kit.told import Told

from casual_mcp_nb.base.content import MAX_BYTES
from casual_mcp_nb.display.words import call_code, literal
from casual_mcp_nb.engine.consent import MAX_REASON
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.notebook.step_mode import StepQuestion
from casual_mcp_nb.providers.scripted import call, calls
from casual_mcp_nb.widgets._transcript import chat_code
from casual_mcp_nb.widgets.conversation import ConversationState

ADD = call("math__add", a=1, b=2)


def attached(data: bytes, name: str = "photo.png") -> dict[str, str]:
    return {"name": name, "data": base64.b64encode(data).decode()}


def the_turn(told: Told) -> str:
    (turn,) = told.idle()["turns"]
    return turn


# --- copying


def test_the_answer_and_python_that_asks_the_same_are_copied(told: Told) -> None:
    told.state = ConversationState(told.session, model=told.model, max_steps=7)
    told.play("**Hello** there")
    told.send("Say\n'hello'")
    turn = the_turn(told)
    assert told.do("copy", turn=turn, what="answer") == "**Hello** there"
    assert (
        told.do("copy", turn=turn, what="python")
        == """session.chat("Say\\n'hello'", max_steps=7)"""
    )


def test_of_a_call_its_arguments_its_result_and_its_python_are_copied(told: Told) -> None:
    told.play(calls(call("units__no", a=1), ADD), "3")
    told.send("Add")
    told.do("answer", question=told.asks(ApprovalQuestion), answer="approve")
    turn = the_turn(told)
    missing, add = told.session.turns[0].tool_calls
    assert told.do("copy", turn=turn, what="arguments", call=add.id) == add_arguments()
    assert told.do("copy", turn=turn, what="result", call=add.id) == add.result
    code = told.do("copy", turn=turn, what="call_python", call=add.id)
    assert eval(code, {"session": told.session}).result == add.result
    assert told.do("copy", turn=turn, what="call_python", call=missing.id).startswith(
        'session.tools.call("units__no"'
    )
    told.play(call("math__add", a=1, b={"$result": "r_0123456789"}), "No.")
    told.send("Pass")
    *_, turn = told.idle()["turns"]
    passed = told.session.turns[-1].tool_calls[0]
    with pytest.raises(UsageError, match="passes"):
        told.do("copy", turn=turn, what="call_python", call=passed.id)
    with pytest.raises(UsageError, match="no such call"):
        told.do("copy", turn=turn, what="result", call="another")
    with pytest.raises(UsageError, match="Invalid arguments"):
        told.do("copy", turn=turn, what="everything")


def add_arguments() -> str:
    return '{\n  "a": 1,\n  "b": 2\n}'


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a\"b'c",
        "line\nend",
        "\u202e\x00",
        "C:\\new",
        {"a": [1, 2.5, None, True, {"b": "ü"}]},
        [],
        "'",
        '"',
        "\\'",
        "\ud800",
    ],
)
def test_a_value_becomes_a_literal_that_means_the_same_and_hides_nothing(value: Any) -> None:
    text = literal(value)
    assert eval(text) == value
    assert text.isprintable()


def test_names_that_no_keyword_can_have_are_still_passed() -> None:
    def call_tool(name: str, /, **arguments: Any) -> Any:
        return name, arguments

    arguments = {"name": 1, "class": 2, "x-y": "z" * 90}
    code = call_code("a:b", arguments)
    assert eval(code.removeprefix("session.tools."), {"call": call_tool}) == ("a:b", arguments)
    assert max(map(len, code.splitlines())) < 128
    assert chat_code("x", {}, images=1) == 'session.chat("x", images=["image-1.png"])'


# --- images


def test_an_attached_image_goes_to_the_model_and_shows_beside_the_prompt(told: Told) -> None:
    told.play("A square.", "Still a square.")
    told.do("send", prompt="What is this?", images=[attached(DOT)])
    turn = the_turn(told)
    (row,) = told.shown()["turns"].values()
    assert (row["prompt"], row["images"]) == ("What is this?", [""])
    (message,) = told.session.turns[0].prompt_messages
    assert base64.b64decode(message.content[1].source["data"]) == DOT
    assert (
        told.do("image", turn=turn, index=0)
        == f"data:image/png;base64,{base64.b64encode(DOT).decode()}"
    )
    for index in (-1, 1):
        with pytest.raises(UsageError, match="no such image"):
            told.do("image", turn=turn, index=index)
    assert "images=" in told.do("copy", turn=turn, what="python")
    told.do("rerun", turn=turn, prompt="And now?")
    (row,) = told.idle()["turns"].values()
    assert (row["prompt"], row["images"]) == ("And now?", [""])


@pytest.mark.parametrize(
    "data", [b"<svg onload='alert(1)'/>", b"%PDF-1.7", DOT + bytes(MAX_BYTES), b""]
)
def test_what_is_not_an_image_for_models_is_refused_by_its_name_and_nothing_is_sent(
    told: Told, data: bytes
) -> None:
    with pytest.raises(UsageError, match=r"'photo\.png'"):
        told.do("send", prompt="What is this?", images=[attached(data)])
    assert told.shown()["turns"] == {}


# --- reasons, and the request of a paused step


def test_the_reason_of_a_denial_reaches_the_model_and_is_cut(told: Told) -> None:
    told.play(ADD, "So be it.")
    told.send("Add")
    told.do(
        "answer",
        question=told.asks(ApprovalQuestion),
        answer="deny",
        values={"reason": "too dear " * MAX_REASON},
    )
    told.idle()
    turn = told.session.turns[0]
    (result,) = [message for message in turn.steps[1].request.messages if message.role == "tool"]
    assert "too dear" in result.content
    assert len(result.content) < MAX_REASON + 200
    assert turn.tool_calls[0].status == "denied"


def test_a_paused_step_shows_the_request_that_it_is_about_to_send(told: Told) -> None:
    told.do("set_step_mode", on=True)
    told.play("ok")
    told.send("Weigh the hat")
    question = told.asks(StepQuestion)
    assert told.shown()["questions"][question]["step"] == 1
    assert "Weigh the hat" in told.do("coming_request", question=question)
    told.do("answer", question=question, answer="run")
    told.idle()
    with pytest.raises(UsageError, match="no longer open"):
        told.do("coming_request", question=question)
