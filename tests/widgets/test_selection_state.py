"""The state and commands of the explorer, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.shops import shelves, shop
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConnectError, ToolSetError, UnknownNameError, UsageError
from casual_mcp_nb.widgets.base import merge_patch
from casual_mcp_nb.widgets.selection import SelectionState

Do = Callable[..., Any]


@pytest.fixture
def state(session: Session) -> Iterator[SelectionState]:
    state = SelectionState(session)
    yield state
    state.close()


def fate(state: SelectionState, server: str, tool: str) -> str:
    shown = state.snapshot()
    (place,) = [place for place, row in enumerate(shown["tools"][server]) if row[0] == tool]
    letter: str = shown["fates"][server][place]
    return letter


def test_servers_are_shown_with_state_reason_price_and_mode(
    session: Session, state: SelectionState
) -> None:
    shown = state.snapshot()
    assert shown["order"] == ["math", "units", "gone", "shop"]
    assert shown["servers"]["math"] == shown["servers"]["math"] | {
        "state": "ready",
        "mode": "deferred",
        "effective": "deferred",
    }
    assert shown["servers"]["math"]["tokens"] == sum(
        tool.tokens for tool in session.tools if tool.server == "math"
    )
    assert shown["servers"]["gone"]["state"] == "failed"
    assert "no-such-command-anywhere" in shown["servers"]["gone"]["error"]
    assert "a-secret-value" not in json.dumps(shown)
    assert shown["tools"]["shop"][0] == [
        "stock",
        "shop__stock",
        session.tools["stock"].tokens,
        "read-only",
        "List what is in the shop.",
    ]


def test_hostile_texts_are_shown_as_marks(state: SelectionState) -> None:
    text = json.dumps(state.snapshot(), ensure_ascii=False)
    assert "\u202e" not in text
    assert "\\u001b" not in text
    assert "⟨U+202E⟩" in text


def test_the_manifest_is_exactly_what_the_model_reads(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "set_mode", server="shop", mode="deferred")
    shown = state.snapshot()["manifest"]
    assert shown["text"] == str(session.tools.manifest)
    assert shown["tokens"] == session.tools.manifest.tokens
    assert shown["tools"] == session.tools.manifest.tools


def test_deferring_a_server_turns_discovery_on(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "set_discovery", on=False)
    do(state, "set_mode", server="shop", mode="off")
    assert session.selection.discovery is False
    do(state, "set_mode", server="shop", mode="deferred")
    assert session.selection.discovery is True
    assert state.snapshot()["servers"]["shop"]["effective"] == "deferred"
    do(state, "set_discovery", on="auto")
    do(state, "set_mode", server="shop", mode="deferred")
    assert session.selection.discovery == "auto"


@pytest.mark.parametrize(
    ("command", "arguments", "field", "value"),
    [
        ("set_discovery", {"on": False}, "discovery", False),
        ("set_discovery", {"on": "auto"}, "discovery", "auto"),
        ("set_option", {"name": "defer_all", "value": True}, "defer_all", True),
        ("set_option", {"name": "max_active_tools", "value": 9}, "max_active_tools", 9),
        ("set_option", {"name": "strategy", "value": "browse"}, "strategy", "browse"),
        ("set_option", {"name": "delivery", "value": "bridge"}, "delivery", "bridge"),
        ("set_tool_set", {"name": "numbers"}, "tool_set", "numbers"),
    ],
)
def test_each_choice_edits_the_selection(
    session: Session,
    state: SelectionState,
    do: Do,
    command: str,
    arguments: dict[str, Any],
    field: str,
    value: object,
) -> None:
    assert do(state, command, **arguments) is None
    assert getattr(session.selection, field) == value


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("set_option", {"name": "max_search_results", "value": 0}),
        ("set_option", {"name": "max_search_results", "value": "many"}),
        ("set_option", {"name": "strategy", "value": "guess"}),
        ("set_option", {"name": "instructions", "value": False}),
        ("set_mode", {"server": "math", "mode": "sometimes"}),
        ("set_mode", {"server": "maths", "mode": "off"}),
        ("set_tools", {"server": "maths", "on": False}),
        ("set_tool", {"name": "math__ad", "on": False}),
        ("set_tool_set", {"name": "number"}),
        ("reconnect", {"server": "maths"}),
    ],
)
def test_what_does_not_exist_is_refused_and_changes_nothing(
    session: Session, state: SelectionState, do: Do, command: str, arguments: dict[str, Any]
) -> None:
    before = session.selection.key()
    with pytest.raises(UsageError):
        do(state, command, **arguments)
    assert session.selection.key() == before


def test_a_change_from_code_is_told_and_shown(session: Session, state: SelectionState) -> None:
    told = Event()
    state.watch(told.set)
    session.selection.servers["units"] = "off"
    assert told.is_set()
    assert state.snapshot()["servers"]["units"]["mode"] == "off"
    assert fate(state, "units", "convert_units") == "s"


def test_two_states_on_one_session_agree(session: Session, state: SelectionState, do: Do) -> None:
    other = SelectionState(session)
    do(state, "set_tool", name="math__add", on=False)
    do(other, "set_mode", server="units", mode="deferred")
    first, second = state.snapshot(), other.snapshot()
    assert {**first, "budget": 0} == {**second, "budget": 0}
    assert first["budget"]["now"] == second["budget"]["now"]
    other.close()


def test_the_budget_stands_before_and_after_a_change_with_the_part_of_each_server(
    session: Session, state: SelectionState, do: Do
) -> None:
    before = state.snapshot()["budget"]
    assert "before" not in before
    do(state, "set_mode", server="units", mode="off")
    after = state.snapshot()["budget"]
    assert after["before"] == before["now"]
    assert "units" not in after["now"]["servers"]
    price = state.servers["units"].tokens
    assert before["now"]["servers"]["units"] == price
    assert before["now"]["total"] - after["now"]["total"] == price
    assert state.snapshot()["budget"] == after
    for kind in after.values():
        assert kind["total"] == sum(kind["servers"].values()) + kind["finder"] + kind["manifest"]
    assert after["now"]["total"] == session.status.tokens
    assert after["undeferred"]["total"] == session.status.undeferred_tokens


def test_one_tool_goes_out_and_comes_back_by_any_of_its_names(
    session: Session, state: SelectionState, do: Do
) -> None:
    session.selection.tools_off.add("math:add")
    assert fate(state, "math", "add") == "o"
    do(state, "set_tool", name="math__add", on=True)
    assert fate(state, "math", "add") == "d"
    assert list(session.selection.tools_off) == []
    do(state, "set_tool", name="math__add", on=False)
    assert list(session.selection.tools_off) == ["math__add"]
    assert fate(state, "math", "add") == "o"


def test_all_tools_of_a_server_go_in_one_change(
    session: Session, state: SelectionState, do: Do
) -> None:
    changes: list[None] = []
    cancel = session.selection.watch(lambda: changes.append(None))
    do(state, "set_tools", server="math", on=False)
    assert len(changes) == 1
    assert set(state.snapshot()["fates"]["math"]) == {"o"}
    do(state, "set_tools", server="math", on=True)
    assert set(state.snapshot()["fates"]["math"]) == {"d"}
    cancel()


def test_ticking_a_tool_outside_of_the_toolset_makes_a_toolset_with_it(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "set_tool_set", name="numbers")
    assert fate(state, "units", "list_units") == "t"
    assert fate(state, "shop", "stock") == "t"
    do(state, "set_tool", name="units__list_units", on=True)
    do(state, "set_tools", server="shop", on=True)
    assert session.selection.tool_set == ToolSetConfig(
        description="Numbers",
        servers={
            "math": True,
            "units": ExcludeSpec(exclude=("convert_temperature",)),
            "shop": True,
        },
    )
    assert fate(state, "units", "list_units") == "l"
    assert state.snapshot()["tool_sets"]["own"]["servers"]["units"] == {
        "exclude": ["convert_temperature"]
    }
    assert load_config(session.config.path).tool_sets.keys() == {"numbers"}  # type: ignore[arg-type]


def test_a_draft_says_what_is_ticked(session: Session, state: SelectionState, do: Do) -> None:
    do(state, "set_mode", server="shop", mode="off")
    do(state, "set_tool", name="math__add", on=False)
    for name in ("convert_units", "convert_temperature"):
        do(state, "set_tool", name=name, on=False)
    draft = do(state, "draft")
    assert draft.pop("ticked").keys() == {"math", "units"}
    assert draft == {"servers": {"math": {"exclude": ["add"]}, "units": ["list_units"]}}
    offered = [tool.wire_name for tool in (*state.view.loaded, *state.view.deferred)]
    do(state, "set_tools", server="math", on=True)
    do(state, "edit_tool_set", **draft)
    assert [tool.wire_name for tool in (*state.view.loaded, *state.view.deferred)] == offered


def test_ticks_become_the_shortest_rules_and_what_was_not_touched_stays(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "set_tool_set", name="numbers")
    do(state, "set_mode", server="math", mode="off")
    do(state, "set_tool", name="units__convert_units", on=False)
    draft = do(state, "draft")
    assert draft["servers"] == {"math": True}, (
        "an excluded tool is out; a server that is off stays in its toolset"
    )
    assert "units" not in draft["ticked"]
    units = [tool.wire_name for tool in state.catalog.by_server["units"]]
    shops = [tool.wire_name for tool in state.catalog.by_server["shop"]]
    ticked = {"units": ["units__convert_units"], "shop": shops, "math": []}
    do(state, "edit_tool_set", servers={}, description="Mine", ticked=ticked)
    assert session.selection.tool_set == ToolSetConfig(
        description="Mine", servers={"units": ("convert_units",), "shop": True}
    )
    assert not session.selection.tools_off, (
        "what was excluded one by one and then ticked is included"
    )
    saved = {"ticked": {"units": units[1:]}, "servers": {"math": ["add"]}}
    do(state, "save_tool_set", name="most", **saved)
    assert state.snapshot()["tool_sets"]["known"]["most"]["servers"] == {
        "math": ["add"],
        "units": {"exclude": [units[0].partition("__")[2]]},
    }


def test_a_toolset_cannot_include_what_the_config_leaves_out() -> None:
    math = {"bundled": "math", "transport": "in-process", "exclude_tools": ["add"]}
    with Session.from_config({"servers": {"math": math}}) as session:
        session.connect()
        state = SelectionState(session)
        ticked = {"math": [tool.wire_name for tool in state.catalog]}
        session.parts.engine.run(state.call("edit_tool_set", {"servers": {}, "ticked": ticked}))
        assert session.selection.tool_set == ToolSetConfig(servers={"math": True})
        state.close()


def test_a_picker_gets_the_single_tools_once_a_toolset_is_edited(session: Session, do: Do) -> None:
    state = SelectionState(session, tools=False)
    assert "tools" not in state.snapshot()
    draft = do(state, "draft")
    assert sum(map(len, draft["ticked"].values())) == sum(
        map(len, state.snapshot()["tools"].values())
    )


def test_a_toolset_of_its_own_that_names_what_does_not_exist_is_refused(
    state: SelectionState, do: Do
) -> None:
    with pytest.raises(ToolSetError, match="Did you mean 'add'"):
        do(state, "edit_tool_set", servers={"math": ["ad"]})
    with pytest.raises(ToolSetError, match="Invalid toolset"):
        do(state, "edit_tool_set", servers={"math": 3})


def test_a_toolset_is_saved_used_and_known(session: Session, state: SelectionState, do: Do) -> None:
    saved = do(state, "save_tool_set", name="few", servers={"math": ["add"]}, description="One")
    assert saved == {"saved": "casual_mcp_config.json"}
    assert load_config(session.config.path).tool_sets["few"].servers == {"math": ("add",)}  # type: ignore[arg-type]
    assert session.selection.tool_set == "few"
    assert state.snapshot()["tool_sets"]["known"]["few"] == {
        "description": "One",
        "servers": {"math": ["add"]},
        "size": 1,
    }
    assert [tool.name for tool in state.view.deferred] == ["add"]


def test_another_toolset_of_the_name_is_asked_about_first(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "set_tool_set", name="numbers")
    before = session.config.path.read_bytes()  # type: ignore[union-attr]
    answer = do(state, "save_tool_set", name="numbers", servers={"math": ["add"]})
    assert set(answer) == {"question"}
    assert re.search(r"“numbers” .*\bcasual_mcp_config\.json\b", answer["question"])
    assert session.config.path.read_bytes() == before  # type: ignore[union-attr]
    do(state, "save_tool_set", name="numbers", servers={"math": ["add"]}, overwrite=True)
    assert [tool.name for tool in state.view.deferred] == ["add"]
    assert state.snapshot()["tool_sets"]["known"]["numbers"]["size"] == 1


def test_a_config_without_a_file_says_what_to_do_instead(do: Do) -> None:
    with Session.from_config({}, in_process={"shop": shop()}) as session:
        state = SelectionState(session)
        assert state.snapshot()["tool_sets"]["file"] == ""
        with pytest.raises(UsageError, match="from a file"):
            session.parts.engine.run(
                state.call("save_tool_set", {"name": "all", "servers": {"shop": True}})
            )
        with pytest.raises(UsageError, match=r"session\.selection\.tool_set"):
            session.tools.save_set("all", {"servers": {"shop": True}})


def test_saving_from_code_shows_in_a_widget(
    session: Session, state: SelectionState, config_file: Path
) -> None:
    told = Event()
    state.watch(told.set)
    assert session.tools.save_set("few", {"servers": {"math": ["add"]}}) == config_file
    assert told.is_set()
    assert "few" in session.tools.sets
    with pytest.raises(UsageError, match="overwrite=True"):
        session.tools.save_set("few", {"servers": {"math": True}})


def test_a_toolset_that_does_not_exist_is_said_and_nothing_breaks(
    session: Session, state: SelectionState
) -> None:
    session.parts.chat.tool_sets["nothing"] = ToolSetConfig()
    session.selection.tool_set = "nothing"
    del session.parts.chat.tool_sets["nothing"]
    shown = state.snapshot()
    assert "nothing" in shown["problem"]
    assert shown["tool_sets"]["selected"] == "nothing"
    assert state.exploration._repr_html_()


def test_a_failed_server_is_connected_anew(
    session: Session, state: SelectionState, do: Do, tmp_path: Path
) -> None:
    with pytest.raises(ConnectError) as failed:
        do(state, "reconnect", server="gone")
    assert "'no-such-command-anywhere'" in str(failed.value)
    assert failed.value.server == "gone"
    assert do(state, "reconnect", server="units") is None
    assert state.snapshot()["servers"]["units"]["state"] == "ready"


def test_of_a_server_that_fails_again_the_last_line_is_said() -> None:
    code = "import sys; sys.exit('Traceback\\n  somewhere\\nKeyError: TOKEN')"
    with Session.from_config(
        {"servers": {"shy": {"command": sys.executable, "args": ["-c", code]}}}
    ) as session:
        state = SelectionState(session)
        with pytest.raises(ConnectError) as failed:
            session.parts.engine.run(state.call("reconnect", {"server": "shy"}))
        assert failed.value.server == "shy"
        assert str(failed.value).endswith(": KeyError: TOKEN")
        assert "Traceback" not in str(failed.value)
        with pytest.raises(ConnectError, match=r"KeyError: TOKEN\n"):
            session.servers.reconnect("shy")
        state.close()


def test_a_card_says_that_a_tool_is_destructive_only_if_its_server_does(
    session: Session, state: SelectionState, do: Do
) -> None:
    said: dict[str, bool] = {}
    for tool in session.tools.of_server("shop"):
        card = do(state, "tool", name=str(tool.tool_name))
        said[tool.tool_name.tool] = card["destructive"]
    assert said == {"stock": False, "burn": True, "evil": False}


def test_a_card_has_schema_fields_and_claims(
    session: Session, state: SelectionState, do: Do
) -> None:
    card = do(state, "tool", name="shop:stock")
    assert (card["wire_name"], card["badges"], card["destructive"]) == (
        "shop__stock",
        ["read-only"],
        False,
    )
    assert [(field["name"], field["kind"], field["required"]) for field in card["fields"]] == [
        ("kind", "choice", True),
        ("most", "integer", False),
        ("filters", "json", False),
    ]
    assert card["fields"][0]["choices"] == ['"tea"', '"coffee"']
    assert json.loads(card["schema"])["required"] == ["kind"]
    assert "change" not in card
    assert "⟨U+202E⟩" in do(state, "tool", name="evil")["description"]


def test_a_tool_is_tried_from_a_form(state: SelectionState, do: Do) -> None:
    answer = do(
        state,
        "try_tool",
        name="shop__stock",
        filled={"kind": '"tea"', "most": "7", "filters": '{"price": 3}'},
    )
    assert answer["status"] == "ok"
    assert "price" in answer["html"]
    failed = do(state, "try_tool", name="shop__burn", filled={"reason": "<b>cold</b>"})
    assert failed["status"] == "error"
    assert "&lt;b&gt;cold&lt;/b&gt;" in failed["html"]
    with pytest.raises(UsageError, match=r"'kind' is required; 'most' .*: 'x'\."):
        do(state, "try_tool", name="shop__stock", filled={"most": "x"})


def test_servers_that_start_show_one_after_the_other() -> None:
    let = Event()
    slow = FastMCP("slow")

    @slow.tool
    def late() -> str:
        """Come late."""
        return "late"

    class Held(FastMCP[Any]):
        async def _list_tools(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.to_thread(let.wait, 20)
            return await super()._list_tools(*args, **kwargs)

    held = Held("held")
    held.mount(slow)
    session = Session.from_config({}, in_process={"shop": shop(), "held": held})
    state = SelectionState(session)
    try:
        wait_until(
            lambda: "shop" in state.snapshot()["tools"], "the quick server's tools are shown"
        )
        assert state.snapshot()["servers"]["held"]["state"] == "starting"
        let.set()
        wait_until(lambda: "held" in state.snapshot()["tools"], "the slow server's tools are shown")
    finally:
        let.set()
        session.close()
    assert {info["state"] for info in state.snapshot()["servers"].values()} == {"closed"}


def test_a_changed_tool_is_shown_and_accepted() -> None:
    server = shop()
    config = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
    with Session.from_config(config, in_process={"shop": server}) as session:
        state = SelectionState(session)
        server.local_provider.remove_tool("burn")

        @server.tool
        def burn(reason: str) -> str:
            """Burn everything down."""
            return reason

        session.servers.reconnect("shop")
        card = session.parts.engine.run(state.call("tool", {"name": "burn"}))
        assert "+" in card["change"]["diff"]
        assert not card["change"]["blocked"]
        session.parts.engine.run(state.call("accept_change", {"name": "burn"}))
        assert "change" not in session.parts.engine.run(state.call("tool", {"name": "burn"}))
        with pytest.raises(UnknownNameError):
            session.parts.engine.run(state.call("accept_change", {"name": "burn"}))


@pytest.mark.slow
@pytest.mark.holds_the_loop(
    "twenty servers of this process list 10,000 tools, on the loop of the engine"
)
def test_ten_thousand_tools_open_in_two_megabytes_and_a_toggle_is_small() -> None:
    with Session.from_config(
        {"tool_discovery": {"enabled": True}}, in_process=shelves(20, 10_000)
    ) as session:
        state = SelectionState(session)
        shown = state.snapshot()
        assert sum(map(len, shown["tools"].values())) == 10_000
        assert len(json.dumps(shown)) < 2_500_000
        for change in (
            lambda: state.set_mode("shelf-00", "deferred"),
            lambda: state.set_tool("shelf-01__create_event_0", False),
            lambda: state.set_tools("shelf-02", False),
            lambda: state.set_option("defer_all", True),
            lambda: state.set_discovery(False),
        ):
            change()
            now = state.snapshot()
            patch = merge_patch(shown, now)
            assert patch
            assert len(json.dumps(patch)) < 20_000
            shown = now


def test_without_tools_a_snapshot_stays_small(session: Session) -> None:
    state = SelectionState(session, tools=False)
    assert "tools" not in state.snapshot()
    assert "fates" not in state.snapshot()
    state.close()


def test_a_closed_state_hears_nothing(session: Session, state: SelectionState) -> None:
    told = Event()
    state.watch(told.set)
    state.close()
    session.selection.discovery = False
    assert not told.is_set()


@pytest.mark.defect("H2")
def test_a_saved_toolset_may_name_in_process_servers_but_no_unknown_ones(
    session: Session, state: SelectionState, do: Do
) -> None:
    do(state, "save_tool_set", name="all", **do(state, "draft"))
    assert session.config.path is not None
    assert "shop" in load_config(session.config.path).tool_sets["all"].servers
    with pytest.raises(ToolSetError, match="Did you mean 'math'"):
        session.tools.save_set("misspelt", {"servers": {"maths": True}})


async def test_a_config_that_was_not_accepted_is_shown_whole_and_started_when_it_is(
    asks_first: Path, tmp_path: Path
) -> None:
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"servers": {"math": {"bundled": "math", "approval": "always"}}}))
    with contextlib.closing(Session.from_config(file)) as session:
        state = SelectionState(session)
        wait_until(lambda: state.snapshot()["unaccepted"], "it is refused")
        shown = state.snapshot()
        assert shown["unaccepted"] == {"file": "theirs.json", "text": session.consent.trust().text}
        assert shown["servers"]["math"]["state"] == "closed"
        await state.call("accept_config", {})
        wait_until(lambda: session.servers["math"].state == "ready", "it starts")
        assert state.snapshot()["unaccepted"] is None
        assert not session.consent.trust().required
        state.close()
