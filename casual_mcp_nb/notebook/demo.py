"""The config of `%mcp demo` and `Session.demo()`: the bundled servers; no key, no network."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.bundled import BUNDLED

LOADED = "system-info"


def demo_config() -> dict[str, Any]:
    """Build a config with the default bundled servers, all but one deferred; the model is added by `Session.demo`."""
    return {
        "servers": {
            name: {"bundled": name, "defer_loading": name != LOADED} for name, server in BUNDLED.items() if server.default
        },
        "tool_sets": {
            "calculation": {"description": "Numbers, units and times", "servers": {"math": True, "units": True, "time": True}},
            "reading": {
                "description": "Look, but change nothing",
                "servers": {"files": ["read_file", "list_directory"], "text": True, "sqlite": {"exclude": ["execute"]}},
            },
        },
        "tool_discovery": {"enabled": True},
    }
