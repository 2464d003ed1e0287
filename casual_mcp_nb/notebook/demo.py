"""The demo's config: the bundled servers, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Config

LOADED = "system-info"


def demo_config(model: str | None = None) -> Config:
    """Build a config with the bundled servers that are on by default, all but one deferred.

    Those that need a library that is not installed are left out, with a note that says how to
    install it.

    Args:
        model: See `Session.quick`, or None for the offline planner.
    """
    from casual_mcp_nb.bundled import BUNDLED
    from casual_mcp_nb.config.loader import load_config
    from casual_mcp_nb.config.quick import model_sections

    servers: dict[str, Any] = {}
    notes: list[str] = []
    for name, server in BUNDLED.items():
        if not server.default:
            continue
        missing = server.missing_libraries()
        if missing is not None:
            notes.append(f"Without the server {name}: {missing}")
            continue
        servers[name] = {
            "bundled": name,
            "transport": "in-process",
            "defer_loading": name != LOADED,
        }
    tool_sets: dict[str, dict[str, Any]] = {
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
    }
    for tool_set in tool_sets.values():
        tool_set["servers"] = {
            name: tools for name, tools in tool_set["servers"].items() if name in servers
        }
    config = load_config(
        {
            "servers": servers,
            "tool_sets": tool_sets,
            "tool_discovery": {"enabled": True},
            **model_sections(model),
        }
    )
    return config.with_notes(*notes)
