"""What tools are worth: leaving out one at a time, advice with its uncertainty, and the toolset
that follows.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.worth import Worth
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import call, scripted_model


def archive() -> FastMCP[Any]:
    """A server that nobody needs, with long descriptions."""
    server: FastMCP[Any] = FastMCP("archive")
    for number in range(3):
        server.tool(
            lambda text: text,
            name=f"scan_{number}",
            description="Scan a document of the archive. " * 40,
        )
    return server


def named(messages: Any, tools: Any) -> Any:
    """Call the tool that the message names, if it is there."""
    if messages[-1].role == "tool":
        return "Done"
    wanted = [tool for tool in tools if tool["name"].split("__")[-1] in str(messages[-1].content)]
    return (
        call(wanted[0]["name"], **dict.fromkeys(wanted[0]["parameters"]["properties"], "x"))
        if wanted
        else "I cannot"
    )


def model() -> ChatModel:
    def answers() -> Iterator[Any]:
        while True:
            yield named

    scripted = scripted_model(name="named")
    scripted.client._answers = answers()  # type: ignore[attr-defined]
    return scripted


CASES = [
    *(ToolUseCase(f"Please forecast {n}", ["weather:forecast"], id=f"f{n}") for n in range(10)),
    *(ToolUseCase(f"Please history {n}", ["weather:history"], id=f"h{n}") for n in range(2)),
]


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(
        {}, in_process={"weather": weather(), "archive": archive()}, store=None, quiet=True
    ) as session:
        yield session


def test_each_server_and_each_tool_that_matters_is_left_out_once(session: Session) -> None:
    worth = session.experiments.worth(CASES, model=model())
    assert {each.name for each in worth} == {
        *("weather", "archive", "weather:forecast", "weather:history"),
        *(f"archive:scan_{number}" for number in range(3)),
    }
    assert [each.is_server for each in worth] == [True] * 2 + [False] * 5
    weather_server, archive_server, forecast = (
        worth["weather"],
        worth["archive"],
        worth["weather:forecast"],
    )
    assert (
        weather_server.right.mean,
        weather_server.right.better,
        weather_server.needed,
        weather_server.used.value,
    ) == (
        1,
        12,
        12,
        1,
    )
    assert forecast.right.mean == pytest.approx(10 / 12)
    assert forecast.right.low > 0
    # Twelve cases without a change cannot rule out a use in every fourth one.
    assert (archive_server.advice, archive_server.certain, archive_server.needed) == (
        "off",
        False,
        0,
    )
    assert archive_server.input_tokens is not None
    # Without its definitions each request is shorter by what they take.
    assert archive_server.input_tokens.mean == pytest.approx(2 * archive_server.tokens, rel=0.1)
    # Each run calls it, so that a search each time would cost more than its few definitions.
    assert (weather_server.advice, weather_server.certain) == ("load", True)
    assert weather_server.loaded_price < weather_server.deferred_price
    assert len(worth.rows()) == 7
    assert "archive" in str(worth)
    assert session.experiments.results is worth.results


def test_what_is_rarely_used_is_deferred(session: Session) -> None:
    cases = [
        *(ToolUseCase(f"Talk {n}", no_call=True) for n in range(10)),
        ToolUseCase("Do scan_1", ["archive:scan_1"]),
    ]
    worth = session.experiments.worth(cases, model=model(), targets=["archive"])["archive"]
    assert worth.advice == "defer"
    # One case in eleven may be chance.
    assert (worth.certain, worth.needed) == (False, 1)


def test_the_advice_is_applied_to_the_session_and_saved(session: Session, tmp_path: Path) -> None:
    worth = session.experiments.worth(
        CASES, model=model(), targets=["weather", "archive", "weather:history"]
    )
    worth.apply()
    tool_set = session.selection.tool_set
    assert tool_set is not None
    assert [str(tool.tool_name) for tool in session.parts.chat.current_view().loaded] == [
        "weather:forecast",
        "weather:history",
    ]
    with pytest.raises(UsageError):
        worth.apply("measured")
    again: Worth = pickle.loads(pickle.dumps(worth))
    assert again.rows() == worth.rows()
    with pytest.raises(UsageError):
        again.apply()


@pytest.mark.parametrize("target", ["old:archive", "old:archive:scan_1"])
def test_a_server_can_have_a_colon_in_its_name(target: str) -> None:
    servers = {"weather": weather(), "old:archive": archive()}
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        worth = session.experiments.worth(CASES, model=model(), targets=[target])
        assert [(each.name, each.is_server) for each in worth] == [
            (target, target == "old:archive")
        ]
        assert worth.off == (target,)
        before = {str(tool.tool_name) for tool in session.parts.chat.current_view().loaded}
        worth.apply()
        after = {str(tool.tool_name) for tool in session.parts.chat.current_view().loaded}
        assert before - after == {name for name in before if name.startswith(target)}
        session.conversations.new()
        session.selection.tool_set = None
        session.selection.always_loaded = ("old:archive:scan_1",)
        session.servers.remove("old:archive")
        assert session.selection.always_loaded == ()


def test_the_toolset_is_written_to_the_config(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    servers = {name: {"bundled": name, "transport": "in-process"} for name in ("math", "units")}
    planner = {
        "clients": {"o": {"provider": "offline"}},
        "models": {"m": {"client": "o", "model": "planner"}},
    }
    config.write_text(json.dumps({**planner, "servers": servers}))
    cases = [
        ToolUseCase(f"What is {n} * 7?", ["math:evaluate_expression"], id=str(n)) for n in range(3)
    ]
    with Session.from_config(config, trust=True, store=None, quiet=True) as session:
        worth = session.experiments.worth(
            cases, targets=["units", "math"], results=tmp_path / "runs.jsonl"
        )
        assert {each.name: each.advice for each in worth}["units"] == "off"
        worth.apply("measured")
        assert session.selection.tool_set == "measured"
        again = session.experiments.worth(cases, targets=["math"], results=tmp_path / "runs.jsonl")
        assert again.results.status == "done"
    assert json.loads(config.read_text())["tool_sets"]["measured"]["servers"] == {"math": True}


def tool_server(name: str, *tools: str, words: int = 5) -> FastMCP[Any]:
    """A server whose tools all answer alike."""
    server: FastMCP[Any] = FastMCP(name)
    for number, tool in enumerate(tools):
        server.tool(
            lambda text: f"Result for {text}",
            name=tool,
            description=f"{tool} a text. " * (words + number),
        )
    return server


def preferring(*order: str) -> ChatModel:
    """A model that calls the first of these tools that it sees, or looks for one if a search is
    there.

    A message with tools' names asks for one of these.
    """

    def act(messages: Any, tools: Any) -> Any:
        seen = {tool["name"].split("__")[-1]: tool["name"] for tool in tools}
        asked = next(str(each.content) for each in messages if each.role == "user")
        wanted = [name for name in order if name in asked.split()] or list(order)
        if messages[-1].role == "tool" and "search_tools" not in str(messages[-2]):
            return "Done"
        found = [name for name in wanted if name in seen]
        if found:
            return call(seen[found[0]], text="x")
        if messages[-1].role != "tool" and "search_tools" in seen:
            return call("search_tools", query=" ".join(wanted))
        return "I cannot"

    def answers() -> Iterator[Any]:
        while True:
            yield act

    scripted = scripted_model(name="preferring")
    scripted.client._answers = answers()  # type: ignore[attr-defined]
    return scripted


def either(*tools: str, id: str = "", message: str = "Please look") -> ToolUseCase:
    """A case that accepts any of these tools."""
    return ToolUseCase(
        message, alternatives=[[tool] for tool in tools[1:]], calls=[tools[0]], id=id
    )


def share_right(session: Session, cases: list[ToolUseCase], model: ChatModel) -> float:
    (arm,) = session.experiments.run(cases, models=[model]).values()
    assert arm.right is not None
    return arm.right.value


@pytest.mark.slow
@pytest.mark.defect("P1")
@pytest.mark.parametrize("tools", [("find", "lookup"), ("find", "lookup", "query")])
@pytest.mark.parametrize("on_own_servers", [True, False])
def test_of_redundant_tools_one_is_kept(tools: tuple[str, ...], on_own_servers: bool) -> None:
    if on_own_servers:
        servers = {
            f"s{number}": tool_server(f"s{number}", tool) for number, tool in enumerate(tools)
        }
        names = [f"s{number}:{tool}" for number, tool in enumerate(tools)]
    else:
        servers = {"s": tool_server("s", *tools)}
        names = [f"s:{tool}" for tool in tools]
    cases = [
        either(*names, id=str(number), message=f"Please look {number}") for number in range(12)
    ]
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        before = share_right(session, cases, preferring(*tools))
        worth = session.experiments.worth(cases, model=preferring(*tools))
        assert before == 1
        assert len(worth.off) == len(tools) - 1
        assert worth.plan.joint is not None
        assert worth.plan.joint.mean == 0
        # Twelve cases without a change do not make it certain.
        assert worth.plan.joint.high > 0.2
        assert not any(each.certain for each in worth if each.advice == "off")
        (group,) = worth.plan.redundant
        assert len(group) == len(tools) if len(tools) == 2 else len(group) >= 2
        assert group[0] not in worth.off
        assert worth[group[0]].redundant_with == group[1:]
        assert f"Keep one of {group[0]}" in str(worth)
        worth.apply()
        assert share_right(session, cases, preferring(*tools)) == 1


@pytest.mark.defect("P1")
def test_two_needs_with_two_tools_each_take_one_further_arm_to_keep_one_of_each() -> None:
    servers = {"s": tool_server("s", "find", "lookup", "send", "post")}
    cases = [either("s:find", "s:lookup", id=f"f{n}", message="find or lookup") for n in range(6)]
    cases += [either("s:send", "s:post", id=f"p{n}", message="send or post") for n in range(6)]

    model = preferring("find", "lookup", "send", "post")
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        worth = session.experiments.worth(cases, model=model)
        groups = {frozenset(group) for group in worth.plan.redundant}
        assert groups == {frozenset({"s:find", "s:lookup"}), frozenset({"s:send", "s:post"})}
        assert len(worth.off) == 2
        # With all, without each of five, without all four, and without the two that go.
        assert len(worth.results) == 1 + 5 + 2
        worth.apply()
        assert share_right(session, cases, model) == 1


@pytest.mark.defect("P1")
def test_a_tool_that_hurts_goes_and_a_rarely_needed_one_stays() -> None:
    servers = {
        "good": tool_server("good", "find"),
        "bad": tool_server("bad", "trap"),
        "rare": tool_server("rare", "seldom"),
    }
    cases = [
        ToolUseCase(f"Please look {number}", ["good:find"], id=str(number)) for number in range(49)
    ]
    cases.append(ToolUseCase("seldom asked", ["rare:seldom"], id="rare"))
    order = ("trap", "find", "seldom")
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        before = share_right(session, cases, preferring(*order))
        worth = session.experiments.worth(cases, model=preferring(*order))
        assert before == 1 / 50
        assert worth.off == ("bad",)
        assert worth["bad"].certain
        assert (worth["rare"].right.better, worth["rare"].advice) == (1, "defer")
        worth.apply()
        assert share_right(session, cases, preferring(*order)) == 1


@pytest.mark.slow
@pytest.mark.defect("P1")
def test_redundant_tools_that_one_case_in_fifty_needs_are_not_both_turned_off() -> None:
    servers = {
        "good": tool_server("good", "find"),
        "one": tool_server("one", "seldom"),
        "two": tool_server("two", "rarely"),
    }
    cases = [ToolUseCase(f"find {number}", ["good:find"], id=str(number)) for number in range(49)]
    cases.append(either("one:seldom", "two:rarely", id="rare", message="seldom or rarely"))
    order = ("seldom", "rarely", "find")
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        worth = session.experiments.worth(cases, model=preferring(*order))
        assert len(worth.off) == 1
        assert worth.plan.joint is not None
        assert worth.plan.joint.better == 0
        worth.apply()
        assert share_right(session, cases, preferring(*order)) == 1


@pytest.mark.defect("P1")
def test_without_the_joint_arm_nothing_is_turned_off() -> None:
    servers = {"a": tool_server("a", "find"), "b": tool_server("b", "lookup")}
    cases = [
        either("a:find", "b:lookup", id=str(number), message=f"Please look {number}")
        for number in range(12)
    ]
    with Session({}, in_process=servers, store=None, quiet=True) as session:
        # Three arms are 36 runs, and the fourth would pass the limit.
        worth = session.experiments.worth(cases, model=preferring("find", "lookup"), max_runs=40)
        assert worth.plan.missing == ("a", "b")
        assert worth.off == ()
        assert "nothing was measured" in str(worth)
        worth.apply()
        assert share_right(session, cases, preferring("find", "lookup")) == 1


@pytest.mark.defect("P1")
def test_what_was_not_measured_is_said_and_not_applied(session: Session) -> None:
    worth = session.experiments.worth(CASES, model=model(), max_total_tokens=100)
    assert (len(worth), worth.results.status) == (0, "over budget")
    assert "stopped at the budget" in str(worth)
    assert worth.results.problem in str(worth)
    with pytest.raises(UsageError, match="Nothing was measured"):
        worth.apply()
    failing = scripted_model(*[ValueError("No luck")] * 200, name="named")
    worth = session.experiments.worth(CASES[:2], targets=["archive"], model=failing)
    assert worth.results.not_made
    assert "could not be made" in str(worth)
    assert "No luck" in str(worth)


@pytest.mark.defect("P1")
def test_advice_from_a_part_of_the_runs_is_not_applied(session: Session, tmp_path: Path) -> None:
    before = session.selection.model_dump()
    options: dict[str, Any] = {"model": model(), "results": tmp_path / "runs.jsonl"}
    options |= {"targets": ["archive"], "max_tokens": 50, "concurrency": 1}
    spent = session.experiments.worth(CASES, **options).results.spent[0]
    part = {**options, "results": tmp_path / "part.jsonl"}
    worth = session.experiments.worth(CASES, max_total_tokens=int(spent / 2), **part)
    assert worth.results.status == "over budget"
    assert len(worth) == 1
    with pytest.raises(UsageError, match="Not all runs"):
        worth.apply()
    assert session.selection.model_dump() == before
    # The same call makes the others.
    session.experiments.worth(CASES, **part).apply()
    assert session.selection.model_dump() != before
