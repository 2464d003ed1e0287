"""The estimate of whole turns, from the model's view."""

from __future__ import annotations

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.engine.budget import ANSWER, CALL, CARD, QUESTION, RESULT, turn_budget
from casual_mcp_nb.engine.tool_view import ToolView, ViewSources, compile_view
from casual_mcp_nb.providers.scripted import call, scripted_model


def view(deferred: int, **options: object) -> ToolView:
    tools = [
        ToolSpec("far", f"tool_{number}", f"Do thing {number}.", {"type": "object"})
        for number in range(deferred)
    ]
    near = ToolSpec("near", "look", "Look around.", {"type": "object"})
    selection = Selection(servers={"far": "deferred"}, discovery=True, **options)  # type: ignore[arg-type]
    return compile_view(ViewSources(Catalog([near, *tools])), selection)


def test_without_deferred_tools_a_turn_is_two_requests() -> None:
    plain = view(0)
    first = 50 + plain.loaded_tokens
    budget = turn_budget(plain, 50)
    assert budget == Budget(budget.now, budget.now)
    assert budget.now.first_request == first
    assert budget.now.turn == 2 * first + 2 * QUESTION + CALL + RESULT


def test_deferred_tools_are_searched_first_and_sent_from_then_on() -> None:
    some = view(40)
    each = sum(tool.tokens for tool in some.deferred) / 40
    search = CALL + 5 * CARD
    now = turn_budget(some).now
    assert now.first_request == some.first_call_tokens
    asked = 3 * QUESTION + 2 * search + CALL + RESULT
    assert now.turn == round(3 * some.first_call_tokens + 2 * 5 * each + asked)
    undeferred = turn_budget(some).undeferred
    assert undeferred.first_request == some.undeferred_tokens
    assert undeferred.turn == 2 * some.undeferred_tokens + 2 * QUESTION + CALL + RESULT


def test_ten_turns_send_the_history_again_and_load_no_more_tools_than_there_are() -> None:
    each_turn = QUESTION + CALL + RESULT + ANSWER
    plain = turn_budget(view(0)).now
    assert plain.ten_turns == 10 * plain.turn + 2 * each_turn * sum(range(10))
    few, many = view(5), view(500)
    again = sum(tool.tokens for tool in few.deferred)
    now = turn_budget(few).now
    assert now.ten_turns_worst == 10 * now.turn + 9 * again + 3 * (
        each_turn + CALL + 5 * CARD
    ) * sum(range(10))
    browsed = view(500, strategy="browse", max_active_tools=5)
    assert turn_budget(browsed).now.ten_turns_worst - 30 * browsed.first_call_tokens < (
        turn_budget(many).now.ten_turns_worst - 30 * many.first_call_tokens
    )


def test_an_estimate_is_near_a_real_turn() -> None:
    with Session.demo() as session:
        found, made = call("search_tools", query="add numbers"), call("math__add", a=1, b=2)
        turn = session.chat(
            "What is one plus two?", model=scripted_model(found, made, "Three."), echo="none"
        )
        spent = sum(step.request.tokens.total for step in turn.steps)
        assert session.tools.budget.now.turn == pytest.approx(spent, rel=0.35)
        assert session.tools.budget.undeferred.turn > session.tools.budget.now.turn
        assert f"{session.tools.budget.now.turn:,}" in str(session.tools.budget)


def test_what_is_not_said_twice_is_not_counted_twice() -> None:
    costs = {
        way: turn_budget(view(40, delivery=way)).now for way in ("definitions", "native", "bridge")
    }
    extra = view(40, delivery="bridge").first_call_tokens - view(40).first_call_tokens
    assert extra > 0
    assert costs["definitions"].turn - costs["native"].turn == 2 * 5 * (CARD - 10)
    assert costs["bridge"].turn - costs["native"].turn == 3 * extra + 2 * 5 * 10


def test_programs_are_estimated_by_their_functions() -> None:
    pytest.importorskip("pydantic_monty", reason="an extra brings it")
    coded, plain = view(40, delivery="code"), view(40)
    assert coded.loaded_tokens == 0
    assert coded.undeferred_tokens == plain.undeferred_tokens
    now = turn_budget(coded).now
    assert now.first_request == coded.first_call_tokens
    alone = turn_budget(view(0, delivery="code"))
    assert alone.now.first_request == view(0, delivery="code").first_call_tokens
    assert alone.undeferred.first_request == view(0).undeferred_tokens


def test_ten_typical_turns_cost_less_than_the_worst_and_a_cache_holds_most_of_them() -> None:
    definitions, native = (
        turn_budget(view(40, delivery=way), 100).now for way in ("definitions", "native")
    )
    for now in (definitions, native):
        assert now.first_request == now.definitions + 100
        assert now.turn < now.ten_turns_new < now.ten_turns < now.ten_turns_worst
    # What is added in front of the messages makes a provider read all of them again.
    assert native.ten_turns_new < definitions.ten_turns_new
    plain = turn_budget(view(0), 100).now
    assert plain.ten_turns == plain.ten_turns_worst
    assert plain.ten_turns_new == plain.first_request + 10 * (QUESTION + CALL + RESULT) + 9 * ANSWER


def test_the_budget_of_a_session_is_near_its_first_real_request() -> None:
    with Session.demo() as session:
        turn = session.chat("Hello", model=scripted_model("Hello."), echo="none")
        sent = turn.steps[0].request.tokens
        assert session.tools.budget.now.definitions == sent.definitions == session.status.tokens
        assert session.tools.budget.now.first_request == pytest.approx(
            sent.total - sent.history, abs=3
        )
