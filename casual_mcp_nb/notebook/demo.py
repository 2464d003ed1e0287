"""The demo's config: the bundled servers, in this process."""

from __future__ import annotations

from typing import Any

LOADED = "system-info"


def demo_config() -> dict[str, Any]:
    """Build a config with the bundled servers that are on by default, all but one deferred.

    `Session.demo` adds the model.
    """
    from casual_mcp_nb.bundled import BUNDLED

    servers: dict[str, Any] = {}
    for name, server in BUNDLED.items():
        if server.default:
            servers[name] = {
                "bundled": name,
                "transport": "in-process",
                "defer_loading": name != LOADED,
            }
    return {
        "servers": servers,
        "tool_sets": {
            "calculation": {
                "description": "Numbers, units and times",
                "servers": {"math": True, "units": True, "time": True},
            },
            "reading": {
                "description": "Look, but change nothing",
                "servers": {
                    "files": ["read_file", "list_directory"],
                    "text": True,
                    "sqlite": {"exclude": ["execute"]},
                },
            },
        },
        "tool_discovery": {"enabled": True},
    }
