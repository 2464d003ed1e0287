"""The magics are there, so the advice of errors is in their words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from casual_mcp_nb import doors


@pytest.fixture(autouse=True)
def _in_a_notebook() -> Iterator[None]:
    with doors.at("notebook"):
        yield
