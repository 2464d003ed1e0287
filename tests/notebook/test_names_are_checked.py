"""Assignments are checked immediately: names, modes, ranges, fields."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import McpToolChat, Selection, Session
from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.errors import ToolSetError, UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.magics.completion import Names

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        "math": MATH,
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}

pytestmark = pytest.mark.defect("C3")


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session.from_config(CONFIG)
    yield session
    session.close()


@pytest.mark.parametrize(
    ("assign", "nearest"),
    [
        (lambda s: setattr(s.selection, "tool_set", "number"), "numbers"),
        (lambda s: s.selection.servers.update(tme="off"), "time"),
        (lambda s: setattr(s.selection, "servers", {"tme": "off"}), "time"),
        (lambda s: s.selection.servers.update(time="of"), "off"),
        (lambda s: setattr(s.selection, "discovry", True), "discovery"),
        (lambda s: setattr(s.selection, "strategy", "serch"), "search"),
        (lambda s: setattr(s, "selection", Selection(tool_set="number")), "numbers"),
        (lambda s: setattr(s, "model", "plannr"), "planner"),
        (lambda s: setattr(s, "modle", "planner"), "model"),
        (lambda s: setattr(s.consent, "stepmode", True), "step_mode"),
        (lambda s: s.selection.tools_off.add("mth:add"), "math"),
        (lambda s: Selection(discovry=True), "discovery"),
    ],
)
def test_an_unknown_name_is_refused_before_connecting_with_the_nearest_name(
    session: Session, assign: Any, nearest: str
) -> None:
    before, model = session.selection.key(), session.model
    with pytest.raises(UnknownNameError) as caught:
        assign(session)
    assert nearest in caught.value.matches
    assert (session.selection.key(), session.model) == (before, model)
    assert {status.state for status in session.servers.values()} == {"closed"}


@pytest.mark.parametrize(
    "values",
    [
        {"max_search_results": 0},
        {"max_active_tools": -1},
        {"manifest_max_tokens": "many"},
        {"discovery": "perhaps"},
        {"tool_set": 3},
        {"tool_set": {"servers": 1}},
        {"servers": "off"},
        {"tools_off": "math:add"},
        {"tools_off": [1]},
    ],
)
def test_an_invalid_value_is_a_usage_error_on_assignment_and_construction(
    session: Session, values: dict[str, Any]
) -> None:
    before = session.selection.key()
    ((field, value),) = values.items()
    for attempt in (lambda: setattr(session.selection, field, value), lambda: Selection(**values)):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert field in str(caught.value)
        assert caught.value.__context__ is None
    assert session.selection.key() == before


def test_tools_are_checked_once_their_server_has_listed_them(session: Session) -> None:
    session.selection.tools_off.add("math:ad")
    session.selection.tools_off.discard("math:ad")
    session.connect()
    for name in ("math:ad", "math__ad", "ad"):
        with pytest.raises(UnknownNameError):
            session.selection.tools_off.add(name)
    for name in ("math:add", "math__subtract", "divide"):
        session.selection.tools_off.add(name)
    assert len(session.selection.tools_off) == 3


def test_the_names_in_a_toolset_without_a_name_are_checked_too(session: Session) -> None:
    with pytest.raises(ToolSetError, match="math"):
        session.selection.tool_set = ToolSetConfig(servers={"mth": True})
    session.connect()
    assert len(session.tools)
    with pytest.raises(ToolSetError, match="add"):
        session.selection.tool_set = ToolSetConfig(servers={"math": ("ad",)})
    assert session.selection.tool_set is None


def test_a_session_has_no_attributes_but_its_own(session: Session) -> None:
    with pytest.raises(UnknownNameError) as caught:
        session.temperature = 0  # type: ignore[attr-defined]
    assert all(name in caught.value.hint for name in ("model", "selection", "system"))
    assert not hasattr(session, "temperature")
    with pytest.raises(AttributeError):
        session.turns = []  # type: ignore[misc]
    session.name = "other"
    session._of_a_test = 1  # type: ignore[attr-defined]


def test_a_subclass_of_a_session_has_attributes_of_its_own() -> None:
    class Lesson(Session):
        pages: int

        def __init__(self) -> None:
            self.title = "Tools"
            super().__init__(CONFIG)
            self.pages = 3

    with Lesson() as lesson:
        lesson.pages += 1
        assert (lesson.title, lesson.pages, lesson.model) == ("Tools", 4, "planner")


def test_a_selection_is_taken_over_whole_or_not_at_all(session: Session) -> None:
    with pytest.raises(UnknownNameError):
        session.selection = Selection(discovery=False, tool_set="numbers", servers={"tme": "off"})
    assert session.selection.tool_set is None
    assert session.selection.discovery is True
    with pytest.raises(UsageError):
        session.selection = "numbers"  # type: ignore[assignment]


def test_a_chat_that_is_given_a_selection_checks_it_too() -> None:
    chat = McpToolChat.from_config(CONFIG)
    with pytest.raises(UnknownNameError):
        McpToolChat(chat.server_manager, chat.models, selection=Selection(servers={"tme": "off"}))


def test_a_toolset_that_is_gone_is_shown_and_nothing_that_shows_it_raises(session: Session) -> None:
    session.selection.tool_set = "numbers"
    session.parts.chat.tool_sets.pop("numbers")
    shown = [session.status, session.tools, session.tools.sets, session.tools.manifest, session]
    assert all(noun._repr_mimebundle_()["text/html"] for noun in shown)
    assert Names.of(session).tool_sets
    assert any("numbers" in note for note in session.status.notes)
    for use in (
        lambda: session.search("add"),
        lambda: session.chat("add 1 and 2"),
        session.experiments.lint,
    ):
        with pytest.raises(UnknownNameError):
            use()
    session.selection.max_search_results = 3
    session.selection.tool_set = None
    assert session.status.notes == ()


def test_the_toolsets_say_which_is_in_force_and_none_where_a_turn_would_refuse_it(
    session: Session,
) -> None:
    session.selection.tool_set = "numbers"
    assert session.tools.sets.problem == ""
    assert "in use: numbers" in str(session.tools.sets)
    session.parts.chat.tool_sets.pop("numbers")
    gone = session.tools.sets
    assert "numbers" in gone.problem
    assert "in use: none" in str(gone)
    assert gone.problem in str(gone)
    session.selection.tool_set = ToolSetConfig(servers={"time": True})
    assert session.tools.sets.problem == ""
    assert "in use: custom" in str(session.tools.sets)
    assert "all tools" not in str(session.tools.sets)


def test_a_toolset_that_does_not_fit_the_tools_is_not_shown_as_in_force() -> None:
    sets = {"wrong": {"servers": {"math": ["ad"]}}, "right": {"servers": {"math": ["add"]}}}
    session = Session.from_config({**CONFIG, "tool_sets": sets})
    # Nobody knows the tools yet.
    session.selection.tool_set = "wrong"
    with session:
        with pytest.raises(ToolSetError) as caught:
            session.chat("add 1 and 2").raise_for_status()
        assert session.tools.sets.problem == str(caught.value)
        assert "● in use" not in str(session.tools.sets)
        session.selection.tool_set = "right"
        assert session.tools.sets.problem == ""
        assert "● in use" in str(session.tools.sets)


@pytest.mark.parametrize("value", ["off", 1, None])
def test_step_mode_is_on_or_off_and_nothing_that_only_looks_like_it(
    session: Session, value: Any
) -> None:
    with pytest.raises(UsageError):
        session.consent.step_mode = value
    assert session.consent.step_mode is False


def test_a_search_for_no_tools_is_refused(session: Session) -> None:
    with pytest.raises(UsageError):
        session.search("add", k=0)


def test_a_copy_of_a_selection_has_its_values_and_none_of_its_listeners(session: Session) -> None:
    session.selection.watch(lambda: None)
    session.selection.servers["time"] = "off"
    for other in (copy.deepcopy(session.selection), pickle.loads(pickle.dumps(session.selection))):
        assert other == session.selection
        other.servers["time"] = "loaded"
    assert session.selection.servers["time"] == "off"


def test_the_list_of_servers_says_where_a_mode_is_set(session: Session) -> None:
    with pytest.raises(UsageError, match=r"session\.selection\.servers"):
        session.servers["time"] = "off"


def test_a_command_that_sets_a_mode_says_what_changed(session: Session) -> None:
    session.connect(quiet=True)
    before = session.status.tokens
    status = COMMANDS["load"].run(session, "time")  # type: ignore[misc]
    assert before < status.tokens
    assert all(
        part in status.notes[0]
        for part in ("time: deferred → loaded", f"≈ {before:,} → ≈ {status.tokens:,}")
    )
