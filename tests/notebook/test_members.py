"""Tools that look at every member of a session's parts, such as completion and debuggers, find no
error.
"""

from __future__ import annotations

import inspect

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.displayable import Namespace

pytestmark = pytest.mark.defect("N9")


def test_every_member_of_a_session_and_of_its_parts_can_be_looked_at() -> None:
    with Session.demo() as session:
        parts = {
            name: value
            for name, value in inspect.getmembers(session)
            if isinstance(value, Namespace)
        }
        assert "cassettes" in parts
        for part in parts.values():
            for _, inner in inspect.getmembers(part):
                if isinstance(inner, Namespace):
                    inspect.getmembers(inner)
