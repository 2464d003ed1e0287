"""Parameters that are named as values of the conversation's context are: injected, and no model
fills them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field

from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

pytestmark = pytest.mark.defect("H8")


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({}, quiet=True) as session:
        yield session


def orders(user_id: str, limit: int = 5) -> str:
    """List orders.

    Args:
        user_id: Whose.
        limit: How many.
    """
    return f"{limit} of {user_id}"


def offered(turn: Turn) -> Mapping[str, Any]:
    (tool,) = turn.steps[0].request.tools
    return dict(tool["parameters"])


@pytest.mark.parametrize("first", ["tool", "context"])
def test_a_value_of_the_session_is_injected_and_not_in_the_schema(
    session: Session, first: str
) -> None:
    if first == "context":
        session.tools.context = {"user_id": "ada"}
    session.tools.add(orders)
    session.tools.context = {"user_id": "ada"}
    turn = session.chat("Go", model=scripted_model(call("notebook__orders", limit=2), "done"))
    assert turn.tool_calls[0].result == "2 of ada"
    assert list(offered(turn)["properties"]) == ["limit"]
    assert "required" not in offered(turn)
    assert "user_id" not in json.dumps(session.tools["orders"].input_schema)
    assert session.tools.call("notebook:orders", limit=1).result == "1 of ada"


@pytest.mark.parametrize("value", ["mallory", "ada", None])
def test_a_model_that_names_it_is_told_and_nothing_runs(session: Session, value: object) -> None:
    session.tools.add(orders)
    session.tools.context = {"user_id": "ada"}
    turn = session.chat(
        "Go", model=scripted_model(call("notebook__orders", user_id=value, limit=2), "done")
    )
    (made,) = turn.tool_calls
    assert made.status == "error"
    assert "user_id" in made.result
    assert "leave it out" in made.result
    assert "ada" not in made.result.replace(str(value), "")


def test_a_marked_parameter_that_a_model_names_is_told_so_too(session: Session) -> None:
    def stock(product: str, db: Annotated[object, "any"], shop: str) -> str:
        return f"{product} of {db} in {shop}"

    session.tools.add(stock, inject={"db": object(), "shop": "x"})
    turn = session.chat(
        "Go", model=scripted_model(call("notebook__stock", product="tea", shop="y"), "done")
    )
    assert "leave it out" in turn.tool_calls[0].result


def test_a_value_of_one_turn_counts_for_that_turn(session: Session) -> None:
    session.tools.add(orders)
    with_it = session.chat(
        "Go", model=scripted_model(call("notebook__orders"), "done"), context={"user_id": "ada"}
    )
    assert list(session.tools["orders"].input_schema["properties"]) == ["user_id", "limit"]
    without = session.chat(
        "Go", model=scripted_model(call("notebook__orders", user_id="bob"), "done")
    )
    assert [turn.tool_calls[0].result for turn in (with_it, without)] == ["5 of ada", "5 of bob"]
    assert [list(offered(turn)["properties"]) for turn in (with_it, without)] == [
        ["limit"],
        ["user_id", "limit"],
    ]
    assert not [
        notice for turn in (with_it, without) for notice in turn.notices if "changed" in notice.text
    ]
    assert list(session.tools["orders"].input_schema["properties"]) == ["user_id", "limit"]
    session.tools.context = {"user_id": "eve"}
    turn = session.chat(
        "Go", model=scripted_model(call("notebook__orders"), "done"), context={"user_id": "ada"}
    )
    assert turn.tool_calls[0].result == "5 of ada"


def test_a_new_conversation_gives_the_parameter_back_to_the_model(session: Session) -> None:
    session.tools.add(orders)
    session.tools.context = {"user_id": "ada"}
    assert "required" not in session.tools["orders"].input_schema
    session.conversations.new()
    assert session.tools["orders"].input_schema["required"] == ["user_id"]


def test_a_plan_is_run_with_the_context_that_it_was_made_with(session: Session) -> None:
    session.tools.add(orders)
    plan = session.plan(
        "Go", model=scripted_model(call("notebook__orders", limit=3)), context={"user_id": "ada"}
    )
    assert plan[0].problems == ()
    assert [each.result for each in plan.run()] == ["3 of ada"]
    assert session.tools["orders"].input_schema["required"] == ["user_id"]


def test_a_parameter_that_no_model_can_fill_may_be_named_as_a_value(session: Session) -> None:
    def count(table: str, db: sqlite3.Connection) -> int:
        return int(db.execute(f"select count(*) from {table}").fetchone()[0])

    with pytest.raises(UsageError, match="db"):
        session.tools.add(count)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("create table pens (name text)")
    session.tools.context = {"db": connection}
    session.tools.add(count)
    turn = session.chat("Go", model=scripted_model(call("notebook__count", table="pens"), "done"))
    assert turn.tool_calls[0].result == "0"
    connection.close()


def test_the_name_of_the_parameter_counts_and_not_what_a_model_calls_it(session: Session) -> None:
    def greet(user_id: Annotated[str, Field(alias="who")], user: str = "x") -> str:
        return f"{user_id} {user}"

    session.tools.add(greet)
    session.tools.context = {"user_id": "ada", "who": "no"}
    assert list(session.tools["greet"].input_schema["properties"]) == ["user"]
    assert session.tools.call("notebook:greet", user="b").result == "ada b"


async def test_a_chat_without_a_session_injects_them_too() -> None:
    async with McpToolChat.from_config({}) as chat:
        chat.add_tool(orders)
        chat.context = {"user_id": "ada"}
        options = TurnOptions(model=scripted_model(call("notebook__orders"), "done"))
        from casual_llm.messages import UserMessage

        turn = await chat.run([UserMessage(content="Go")], options)
    assert turn.tool_calls[0].result == "5 of ada"
    assert list(offered(turn)["properties"]) == ["limit"]
