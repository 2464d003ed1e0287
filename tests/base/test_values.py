"""Lists and mappings are picked from, named and indexed by one rule each."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.base.iterables import (
    all_are,
    are_texts,
    attributes,
    by_id,
    by_name,
    drop_none,
    field_names,
    labelled,
    of_type,
    present,
)
from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import (
    ToolName,
    ToolSpec,
    by_tool_name,
    by_wire_name,
    for_models,
    forget_server,
    full_names,
    hash_of_tools,
    of_server,
    servers_of,
    tool_names,
)
from casual_mcp_nb.display.view import Cell, Table, columns

ADD = ToolSpec("math", "add", "Add two numbers.")
SUB = ToolSpec("math", "sub", "Subtract.")
HIDDEN = ToolSpec("notes", "pick", "Pick a note.", restriction="app only")
TOOLS = (ADD, SUB, HIDDEN)


@dataclass(frozen=True)
class Item:
    id: str
    name: str


def test_only_none_is_left_out() -> None:
    assert present(iter((0, None, "", False))) == [0, "", False]
    assert drop_none({"a": 0, "b": None, "c": []}) == {"a": 0, "c": []}


def test_values_are_picked_and_checked_by_type() -> None:
    assert of_type(iter(("a", 1, "b", None)), str) == ["a", "b"]
    assert all_are((1, 2.5), int | float)
    assert not all_are((1, "2"), int | float)
    assert all_are((), str)
    assert are_texts(("a", "b"))
    assert not are_texts(("a", ""))
    assert not are_texts(("a", 1))


def test_the_last_of_two_with_the_same_name_or_id_counts() -> None:
    first, second = Item("1", "a"), Item("1", "a")
    assert by_name((first, second))["a"] is second
    assert by_id((first, second))["1"] is second


def test_fields_are_read_in_order() -> None:
    assert field_names(Item) == field_names(Item("1", "a")) == ("id", "name")
    assert list(attributes(Item("1", "a"), ("name", "id")).items()) == [("name", "a"), ("id", "1")]
    assert labelled([("a", 1), ("b", None)]) == ["a: 1", "b: None"]


def test_a_list_of_tools_knows_names_servers_and_prices() -> None:
    assert tool_names(TOOLS) == {ADD.tool_name, SUB.tool_name, HIDDEN.tool_name}
    assert servers_of(TOOLS) == {"math", "notes"}
    assert full_names(TOOLS) == [str(tool.tool_name) for tool in TOOLS]
    assert for_models(TOOLS) == of_server(TOOLS, "math") == [ADD, SUB]
    assert by_tool_name(TOOLS)[ADD.tool_name] is by_wire_name(TOOLS)[ADD.wire_name] is ADD
    assert total_tokens(TOOLS) == ADD.tokens + SUB.tokens + HIDDEN.tokens
    assert hash_of_tools(TOOLS) != hash_of_tools(reversed(TOOLS))


def test_a_removed_server_leaves_nothing() -> None:
    stored = {ToolName("math", "add"): 1, ToolName("math", "sub"): 2, ToolName("notes", "add"): 3}
    forget_server(stored, "math")
    assert stored == {ToolName("notes", "add"): 3}


def test_a_table_counts_the_rows_that_it_does_not_show() -> None:
    def row(number: int) -> tuple[Cell, ...]:
        return (str(number),)

    heads = columns("Number #")
    assert Table.of(heads, range(5), row, 2) == Table(heads, (("0",), ("1",)), 3)
    assert Table.of(heads, (), row, 2) == Table(heads, (), 0)
