"""Stats as a table of pandas and as a picture of matplotlib, where these are installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

BLOCKED = """
import sys
sys.modules[{name!r}] = None
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.errors import MissingDependencyError
try:
    ChatStats().{call}()
except MissingDependencyError as error:
    print(error)
"""


def test_a_frame_has_a_row_for_each_call_of_the_model(make: Any) -> None:
    pytest.importorskip("pandas")
    stats = make("turn stats")
    frame = (stats + stats).to_frame()
    assert list(zip(frame["turn"], frame["step"], strict=True)) == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert frame["request"].sum() == 2 * stats.sent_tokens
    assert list(frame[["system", "manifest", "tools", "history", "results"]].sum(axis=1)) == list(
        frame["request"]
    )


def test_a_picture_stacks_the_parts_of_each_request(make: Any) -> None:
    pytest.importorskip("matplotlib")
    stats = make("turn stats")
    (axes,) = stats.plot().axes
    assert len(axes.containers) == 5
    tops = [bar.get_y() + bar.get_height() for bar in axes.containers[-1]]
    assert tops == [step.parts.total for step in stats.steps]
    assert "estimated" in axes.get_ylabel()


@pytest.mark.parametrize(("name", "call"), [("pandas", "to_frame"), ("matplotlib", "plot")])
def test_a_library_that_is_missing_is_named_with_how_to_install_it(name: str, call: str) -> None:
    code = BLOCKED.format(name=name, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"pip install {name}" in done.stdout
