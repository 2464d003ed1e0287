from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.weather import weather

from casual_mcp_nb import Session


@pytest.fixture(scope="module")
def weather_session() -> Iterator[Session]:
    """A session with a weather server in this process."""
    with Session({}, in_process={"weather": weather()}, store=None, quiet=True) as session:
        yield session
