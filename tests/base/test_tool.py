"""Names of tools, and the catalog."""

from __future__ import annotations

import re

import pytest

from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec, wire_name
from casual_mcp_nb.errors import UnknownNameError, UsageError


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    "name",
    [
        ToolName("a server", "a tool"),
        ToolName("io.example/server", "tool.v2"),
        ToolName("météo", "prévision"),
        ToolName("天气", "预报"),
        ToolName("x" * 60, "y" * 60),
        ToolName("", ""),
        ToolName("a\ud800", "b\0"),
    ],
)
def test_a_wire_name_is_acceptable_to_providers_and_the_same_in_every_run(name: ToolName) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire_name(name))
    assert wire_name(name) == wire_name(ToolName(name.server, name.tool))
    catalog = Catalog([ToolSpec(name.server, name.tool), ToolSpec("other", "tool")])
    assert catalog.by_wire_name[wire_name(name)].tool_name == name


@pytest.mark.fault(45)
def test_long_names_that_begin_alike_have_different_wire_names() -> None:
    names = {wire_name(ToolName("server", "x" * 80 + end)) for end in "abc"}
    assert len(names) == 3


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("my", "server_x"), ("my_server", "x")),
        (("a", "b__c"), ("a__b", "c")),
        (("天", "x"), ("气", "x")),
        (("a b", "x"), ("a.b", "x")),
    ],
)
def test_no_two_tools_share_a_wire_name_whatever_their_order(
    one: tuple[str, str], two: tuple[str, str]
) -> None:
    tools = [ToolSpec(*one), ToolSpec(*two)]
    there, back = Catalog(tools), Catalog(reversed(tools))
    assert len(there.by_wire_name) == 2
    assert {t.tool_name: t.wire_name for t in there} == {t.tool_name: t.wire_name for t in back}


@pytest.mark.fault(46)
def test_of_the_same_tool_twice_the_first_counts() -> None:
    catalog = Catalog([ToolSpec("s", "t", "first"), ToolSpec("s", "t", "second")])
    assert [tool.description for tool in catalog] == ["first"]


@pytest.mark.parametrize(
    "name", ["math__add", "math:add", "math_add", "add", ToolName("math", "add")]
)
def test_a_tool_is_found_by_each_of_its_names(name: str | ToolName) -> None:
    assert Catalog([ToolSpec("math", "add"), ToolSpec("time", "now")]).resolve(
        name
    ).tool_name == ToolName("math", "add")


@pytest.mark.fault(43)
def test_a_bare_name_of_two_servers_is_an_error_that_names_both() -> None:
    with pytest.raises(UsageError, match=r"git:status.*hub:status"):
        Catalog([ToolSpec("git", "status"), ToolSpec("hub", "status")]).resolve("status")


def test_an_unknown_name_is_an_error_with_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="math:add"):
        Catalog([ToolSpec("math", "add")]).resolve("math__ad")


def test_the_version_of_a_catalog_is_made_from_its_content() -> None:
    tools = [ToolSpec("a", "x", "one"), ToolSpec("b", "y")]
    assert (
        Catalog(tools).version == Catalog([ToolSpec("a", "x", "one"), ToolSpec("b", "y")]).version
    )
    assert (
        Catalog(tools).version != Catalog([ToolSpec("a", "x", "two"), ToolSpec("b", "y")]).version
    )


@pytest.mark.fault(41)
def test_a_tool_without_a_description_is_offered_with_its_name() -> None:
    assert ToolSpec("s", "t").definition == {
        "name": "s__t",
        "description": "t",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.timeout(20)
def test_a_name_of_fifty_megabytes_costs_no_more_than_a_short_one() -> None:
    long = "é" * 50_000_000
    names = {
        wire_name(ToolName(server, tool))
        for server, tool in (("s", long + "a"), ("s", long + "b"), (long, "a"))
    }
    assert len(names) == 3
    assert {len(name) for name in names} == {64}


@pytest.mark.parametrize("text", ["math:add", "math__add"])
def test_a_name_without_a_catalog_is_split_as_it_is_joined(text: str) -> None:
    name = ToolName.split(text)
    assert name == ToolName("math", "add")
    assert name.joined == wire_name(name) == "math__add"
    assert ToolName.split("search_tools") == ToolName("", "search_tools")
    assert ToolName.split("math__list__all") == ToolName("math", "list__all")
    assert ToolName.split("plugin:math:add") == ToolName("plugin:math", "add")
    assert ToolName.split("shop:db:query", ["shop"]) == ToolName("shop", "db:query")
    servers = ["a", "a:b", "shopping"]
    assert ToolName.split("a:b:db:query", servers) == ToolName("a:b", "db:query")
    assert ToolName.split("shop:add", servers) == ToolName("shop", "add")
