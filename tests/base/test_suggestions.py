"""Suggestions for a name that does not exist: each tool once, under one name."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.errors import UnknownNameError

CATALOG = Catalog(
    [
        ToolSpec("math", "add"),
        ToolSpec("math", "subtract"),
        *(ToolSpec("notes", f"note_{i}") for i in range(20)),
    ]
)


@pytest.mark.defect("C9")
@pytest.mark.parametrize("name", ["ad", "math__ad", "math:ad", "math_ad"])
def test_a_tool_is_suggested_once_whichever_of_its_names_is_close(name: str) -> None:
    with pytest.raises(UnknownNameError) as raised:
        CATALOG.resolve(name)
    assert str(raised.value).count("math:add") == 1
    assert "math__add" not in str(raised.value)


@pytest.mark.defect("C9")
def test_what_is_listed_counts_tools_and_not_their_names() -> None:
    with pytest.raises(UnknownNameError, match=r"and 10 more") as raised:
        CATALOG.resolve("zzzzzzzzzz")
    assert str(raised.value).count("'notes:note_1'") == 1
