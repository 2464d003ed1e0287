"""Tools that no model is offered: those of an app's own buttons, and those that run only as
tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.raw_server import raw_config, text_result

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.convert import tool_from_mcp


def board() -> FastMCP[Any]:
    """A server with tools for the model, for its app, and for both."""
    server: FastMCP[Any] = FastMCP("board")
    for name, visibility in {
        "show": ["model", "app"],
        "refresh_board": ["app"],
        "drag_card": [],
        "plan": None,
    }.items():
        meta = (
            None
            if visibility is None
            else {"ui": {"visibility": visibility, "resourceUri": "ui://board/main"}}
        )
        server.tool(
            lambda: "done", name=name, description=f"Board tool {name} refresh drag.", meta=meta
        )
    return server


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({}, in_process={"board": board()}) as session:
        yield session


@pytest.mark.defect("E1")
@pytest.mark.parametrize("mode", ["loaded", "deferred"])
def test_a_tool_for_the_apps_own_buttons_is_never_given_to_the_model(
    session: Session, mode: Any
) -> None:
    session.selection.servers["board"] = mode
    session.selection.discovery = True
    search = (
        [call("search_tools", query="refresh board"), call("search_tools", server_name="board")]
        if mode == "deferred"
        else []
    )
    named = calls(call("board__refresh_board"), call("refresh_board"), call("drag_card"))
    turn = session.chat(
        "Go",
        model=scripted_model(
            *(search if mode == "deferred" else []), named, call("board__show"), "ok"
        ),
    )
    assert turn.status == "done"
    assert [c.status for c in turn.tool_calls[-4:]] == ["error", "error", "error", "ok"]
    offered = {tool["name"] for step in turn.steps for tool in step.request.tools}
    assert "board__show" in offered
    assert "board__plan" in offered
    assert not offered & {"board__refresh_board", "board__drag_card"}
    assert "refresh_board" not in session.tools.manifest.text
    assert "refresh_board" not in str(turn.searches)
    assert "refresh_board" not in str(
        [hit.tool.name for hit in session.search("refresh board", k=20)]
    )


@pytest.mark.defect("E1")
def test_the_person_sees_which_tools_are_for_the_app_and_can_call_them(session: Session) -> None:
    text = repr(session.tools["refresh_board"]) + session.tools._repr_markdown_()
    assert "app only" in text
    assert session.servers["board"].app_only == ("refresh_board", "drag_card")
    assert "refresh_board" in repr(session.servers["board"])
    assert session.tools.call("board:refresh_board").status == "ok"


@pytest.mark.defect("D13", "E5")
def test_a_tool_that_runs_only_as_a_task_is_not_offered_and_a_sentence_says_so() -> None:
    schema = {"inputSchema": {"type": "object"}}
    tools = [{"name": "render", **schema, "execution": {"taskSupport": "required"}}]
    tools += [{"name": "show", **schema, "execution": {"taskSupport": "optional"}}]
    config = raw_config(calls={"show": {"result": text_result("shown")}}, tools=tools)
    model = scripted_model(calls(call("studio__render"), call("studio__show")), "ok")
    with Session({"servers": {"studio": config}}) as session:
        turn = session.chat("Go", model=model)
        assert [tool["name"] for tool in model.client.requests[0].tools] == ["studio__show"]
        assert [c.status for c in turn.tool_calls] == ["error", "ok"]
        assert "task" in turn.tool_calls[0].result
        assert session.servers["studio"].task_only == ("render",)
        assert "render" in repr(session.servers["studio"])
        assert any(
            "render" in finding.found and finding.verdict == "warn"
            for finding in session.servers.doctor()
        )
        with pytest.raises(UsageError, match="task"):
            session.tools.call("studio:render")


@pytest.mark.defect("E1")
@pytest.mark.parametrize("ui", [None, "app", {"visibility": "app"}, {"visibility": ["model"]}, {}])
def test_a_tool_whose_visibility_says_nothing_of_the_kind_stays_offered(ui: Any) -> None:
    from mcp_types import Tool

    tool = Tool.model_validate(
        {"name": "a", "inputSchema": {"type": "object"}, "_meta": {"ui": ui}}, by_name=False
    )
    assert tool_from_mcp(tool).restriction is None
