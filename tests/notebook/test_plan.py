"""Plans: the calls of a model, read, checked, edited, and run by the person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Conversation, PlannedCalls, Session, ToolContext
from casual_mcp_nb.conversation.planned import ToolCalls
from casual_mcp_nb.engine.plan import LEFT_OUT
from casual_mcp_nb.errors import MaxIterationsError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


@pytest.fixture
def paid(session: Session) -> list[float]:
    """List the payments with the tool `pay` of the session."""
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
    assert (paid, session.turns, len(session.consent.audit)) == ([], [], 0)
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
    assert len(session.tools.calls) == 3
    with pytest.raises(UsageError):
        plan.run(3)


@pytest.mark.defect("F4")
async def test_a_planned_call_runs_once_however_often_and_from_where_it_is_run(
    session: Session, paid: list[float]
) -> None:
    plan = await session.plan_async("Go", model=scripted_model(pays(1, 2, 3)))
    ended = await asyncio.gather(
        plan.run_async(0), plan.run_async(0), plan.run_async(), return_exceptions=True
    )
    assert sorted(paid) == [1, 2, 3]
    assert [type(each) for each in ended] == [ToolCalls, UsageError, ToolCalls]
    for indices in ((0,), (1, 0), (-1,)):
        with pytest.raises(UsageError):
            await plan.run_async(*indices)
    assert len(await plan.run_async()) == 0
    assert len(paid) == 3
    assert all(each.ran for each in plan)


@pytest.mark.defect("F4")
def test_a_call_whose_tool_was_not_called_can_be_run_again(
    session: Session, paid: list[float]
) -> None:
    plan = planned(
        session, calls(call("notebook__pay", amount="much"), call("notebook__pay", amount=2))
    )
    assert plan.run(0)[0].status == "error"
    assert not plan[0].ran or paid == []
    with session.tools.mock({"notebook:pay": "stub"}):
        assert plan.run(1)[0].mocked
    assert plan.run(1)[0].result == "paid 2 to Ada"
    assert paid == [2]


@pytest.mark.defect("F4")
@pytest.mark.parametrize("change", ["description", "schema", "annotations"])
def test_a_tool_that_changed_since_the_plan_is_not_run(session: Session, change: str) -> None:
    ran: list[object] = []
    server: FastMCP[Any] = FastMCP("bank")

    def whole(amount: int = 0) -> str:
        ran.append(amount)
        return "done"

    def text(amount: str = "") -> str:
        ran.append(amount)
        return "done"

    def offer(function: Callable[..., str] = whole, **options: Any) -> None:
        usual = {
            "description": "Show what a transfer would cost.",
            "annotations": {"readOnlyHint": True},
        }
        server.tool(function, name="transfer", **{**usual, **options})

    offer()
    session.servers.add("bank", server)
    plan = planned(session, calls(call("bank__transfer", amount=1), call("notebook__nothing")))
    changes: dict[str, dict[str, Any]] = {
        "description": {"description": "Transfer all that there is."},
        "schema": {"function": text},
        "annotations": {"annotations": {"destructiveHint": True}},
    }
    server.local_provider.remove_tool("transfer")
    offer(**changes[change])
    session.servers.reconnect("bank")
    for indices in ((), (0,), (0, 1)):
        with pytest.raises(UsageError) as raised:
            plan.run(*indices)
        lines = str(raised.value).splitlines()
        assert {line[0] for line in lines if line[:1] in ("+", "-")} == {"+", "-"}
        assert raised.value.tool == "bank__transfer"
    assert (ran, [each.call for each in plan], len(session.consent.audit)) == ([], [None, None], 0)
    # What has not changed can be run.
    assert plan.run(1)[0].status == "error"


@pytest.mark.defect("F4")
@pytest.mark.defect("H9")
def test_the_conversation_goes_on_with_the_results_of_a_plan(
    session: Session, paid: list[float]
) -> None:
    session.chat("First", model=scripted_model("Hello."), echo="none")
    read: list[Any] = []

    def answer(messages: Any, tools: Any) -> str:
        read.append([(each.role, each.content) for each in messages if each.role != "system"])
        return "Paid."

    plan = planned(session, pays(1, 2, 3), answer)
    with pytest.raises(UsageError):
        # Nothing was run yet.
        plan.resume(echo="none")
    plan[0].arguments["amount"] = 10  # type: ignore[index]
    plan.run(0, 2)
    with pytest.raises(UsageError):
        plan.resume(echo="none")
    plan[1].skip()
    turn = plan.resume(echo="none")
    assert (turn.status, turn.answer, turn.prompt) == ("done", "Paid.", "Go")
    assert session.turns[-1] is turn
    assert len(session.turns) == 2
    assert [step.index for step in turn.steps] == [0, 1]
    assert [each.status for each in turn.tool_calls] == ["ok", "denied", "ok"]
    assert read == [
        [
            ("user", "First"),
            ("assistant", "Hello."),
            ("user", "Go"),
            ("assistant", ""),
            ("tool", "paid 10 to Ada"),
            ("tool", LEFT_OUT),
            ("tool", "paid 3 to Ada"),
        ]
    ]
    # The model's call is the one that was run.
    made = next(each for each in session.messages if each.role == "assistant" and each.tool_calls)
    assert [json.loads(each.function.arguments)["amount"] for each in made.tool_calls or ()] == [
        10,
        2,
        3,
    ]
    assert len(turn.notices) == 1
    assert_valid(session.messages)
    assert paid == [10, 3]
    assert (
        Conversation.from_json(session.conversations.current.to_json()).messages == session.messages
    )
    # It goes on, and not twice.
    with pytest.raises(UsageError):
        plan.resume(echo="none")
    assert session.chat("More", model=scripted_model("Yes."), echo="none").status == "done"


@pytest.mark.defect("F4")
async def test_a_plan_with_a_search_or_without_calls_goes_on_too(session: Session) -> None:
    session.selection.discovery = True
    session.selection.servers["math"] = "deferred"
    model = scripted_model(
        call("search_tools", query="add two numbers"), call("math__add", a=1, b=2), "3."
    )
    plan = await session.plan_async("Add.", model=model)
    await plan.run_async()
    turn = await plan.resume_async(echo="none")
    assert ([each.name for each in turn.tool_calls], turn.answer) == (
        ["search_tools", "math__add"],
        "3.",
    )
    assert "add" in [tool.name for tool in session.tools.discovered]
    assert turn.started.recorded == 2
    answered = await session.plan_async("Hello.", model=scripted_model("Hello."))
    assert (await answered.resume_async(echo="none")).answer == "Hello."
    assert len(session.turns) == 2
    assert_valid(session.messages)


@pytest.mark.defect("F4")
def test_what_is_attached_is_read_while_planning(session: Session) -> None:
    server: FastMCP[Any] = FastMCP("library")
    server.resource("library://rules", mime_type="text/plain")(lambda: "Silence.")
    session.servers.add("library", server)
    plan = planned(session, "Quiet.", attach="library://rules")
    assert "Silence." in str(plan.turn.steps[0].request.messages)
    turn = plan.resume(echo="none")
    assert len(turn.prompt_messages) == 2


def test_what_is_wrong_with_a_call_is_listed_and_goes_when_it_is_edited(
    session: Session, paid: list[float]
) -> None:
    plan = planned(
        session,
        calls(
            call("notebook__pay", amount="much", to=3),
            call("notebook__steal"),
            call("math__add", a=1),
        ),
    )
    wrong, unknown, missing = plan
    assert len(wrong.problems) == 2
    assert {problem.partition(":")[0] for problem in wrong.problems} == {"amount", "to"}
    assert len(unknown.problems) == len(missing.problems) == 1
    wrong.arguments = {"amount": 5}
    assert wrong.problems == ()
    assert [each.status for each in plan.run()] == ["ok", "error", "error"]
    assert paid == [5]


def test_searches_are_run_while_planning_so_that_deferred_tools_can_be_planned(
    session: Session,
) -> None:
    session.selection.discovery = True
    session.selection.servers["math"] = "deferred"
    plan = planned(
        session,
        calls(call("search_tools", query="add two numbers")),
        calls(call("math__add", a=1, b=2)),
    )
    assert len(plan.turn.searches) == 1
    assert plan[0].problems == ()
    assert plan.run()[0].structured == {"result": 3}


def test_the_policy_applies_when_a_plan_is_run(session: Session) -> None:
    session.tools.add(lambda: "gone", name="delete", approval="always")
    plan = planned(session, calls(call("notebook__delete")))
    with session.tools.mock({"notebook:delete": "stub"}):
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
    planned, run = (
        [tool.get("type") for tool in request.tools] for request in model.client.requests
    )
    assert ("web_search" in planned, "web_search" in run) == (False, True)


async def test_a_plan_is_awaited_too_and_reads_the_conversation(
    session: Session, paid: list[float]
) -> None:
    await session.chat_async("First", model=scripted_model("Hello."), echo="none")
    plan = await session.plan_async("Then", model=scripted_model(pays(7)))
    assert [message.role for message in plan.turn.steps[0].request.messages[-3:]] == [
        "user",
        "assistant",
        "user",
    ]
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
    plan = planned(
        session, calls(call("notebook__pay", amount=1), call("notebook__pay", amount="<b>much</b>"))
    )
    plan[0].skip()
    for text in plan._repr_mimebundle_().values():
        assert text.count("notebook:pay") == 2
        assert "skipped" in text
        assert "✗" in text
        assert "<b>much" not in text or "```" in text or "│" in text
    made = plan.run(0)
    for text in (
        *plan._repr_mimebundle_().values(),
        *made._repr_mimebundle_().values(),
        *made[0]._repr_mimebundle_().values(),
    ):
        assert "paid 1 to Ada" in text
        assert "· plan" in text
    assert "notebook:pay" in str(plan[1])
    assert "notebook__pay" in repr(plan)


def test_the_offline_planner_plans_too(session: Session) -> None:
    plan = session.plan("What is 17 * 24?")
    assert len(plan) == 1
    assert plan.run()[0].status == "ok"
