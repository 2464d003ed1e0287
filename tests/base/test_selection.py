"""The selection: edited in place, watched, copied."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.errors import UnknownNameError, UsageError


def test_every_edit_is_told_once_and_changes_the_key() -> None:
    selection, told = Selection.model_validate({"servers": {"a": "loaded"}}), []
    selection.watch(lambda: told.append(selection.key()))
    selection.servers["a"] = "deferred"
    selection.tool_set = "research"
    selection.tools_off.add("a:x")
    selection.servers = {"b": "off"}
    selection.servers["b"] = "loaded"
    del selection.servers["b"]
    selection.tools_off = set()
    assert len(told) == 7
    assert len(set(told)) == 7


def test_a_watcher_that_left_is_not_told() -> None:
    selection, told = Selection(), []
    leave = selection.watch(lambda: told.append(1))
    leave()
    leave()
    selection.discovery = True
    assert told == []


def test_a_snapshot_is_equal_and_independent() -> None:
    selection = Selection.model_validate({"servers": {"a": "loaded"}, "tools_off": ["x"]})
    copy = selection.snapshot()
    assert copy == selection
    copy.servers["a"] = "off"
    copy.tools_off.clear()
    assert selection.servers == {"a": "loaded"}
    assert list(selection.tools_off) == ["x"]


def test_assigning_a_whole_selection_keeps_the_object_and_its_watchers() -> None:
    selection, told = Selection(), []
    selection.watch(lambda: told.append(1))
    selection.assign(Selection(defer_all=True, max_search_results=9))
    assert selection.defer_all
    assert selection.max_search_results == 9
    assert told


def test_words_that_are_no_mode_are_refused_with_the_closest() -> None:
    selection = Selection()
    with pytest.raises(UnknownNameError, match="deferred"):
        selection.servers["a"] = "defered"  # type: ignore[assignment]
    with pytest.raises(UsageError):
        selection.max_search_results = 0
    with pytest.raises(UsageError):
        Selection.model_validate({"tolset": "x"})
