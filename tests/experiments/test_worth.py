"""What tools are worth: leaving out one at a time, advice with its uncertainty, and the toolset that follows."""

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
        server.tool(lambda text: text, name=f"scan_{number}", description="Scan a document of the archive. " * 40)
    return server


def named(messages: Any, tools: Any) -> Any:
    """Call the tool that the message names, if it is there."""
    if messages[-1].role == "tool":
        return "Done"
    wanted = [tool for tool in tools if tool["name"].split("__")[-1] in str(messages[-1].content)]
    return call(wanted[0]["name"], **dict.fromkeys(wanted[0]["parameters"]["properties"], "x")) if wanted else "I cannot"


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
    with Session({}, in_process={"weather": weather(), "archive": archive()}, store=None, quiet=True) as session:
        yield session


def test_each_server_and_each_tool_that_matters_is_left_out_once(session: Session) -> None:
    worth = session.experiments.worth(CASES, model=model())
    assert {each.name for each in worth} == {
        *("weather", "archive", "weather:forecast", "weather:history"),
        *(f"archive:scan_{number}" for number in range(3)),
    }
    assert [each.is_server for each in worth] == [True] * 2 + [False] * 5
    weather_server, archive_server, forecast = worth["weather"], worth["archive"], worth["weather:forecast"]
    assert (weather_server.right.mean, weather_server.right.better, weather_server.needed, weather_server.used.value) == (
        1,
        12,
        12,
        1,
    )
    assert forecast.right.mean == pytest.approx(10 / 12)
    assert forecast.right.low > 0
    assert (archive_server.advice, archive_server.certain, archive_server.needed) == ("off", True, 0)
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
    cases = [*(ToolUseCase(f"Talk {n}", no_call=True) for n in range(10)), ToolUseCase("Do scan_1", ["archive:scan_1"])]
    worth = session.experiments.worth(cases, model=model(), targets=["archive"])["archive"]
    assert worth.advice == "defer"
    # One case in eleven may be chance.
    assert (worth.certain, worth.needed) == (False, 1)


def test_the_advice_is_applied_to_the_session_and_saved(session: Session, tmp_path: Path) -> None:
    worth = session.experiments.worth(CASES, model=model(), targets=["weather", "archive", "weather:history"])
    worth.apply()
    tool_set = session.selection.tool_set
    assert tool_set is not None
    assert [str(tool.tool_name) for tool in session.parts.chat.current_view().loaded] == ["weather:forecast", "weather:history"]
    with pytest.raises(UsageError):
        worth.apply("measured")
    again: Worth = pickle.loads(pickle.dumps(worth))
    assert again.rows() == worth.rows()
    with pytest.raises(UsageError):
        again.apply()


def test_the_toolset_is_written_to_the_config(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    servers = {name: {"bundled": name, "transport": "in-process"} for name in ("math", "units")}
    planner = {"clients": {"o": {"provider": "offline"}}, "models": {"m": {"client": "o", "model": "planner"}}}
    config.write_text(json.dumps({**planner, "servers": servers}))
    cases = [ToolUseCase(f"What is {n} * 7?", ["math:evaluate_expression"], id=str(n)) for n in range(3)]
    with Session.from_config(config, trust=True, store=None, quiet=True) as session:
        worth = session.experiments.worth(cases, targets=["units", "math"], results=tmp_path / "runs.jsonl")
        assert {each.name: each.advice for each in worth}["units"] == "off"
        worth.apply("measured")
        assert session.selection.tool_set == "measured"
        again = session.experiments.worth(cases, targets=["math"], results=tmp_path / "runs.jsonl")
        assert again.results.status == "done"
    assert json.loads(config.read_text())["tool_sets"]["measured"]["servers"] == {"math": True}
