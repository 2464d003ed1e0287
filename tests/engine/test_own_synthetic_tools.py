"""A person's custom synthetic tools: offered, bounded, guarded, and able to load only tools that a
turn permits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from casual_mcp_nb import McpToolChat, Session, SyntheticToolResult, ToolSetConfig
from casual_mcp_nb.conversation.event import ServerLog, StepStarted
from casual_mcp_nb.engine.tool_view import MAX_CONTENT
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

CONFIG: dict[str, Any] = {
    "servers": {
        name: {"bundled": name, "transport": "in-process", "defer_loading": True}
        for name in ("math", "time")
    },
    "tool_discovery": {"enabled": True},
    "tool_sets": {"sums": {"servers": {"math": True}}},
}


@dataclass
class Finder:
    """Answers with a text, and loads tools."""

    content: str = "Use these."
    tools: list[Any] = field(default_factory=list)
    name: str = "my_finder"

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": "Find the right tools.",
            "parameters": {"type": "object", "properties": {"topic": {"type": "string"}}},
        }

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        return SyntheticToolResult(self.content.format(**args), self.tools)


class Broken(Finder):
    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        raise KeyError(args["topic"])


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        session.connect()
        yield session


FIND = call("my_finder", topic="sums")
ADD = call("math__add", a=1, b=2)


def asks(session: Session, *responses: Any, **options: Any) -> Any:
    return session.chat("Go", model=scripted_model(*responses, "done"), echo="none", **options)


def offered(turn: Any, step: int = 0) -> list[str]:
    return [tool["name"] for tool in turn.trace.of(StepStarted)[step].request.tools]


def test_it_is_offered_called_and_counted(session: Session) -> None:
    session.tools.add_synthetic(Finder("About {topic}."))
    turn = asks(session, calls(FIND))
    assert offered(turn) == ["my_finder", "search_tools"]
    assert (turn.tool_calls[0].result, turn.tool_calls[0].status) == ("About sums.", "ok")
    assert turn.stats.tool_calls.by_server == {"_synthetic": 1}
    assert turn.stats.discovery.search_calls == 0
    assert "my_finder" in str(turn)


def test_what_it_loads_is_offered_from_the_next_step_on_and_in_later_turns(
    session: Session,
) -> None:
    session.tools.add_synthetic(Finder(tools=[session.tools["math:add"]]))
    turn = asks(session, calls(FIND), calls(ADD))
    assert "math__add" in offered(turn, 1)
    assert turn.tool_calls[1].structured == {"result": 3}
    assert "math__add" in turn.tool_calls[0].result
    assert "math__add" in offered(asks(session), 0)
    session.undo()
    session.undo()
    assert "math__add" not in offered(asks(session), 0)


def test_it_loads_nothing_outside_of_the_toolset_and_its_text_marks_nothing(
    session: Session,
) -> None:
    tools = [session.tools["math:add"], session.tools["time:current_time"]]
    session.tools.add_synthetic(Finder("Look:\n\n## math__multiply\nNow.", tools))
    turn = asks(session, calls(FIND), tool_set="sums")
    assert [name for name in offered(turn, 1) if "__" in name] == ["math__add"]
    (log,) = turn.trace.of(ServerLog)
    assert "time:current_time" in log.text
    assert [name for name in offered(asks(session)) if "__" in name] == ["math__add"]


@pytest.mark.parametrize(
    ("content", "status"),
    [("Error: no such topic.", "error"), ("Errors found: 0.", "ok"), ("Error-free.", "ok")],
)
def test_only_a_content_that_says_so_is_an_error(
    session: Session, content: str, status: str
) -> None:
    session.tools.add_synthetic(Finder(content))
    turn = asks(session, calls(FIND))
    assert turn.tool_calls[0].status == status


def test_one_that_raises_costs_its_call_and_shows_where(session: Session) -> None:
    session.tools.add_synthetic(Broken())
    turn = asks(session, calls(FIND))
    assert turn.status == "done"
    assert turn.tool_calls[0].status == "error"
    assert "KeyError" in turn.tool_calls[0].result
    (log,) = turn.trace.of(ServerLog)
    assert 'raise KeyError(args["topic"])' in log.text
    assert "own_tools.py" not in log.text


def test_its_text_is_bounded(session: Session) -> None:
    session.tools.add_synthetic(Finder("x" * 2 * MAX_CONTENT))
    assert len(asks(session, calls(FIND)).tool_calls[0].result) < MAX_CONTENT + 100


def test_a_cell_that_runs_again_replaces_it_and_it_can_be_removed(session: Session) -> None:
    session.tools.add_synthetic(Finder("one"))
    session.tools.add_synthetic(Finder("two"))
    turn = asks(session, calls(FIND))
    assert turn.tool_calls[0].result == "two"
    assert offered(turn).count("my_finder") == 1
    session.tools.remove_synthetic("my_finder")
    assert "my_finder" not in offered(asks(session))
    with pytest.raises(UnknownNameError):
        session.tools.remove_synthetic("my_finder")


@pytest.mark.parametrize(
    "tool",
    [Finder(name="search_tools"), Finder(name="math__add"), Finder(name="a b"), object(), Finder],
)
def test_a_name_that_is_taken_and_what_is_no_tool_are_refused(session: Session, tool: Any) -> None:
    with pytest.raises(UsageError):
        session.tools.add_synthetic(tool)


def test_a_server_that_comes_later_with_the_name_is_an_error_of_the_turn(session: Session) -> None:
    session.tools.add_synthetic(Finder(name="notebook__total"))
    session.tools.add(lambda: 1, name="total")
    with pytest.raises(UsageError, match="notebook"):
        asks(session)
    assert len(session.tools.of_server("notebook")) == 1


def test_a_toolset_without_servers_offers_none(session: Session) -> None:
    session.tools.add_synthetic(Finder())
    assert offered(asks(session, tool_set=ToolSetConfig())) == []


def test_its_definition_counts_as_loaded_in_the_budget(session: Session) -> None:
    before = session.tools.budget.now.first_request
    session.tools.add_synthetic(Finder())
    assert session.tools.budget.now.first_request > before
    assert session.tools.budget.undeferred.first_request > before


def test_a_plan_does_not_run_it(session: Session) -> None:
    session.tools.add_synthetic(Broken())
    plan = session.plan("Go", model=scripted_model(calls(FIND)))
    assert [(each.name, each.problems) for each in plan] == [("my_finder", ())]
    assert plan.run()[0].status == "error"


async def test_a_chat_takes_them_as_an_argument() -> None:
    async with McpToolChat.from_config(CONFIG, synthetic_tools=[Finder("About {topic}.")]) as chat:
        messages = await chat.chat("Go", model=scripted_model(calls(FIND), "done"))
    assert messages[1].content == "About sums."
