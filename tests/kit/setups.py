"""Parts of configs with which many tests begin."""

from __future__ import annotations

from typing import Any

OFFLINE: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
}
"""The planner that needs no provider."""

MATH: dict[str, Any] = {"bundled": "math", "transport": "in-process"}
"""A bundled server in this process."""
