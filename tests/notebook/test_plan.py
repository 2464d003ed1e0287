"""Plans: what a model would call, read, checked, edited, and run by the person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from casual_mcp_nb import PlannedCalls, Session, ToolContext
from casual_mcp_nb.errors import MaxIterationsError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"math": {"bundled": "math", "transport": "in-process"}},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


@pytest.fixture
def paid(session: Session) -> list[float]:
    """What was paid with the tool `pay` of the session."""
    amounts: list[float] = []

    @session.tool
    def pay(amount: float, to: str = "Ada") -> str:
        """Pay."""
        amounts.append(amount)
        return f"paid {amount:g} to {to}"

    return amounts


def planned(session: Session, *responses: Any, **options: Any) -> PlannedCalls:
    return session.plan("Go", model=scripted_model(*responses), **options)


def pays(*amounts: Any) -> Any:
    return calls(*(call("notebook__pay", amount=amount) for amount in amounts))


def test_nothing_is_run_and_the_conversation_stays(session: Session, paid: list[float]) -> None:
    plan = planned(session, pays(1, 2))
    assert [str(each.tool.tool_name) for each in plan if each.tool] == ["notebook:pay"] * 2
    assert [each.arguments for each in plan] == [{"amount": 1}, {"amount": 2}]
    assert [each.problems for each in plan] == [(), ()]
    assert (paid, session.turns, len(session.audit)) == ([], [], 0)
    assert len(plan.turn.steps) == 1


def test_calls_are_edited_skipped_and_run_once(session: Session, paid: list[float]) -> None:
    plan = planned(session, pays(1, 2, 3))
    plan[0].arguments["amount"] = 10  # type: ignore[index]
    plan[1].skip()
    made = plan.run()
    assert [each.result for each in made] == ["paid 10 to Ada", "paid 3 to Ada"]
    assert all(each.planned for each in made)
    assert paid == [10, 3]
    assert len(plan.run()) == 0
    assert plan.run(1, -2)[0].result == "paid 2 to Ada"
    assert paid == [10, 3, 2]
    assert session.turns == []
    assert len(session.calls) == 3
    with pytest.raises(UsageError):
        plan.run(3)


def test_what_is_wrong_with_a_call_is_listed_and_goes_when_it_is_edited(session: Session, paid: list[float]) -> None:
    plan = planned(session, calls(call("notebook__pay", amount="much", to=3), call("notebook__steal"), call("math__add", a=1)))
    wrong, unknown, missing = plan
    assert len(wrong.problems) == 2
    assert {problem.partition(":")[0] for problem in wrong.problems} == {"amount", "to"}
    assert len(unknown.problems) == len(missing.problems) == 1
    wrong.arguments = {"amount": 5}
    assert wrong.problems == ()
    assert [each.status for each in plan.run()] == ["ok", "error", "error"]
    assert paid == [5]


def test_searches_are_run_while_planning_so_that_deferred_tools_can_be_planned(session: Session) -> None:
    session.selection.discovery = True
    session.selection.servers["math"] = "deferred"
    plan = planned(session, calls(call("search_tools", query="add two numbers")), calls(call("math__add", a=1, b=2)))
    assert len(plan.turn.searches) == 1
    assert plan[0].problems == ()
    assert plan.run()[0].structured == {"result": 3}


def test_the_policy_applies_when_a_plan_is_run(session: Session) -> None:
    session.add_tool(lambda: "gone", name="delete", approval="always")
    plan = planned(session, calls(call("notebook__delete")))
    with session.mock({"notebook:delete": "stub"}):
        (stubbed,) = plan.run()
    assert (stubbed.result, stubbed.mocked, stubbed.planned) == ("stub", True, True)
    (denied,) = plan.run(0)
    assert denied.status == "denied"


def test_a_plan_without_calls_has_the_answer_and_one_that_fails_raises(session: Session) -> None:
    plan = planned(session, "Nothing to do.")
    assert (len(plan), plan.answer, len(plan.run())) == (0, "Nothing to do.", 0)
    session.selection.discovery = True
    session.selection.servers["math"] = "deferred"
    with pytest.raises(MaxIterationsError):
        planned(session, *[calls(call("search_tools", query="add"))] * 2, max_steps=2)


def test_the_provider_runs_nothing_while_planning(session: Session) -> None:
    model = scripted_model("Nothing to do.")
    model.hosted_tools = ({"type": "web_search"},)
    session.plan("Go", model=model)
    session.chat("Go", model=model, echo="none")
    planned, run = ([tool.get("type") for tool in request.tools] for request in model.client.requests)
    assert ("web_search" in planned, "web_search" in run) == (False, True)


async def test_a_plan_is_awaited_too_and_reads_the_conversation(session: Session, paid: list[float]) -> None:
    await session.chat_async("First", model=scripted_model("Hello."), echo="none")
    plan = await session.plan_async("Then", model=scripted_model(pays(7)))
    assert [message.role for message in plan.turn.steps[0].request.messages[-3:]] == ["user", "assistant", "user"]
    made = await plan.run_async()
    assert (made[0].result, paid) == ("paid 7 to Ada", [7])
    assert len(session.turns) == 1


def test_the_context_of_the_planned_turn_is_there_when_it_is_run(session: Session) -> None:
    @session.tool
    def who(context: ToolContext) -> str:
        return str(context.values["user_id"])

    plan = planned(session, calls(call("notebook__who")), context={"user_id": "ada"})
    assert plan.run()[0].result == "ada"


def test_each_form_shows_calls_problems_and_results(session: Session, paid: list[float]) -> None:
    plan = planned(session, calls(call("notebook__pay", amount=1), call("notebook__pay", amount="<b>much</b>")))
    plan[0].skip()
    for text in plan._repr_mimebundle_().values():
        assert text.count("notebook:pay") == 2
        assert "skipped" in text
        assert "✗" in text
        assert "<b>much" not in text or "```" in text or "│" in text
    made = plan.run(0)
    for text in (*plan._repr_mimebundle_().values(), *made._repr_mimebundle_().values(), *made[0]._repr_mimebundle_().values()):
        assert "paid 1 to Ada" in text
        assert "· plan" in text
    assert "notebook:pay" in str(plan[1])
    assert "notebook__pay" in repr(plan)


def test_the_offline_planner_plans_too(session: Session) -> None:
    plan = session.plan("What is 17 * 24?")
    assert len(plan) == 1
    assert plan.run()[0].status == "ok"
