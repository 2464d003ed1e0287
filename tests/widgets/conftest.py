"""A session over servers of this process, with a config file, for states without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.shops import shop
from kit.told import Told, told_session

from casual_mcp_nb import Session

CONFIG = {
    "servers": {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
        "units": {"bundled": "units", "transport": "in-process"},
        "gone": {"command": "no-such-command-anywhere", "env": {"TOKEN": "a-secret-value"}},
    },
    "tool_sets": {
        "numbers": {"description": "Numbers", "servers": {"math": True, "units": ["convert_units"]}}
    },
    "tool_discovery": {"enabled": True},
}


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    return path


@pytest.fixture
def session(config_file: Path) -> Iterator[Session]:
    with Session.from_config(config_file, in_process={"shop": shop()}) as session:
        yield session


@pytest.fixture
def do(session: Session) -> Callable[..., Any]:
    """Call a command of a state as a front end does."""

    def done(state: Any, command: str, /, **arguments: Any) -> Any:
        return session.parts.engine.run(state.call(command, arguments))

    return done


@pytest.fixture
def told() -> Iterator[Told]:
    with told_session() as told:
        yield told
