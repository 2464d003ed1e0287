"""One rule for the names of tools, in whichever part of the package a name comes up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import casual_mcp_nb
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.base.wire_names import MAX_WIRE_NAME, accepted_name, is_wire_name

ODD = ("", " ", "a b", "ü", "é" * 100, "a" * 65, "a.b/c:d", "x\n", "\ud800", "__", "-1")
GOOD = ("a", "math__add", "A-1_b", "a" * MAX_WIRE_NAME)


@pytest.mark.parametrize("name", GOOD)
def test_a_valid_name_stays_as_it_is(name: str) -> None:
    assert is_wire_name(name)
    assert accepted_name(name) == name


@pytest.mark.parametrize("name", [*ODD, *GOOD])
def test_whatever_a_model_or_a_server_writes_becomes_a_valid_name(name: str) -> None:
    assert is_wire_name(accepted_name(name))
    assert is_wire_name(wire_name(ToolName(name, name)))


def test_the_rule_is_written_once() -> None:
    rule = re.compile(r"\[A-Za-z0-9_-\]\{1,64\}|\[\^A-Za-z0-9_-\]\"")
    root = Path(casual_mcp_nb.__file__).parent
    written = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if rule.search(path.read_text())
    }
    # Ids of calls, and names of tools in a text.
    others = {"bundled/gmail_server.py", "conversation/step.py", "providers/_messages.py"}
    assert written - others == {"base/wire_names.py"}
