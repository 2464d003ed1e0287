"""Small components, character by character: a visible change is a change of a file that a person
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from casual_mcp_nb.views import mimebundle

COMPONENTS = [
    "server",
    "servers",
    "tool",
    "manifest",
    "exploration",
    "selection",
    "clients",
    "prompt",
    "search",
    "turn",
    "running turn",
    "request",
    "diff",
    "turn stats",
    "conversation",
    "diagnosis",
    "help",
]


@pytest.mark.parametrize("component", COMPONENTS)
def test_html_is_as_in_its_golden_file(
    component: str, make: Any, golden: Callable[[str, str], None]
) -> None:
    golden(component.replace(" ", "_"), mimebundle(make(component))["text/html"])
