"""Frozen dataclasses with a faster `__init__` are like those of the standard library in everything
else.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.record import record
from casual_mcp_nb.conversation.event import ToolStarted


@record(frozen=True)
class Point:
    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list, repr=False)
    sum: int = field(default=-1, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sum", self.x + self.y)


@dataclasses.dataclass(frozen=True)
class Standard:
    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list, repr=False)
    sum: int = field(default=-1, compare=False)


def test_it_is_created_as_a_dataclass_is() -> None:
    one, other = Point(1), Point(1, y=0)
    assert one == other
    assert (one.labels, one.sum) == ([], 1)
    assert one.labels is not other.labels
    assert repr(Point(1, 2)) == "Point(x=1, y=2, sum=3)"
    assert dataclasses.replace(one, y=5).sum == 6
    assert (
        inspect.signature(Point).return_annotation == inspect.signature(Standard).return_annotation
    )
    assert [*inspect.signature(Point).parameters] == [*inspect.signature(Standard).parameters]
    assert Point.__init__.__annotations__ == Standard.__init__.__annotations__


@pytest.mark.parametrize("arguments", [(), (1, 2, [], 3, 4)])
def test_a_wrong_number_of_arguments_is_refused(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        Point(*arguments)


def test_it_stays_frozen() -> None:
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
