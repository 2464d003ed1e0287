"""The values of a turn cannot be changed, and are hashed, copied and pickled by what they hold."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.conversation.event import ToolStarted


def test_an_event_stays_as_it_was_recorded() -> None:
    started = ToolStarted(0, "1", "add", None, {})  # type: ignore[arg-type]
    for name in ("at", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(started, name, 1.0)
    assert started.at == 0.0


def test_it_is_hashed_copied_and_pickled() -> None:
    part = ContentPart("text", "3")
    assert {part: 1}[ContentPart("text", "3")] == 1
    result = ToolResult((part,), {"result": 3})
    for other in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert other == result
        assert other is not result
