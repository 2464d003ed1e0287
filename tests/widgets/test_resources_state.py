"""The tab of resources and prompts without a browser, and its attachments to the next message of a
panel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.widgets.conversation import ConversationState
from casual_mcp_nb.widgets.resources import MAX_SHOWN, ResourcesState

Do = Callable[..., Any]


def _compare(first: str, second: str = "Oslo") -> str:
    return f"Compare {first} with {second}."


def docs() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("docs")
    server.resource("docs://readme", name="readme", description="<b>Read</b> me")(
        lambda: "Harbours"
    )
    server.resource("docs://tides/{port}", name="tides")(lambda port: f"Tides of {port}")
    server.prompt(name="compare", description="Compare two ports")(
        lambda first, second="Oslo": f"Compare {first} with {second}."
    )
    return server


@pytest.fixture
def session() -> Iterator[Session]:
    with Session({}, in_process={"docs": docs()}, name="docs", quiet=True) as session:
        yield session


@pytest.fixture
def state(session: Session, do: Do) -> Iterator[ResourcesState]:
    state = ResourcesState(session)
    assert state.snapshot()["resources"] == 0
    do(state, "offers")
    wait_until(lambda: state.snapshot()["resources"] == 2, "they are listed")
    yield state
    state.close()


def test_offers_are_filtered_by_all_their_words(state: ResourcesState, do: Do) -> None:
    rows = do(state, "offers")["rows"]
    assert [(row["kind"], row["name"], row.get("template")) for row in rows] == [
        ("resource", "docs://readme", False),
        ("resource", "docs://tides/{port}", True),
        ("prompt", "compare", None),
    ]
    assert [field["required"] for field in rows[2]["fields"]] == [True, False]
    assert [row["name"] for row in do(state, "offers", query="PORTS compare")["rows"]] == [
        "compare"
    ]
    assert do(state, "offers", query="nothing") == {"rows": [], "total": 0, "problems": []}


def test_a_long_list_is_cut_and_counted(do: Do) -> None:
    server: FastMCP[Any] = FastMCP("many")
    for number in range(MAX_SHOWN + 5):
        server.resource(f"many://{number}")(lambda: "x")
    with Session({}, in_process={"many": server}, name="many", quiet=True) as session:
        state = ResourcesState(session)
        do(state, "offers")
        wait_until(lambda: state.snapshot()["resources"] == MAX_SHOWN + 5, "they are listed")
        offers = do(state, "offers")
        assert (len(offers["rows"]), offers["total"]) == (MAX_SHOWN, MAX_SHOWN + 5)
        state.close()


def test_contents_are_drawn_and_written_as_python(state: ResourcesState, do: Do) -> None:
    template = {
        "kind": "resource",
        "server": "docs",
        "name": "docs://tides/{port}",
        "values": {"port": "Oslo"},
    }
    assert "Tides of Oslo" in do(state, "read", **template)
    assert (
        do(state, "code_of", **template)
        == 'session.resources.read("docs://tides/{port}", server="docs", port="Oslo")'
    )
    prompt = {
        "kind": "prompt",
        "server": "docs",
        "name": "compare",
        "values": {"first": "Bergen", "second": ""},
    }
    assert "Compare Bergen with Oslo." in do(state, "read", **prompt)
    assert do(state, "code_of", **prompt) == 'session.prompts.get("docs:compare", first="Bergen")'
    assert do(state, "complete", **{**prompt, "argument": "first"}) == []


def test_what_is_attached_goes_with_the_next_message_of_a_panel(
    session: Session, state: ResourcesState, do: Do
) -> None:
    panel = ConversationState(session, model=scripted_model("Fine.", "Fine again."))
    do(state, "attach", kind="resource", server="docs", name="docs://readme", values={})
    do(state, "attach", kind="prompt", server="docs", name="compare", values={"first": "Bergen"})
    assert state.snapshot()["attached"] == 2
    (first, second) = panel.snapshot()["attached"].items()
    assert (first[1], second[1]) == ("docs: docs://readme", "docs: compare")
    do(panel, "detach", id=second[0])
    do(panel, "send", prompt="Is it fine?")
    wait_until(lambda: session.turns and not session.parts.runner.busy, "the turn ends")
    assert "Harbours" in text_of(session.turns[0].prompt_messages[0].content)
    assert session.turns[0].prompt == "Is it fine?"
    do(panel, "send", prompt="And now?")
    wait_until(lambda: session.turns and not session.parts.runner.busy, "the turn ends")
    assert len(session.turns[1].prompt_messages) == 1
    panel.close()


def test_attachments_of_a_message_that_was_not_sent_are_kept(
    session: Session, state: ResourcesState, do: Do
) -> None:
    panel = ConversationState(session)
    do(state, "attach", kind="resource", server="docs", name="docs://readme", values={})
    with pytest.raises(UsageError):
        do(panel, "send", prompt="Nobody answers: there is no model")
    assert len(panel.snapshot()["attached"]) == 1
    panel.close()
